"""What each task is measured by: the keys of its scores, and the heads of the columns that show them."""

from collections.abc import Sequence
from typing import NamedTuple

from bertvision.records import MAIN_SCORES, RunRecord

AT_ZERO, TUNED, BEST = "at 0", "tuned on held-out", "best"


class Measure(NamedTuple):
    """A score by its key, and how tables show it."""

    key: str
    title: str
    meaning: str
    at: str = ""  # which threshold for “no answer”, where there are several
    short: str | None = None  # head on a terminal, the title unless given; an empty one is left out there
    digits: int | None = 1  # None: four, wherever they begin
    is_paired: bool = True  # shown where fractions stand side by side

    @property
    def head(self) -> str:
        """Return its column's head."""
        return f"{self.title} {self.at}".rstrip()


class TaskMeasures(NamedTuple):
    """A task's columns, and the one that figures show."""

    columns: tuple[Measure, ...]
    main: str  # a key

    @property
    def main_measure(self) -> Measure:
        """Return the main measure."""
        return next(measure for measure in self.columns if measure.key == self.main)


ACCURACY = Measure("accuracy", "accuracy", "share of examples with the right label")
PEARSON = Measure("pearson", "Pearson", "linear correlation of predicted and true numbers")
SPEARMAN = Measure("spearman", "Spearman", "correlation of their ranks")
MACRO_F1 = Measure("macro_f1", "macro F1", "mean of the labels' F1, every label counting alike")
EXACT = "share of questions whose answer is exactly right"
PARTLY = "the same with credit for partly right answers"
ZERO = "no answer is given where “no answer” scores higher than the best span"
HELD_OUT = "at the threshold for “no answer” that suits a held-out part of the training data best"
HINDSIGHT = "at the threshold that suits these very questions best, so it flatters every row"

SQUAD2 = (
    Measure("exact", "EM", f"{EXACT}; {ZERO}", AT_ZERO, "EM"),
    Measure("f1", "F1", PARTLY, AT_ZERO, "F1"),
    Measure("tuned_exact", "EM", HELD_OUT, TUNED, ""),
    Measure("tuned_f1", "F1", HELD_OUT, TUNED, "tuned"),
    Measure("best_exact", "EM", HINDSIGHT, BEST, ""),
    Measure("best_f1", "F1", HINDSIGHT, BEST, "best"),
    Measure(
        "best_span_HasAns_f1",
        "span F1",
        "F1 over the questions that have an answer, taking the best one even where the model would stay silent; "
        "it tells finding answers from knowing when there is none",
        short="span",
        is_paired=False,
    ),
)
PAIR_F1 = Measure("f1", "F1", "of the positive class: harmonic mean of precision and recall")
RIGHT = (ACCURACY,)
PAIRS = (PAIR_F1, ACCURACY)

TASKS: dict[str, tuple[Measure, ...]] = {
    "squad1": (Measure("exact_match", "EM", EXACT), Measure("f1", "F1", PARTLY)),
    "squad2": SQUAD2,
    "answerability": (
        Measure("accuracy", "accuracy", "share of questions rightly said to have an answer, or none"),
        Measure("f1", "F1", "of “no answer”: harmonic mean of precision and recall"),
        Measure("paper_v1_accuracy", "paper-v1 accuracy", "by the paper's rule, where any window may decide"),
        Measure("paper_v1_f1", "paper-v1 F1", "by the same rule"),
    ),
    "cola": (Measure("matthews", "Matthews", "correlation of predicted and true labels"),),
    "sst2": RIGHT,
    "mrpc": PAIRS,
    "stsb": (PEARSON, SPEARMAN),
    "qqp": PAIRS,
    "mnli": (
        Measure("accuracy", "matched", "accuracy on texts of the training data's genres"),
        Measure("mismatched_accuracy", "mismatched", "accuracy on texts of other genres"),
    ),
    "qnli": RIGHT,
    "rte": RIGHT,
    "wnli": RIGHT,
    "swag": RIGHT,
    "ner": (
        Measure("precision", "precision", "share of found entities that are right, in whole"),
        Measure("recall", "recall", "share of entities that were found"),
        Measure("f1", "F1", "harmonic mean of the two"),
        Measure("accuracy", "accuracy", "share of words with the right tag"),
    ),
    "classification": (ACCURACY, MACRO_F1),
    "multilabel": (
        Measure("micro_f1", "micro F1", "F1 over all decisions, every decision counting alike"),
        MACRO_F1,
        Measure("exact", "exact", "share of examples whose labels are all right"),
    ),
    "regression": (
        PEARSON,
        SPEARMAN,
        Measure("rmse", "RMSE", "root of the mean squared error, in the labels' unit", digits=None),
        Measure("mae", "MAE", "mean absolute error, in the labels' unit", digits=None),
    ),
}

CALIBRATION = (
    Measure("temperature", "temperature", "what logits are divided by, fitted on the held-out part", digits=2),
    Measure(
        "ece",
        "ECE before",
        "expected calibration error, from 0 to 1: how far probabilities lie from the shares that are right",
        digits=3,
    ),
    Measure("ece_calibrated", "ECE after", "the same with that temperature, at the tuned threshold", digits=3),
    Measure(
        "risk_coverage_area",
        "AURC",
        "area under the risk-coverage curve, from 0 to 1: the mean share of wrong answers; less is better",
        digits=3,
    ),
    Measure("tuned_threshold", "threshold tuned", "for “no answer”, on the held-out part", digits=2),
    Measure("best_f1_thresh", "threshold best", "for these very questions", digits=2),
    Measure("tuned_below_best_f1", "F1 below best", "how far the tuned threshold's F1 lies below the best one's"),
)


def measures_of(records: Sequence[RunRecord]) -> TaskMeasures:
    """Return what the records' task is measured by; a task that is not in the table shows every score by its key."""
    task = records[0].task
    if task not in TASKS:
        keys = list(dict.fromkeys(key for record in records for key in sorted(record.scores))) or ["score"]
        return TaskMeasures(tuple(Measure(key, key, "") for key in keys), keys[0])
    own = _own_threshold(records)
    columns = (measure._replace(at=own) if measure.at == AT_ZERO else measure for measure in TASKS[task])
    return TaskMeasures(tuple(columns), MAIN_SCORES[task])


def _own_threshold(records: Sequence[RunRecord]) -> str:
    """Name the threshold of the plain scores, which an experiment may set (answers.null_threshold)."""
    found = {float(record.config["answers"]["null_threshold"]) for record in records}
    return f"at {found.pop():g}" if len(found) == 1 else "at its own threshold"
