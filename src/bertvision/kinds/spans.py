"""A span of the context that answers a question or, in SQuAD 2.0, "no answer"; and what questions have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bertvision.data.example import ColumnsConfig, Question, Split
from bertvision.data.shards import ShardRow
from bertvision.data.squad import read_squad
from bertvision.data.tables import plain_text
from bertvision.errors import DataError, FolderError
from bertvision.kinds.kind import (
    Answering,
    Bounds,
    Breakdown,
    CellsByName,
    Cutting,
    Golds,
    Joined,
    Kind,
    Labelled,
    Reading,
    TaskInfo,
)
from bertvision.predictions.ensemble import (
    LOGITS,
    How,
    ScoredText,
    SpanMember,
    Weights,
    combine_logits,
    combine_spans,
    read_members,
)
from bertvision.predictions.files import (
    WHERE,
    read_answers,
    read_null_odds,
    read_prediction_folder,
    write_predictions,
)
from bertvision.predictions.logits import Logits, TextGrid, grid_of, save_logits, text_grid
from bertvision.predictions.pooled import decode_as_reader
from bertvision.predictions.prediction import AnswerConfig, DecisionRule, Prediction
from bertvision.predictions.spans import decode_spans
from bertvision.records import LEAST_EXAMPLES, Mistake
from bertvision.scoring.answers import ScoredAnswers, break_down_spans, score_answers
from bertvision.scoring.bootstrap import Draw, Floats, Paired, bounds_of, exact_interval, resample_means, resample_sums
from bertvision.scoring.disagreements import (
    NOTHING,
    OUTCOMES,
    Disagreement,
    Outcomes,
    count_right,
    place_to_show,
    shortened,
    snippet_of,
)
from bertvision.scoring.label_tables import group_types
from bertvision.scoring.squad import Scores, score_predictions, score_squad1, score_squad2
from bertvision.tables import counted
from bertvision.windows.window import Window, cut_windows


class QuestionKind(Kind):
    """A question about a context, from a SQuAD file."""

    noun = "question"
    cluster = "article"
    asks_questions = True
    row_columns = "the columns `question` and `context`"
    can_be_taught = True
    first = "question"
    second = "context"
    classifies_windows: ClassVar[bool] = False  # whether a window has a class: whether it holds the answer

    @property
    def others(self) -> str:
        """Questions about other texts."""
        return "questions of other articles"

    def read(self, info: TaskInfo, source: str, reading: Reading) -> Labelled:
        """Read a SQuAD file."""
        split = read_squad(
            source,
            on_bad=reading.data.on_bad,
            hub_split=reading.hub_split,
            answers=reading.need,
            advice=reading.advice,
        )
        return Labelled(split, reading.labels)

    def cut(self, examples: Sequence[Question], labels: Sequence[str], how: Cutting) -> list[Window]:
        """Cut contexts into windows, labelled with the first answer or with their class."""
        answerable = how.labelled and self.classifies_windows
        return cut_windows(
            examples, how.tokenizer, how.config, labelled=how.labelled, answerable=answerable, progress=how.progress
        )

    def example(self, identity: str, text: str, second: Any = None) -> Question:  # noqa: ANN401 (a text)
        """Return a question about a context."""
        return Question(identity, text, second, (), "")

    def from_row(
        self, identity: str, row: ShardRow, layouts: Sequence[ColumnsConfig], labels: Sequence[str]
    ) -> Question:
        """Return the question of a row with the columns `question` and `context`."""
        text, context = (plain_text(row.cells.get(column), column) for column in ("question", "context"))
        return self.example(identity, text, context)

    def texts(self, example: Question) -> dict[str, str]:
        """Return question and context."""
        return {"question": example.text, "context": example.context}

    def count_labels(self, examples: Sequence[Question], labels: Sequence[str]) -> dict[str, int]:
        """Count the questions with and without an answer."""
        impossible = sum(question.is_impossible for question in examples)
        return {"answer": len(examples) - impossible, "no answer": impossible}


# What a table of an ensemble's members shows: SQuAD 2.0's name of a score, then 1.1's.
COLUMNS = {"EM": ("exact", "exact_match"), "F1": ("f1",), "best F1": ("best_f1",), "span F1": ("best_span_HasAns_f1",)}


@dataclass(frozen=True)
class Spans(QuestionKind):
    """The best span of a context."""

    has_null: bool = field(default=True, compare=False)  # the same models are trained either way

    name = "span"
    per = "token"
    softmax = "tokens"
    readouts = ("linear", "joint", "bilstm", "null_offset", "null_offset_scale")
    in_context = True
    has_baseline = False
    may_lack_scores = False
    right = "Right by exact match"
    pipeline = "question-answering"
    usage = 'model("Who built the weir?", "The weir was built in 1887 by Hannah Coyle.").text'
    predictor = "reader"

    @property
    def learns_unanswerable(self) -> bool:
        """Return whether questions without an answer can be learned from."""
        return self.has_null

    def read(self, info: TaskInfo, source: str, reading: Reading) -> Labelled:
        """Read a SQuAD file; SQuAD 1.1 knows no question without an answer."""
        found = super().read(info, source, reading)
        if self.has_null or reading.need != "placed":
            return found
        return Labelled(_answerable(found.split, drop=reading.data.on_bad == "drop"), found.labels)

    def columns(self, labels: Sequence[str]) -> int:
        """Return 2: start and end."""
        return 2

    def lay_out(self, examples: Sequence[Question], windows: Sequence[Window]) -> TextGrid:
        """Lay the windows' tokens out over their contexts."""
        grid = grid_of(windows, [question.id for question in examples])
        return text_grid(grid, [question.context for question in examples])

    def decode(self, asked: Answering, logits: Logits) -> list[Prediction]:
        """Return the best span of every question, or none, as the official script's readers do."""
        return decode_spans(asked.layout, logits, asked.config, has_null=self.has_null)

    def decode_in_use(self, asked: Answering, logits: Logits, rule: DecisionRule) -> list[Prediction]:
        """Return the answer to every question with its probability, by the rule of `ask` and `serve`."""
        return decode_as_reader(asked.layout, logits, asked.config, rule, has_null=self.has_null)

    def combine(
        self, layout: TextGrid, members: Sequence[Logits], how: How, weights: Weights = None, labels: Sequence[str] = ()
    ) -> Logits:
        """Combine models token by token."""
        return combine_logits(layout.tokens, members, how, weights)

    def said(self, prediction: Prediction) -> str:
        """Return the answer's text."""
        return prediction.text

    def wanted(self, example: Question) -> bool:
        """Return whether there is an answer: texts are never the same all over."""
        return not example.is_impossible

    def name_of(self, said: str, labels: Sequence[str]) -> str:
        """Return the answer, or that there is none."""
        return repr(said) if said else '"no answer"'

    def summarise(self, predictions: Sequence[Prediction]) -> str:
        """Count the questions that get no answer."""
        noun = "question" if len(predictions) == 1 else "questions"
        return f"{len(predictions):,} {noun}, {sum(not each.text for each in predictions):,} abstained"

    def score(self, golds: Golds, predictions: Sequence[Prediction], config: AnswerConfig | None = None) -> Scores:
        """Return the official scores, at a null threshold and at the best one."""
        return score_predictions(golds.examples, predictions, config.null_threshold if config is not None else 0.0)

    def score_file(
        self, golds: Golds, predictions: Path, null_odds: Path | None, threshold: float
    ) -> tuple[Scores, str]:
        """Return what evaluate-v2.0 prints, or evaluate-v1.1."""
        answers = read_answers(predictions)
        if self.has_null:
            odds = read_null_odds(null_odds) if null_odds is not None else None
            return score_squad2(golds.examples, answers, odds, threshold), ""
        missing = [question.id for question in golds.examples if question.id not in answers]
        if not missing:
            return score_squad1(golds.examples, answers), ""
        without = f"{counted(len(missing), 'question')} without a prediction, such as {missing[0]!r}"
        return score_squad1(golds.examples, answers), f"{without}, score{'s' * (len(missing) == 1)} 0"

    def can_score(self, examples: Sequence[Question], predictions: Sequence[Prediction]) -> bool:
        """Whether SQuAD 1.1 can score all questions, if these are its predictions."""
        return predictions[0].null_odds is not None or all(question.answers for question in examples)

    def guess_scores(self, golds: Golds, train: Sequence[Question]) -> Scores:
        """Score "no answer" to every question."""
        return {"f1": 100 * sum(question.is_impossible for question in golds.examples) / len(golds.examples)}

    def write(self, folder: Path, golds: Golds, predictions: Sequence[Prediction], part: str = "") -> None:
        """Write answers in run_qa's formats."""
        write_predictions(folder, predictions)

    def write_logits(self, folder: Path, layout: TextGrid, logits: Logits) -> None:
        """Write logits with where they lie."""
        save_logits(folder / LOGITS, layout.tokens, logits)

    def tabulate(self, golds: Golds, predictions: Sequence[Prediction], names: Sequence[str] = ()) -> list[CellsByName]:
        """Return a line for each question: its answer, how likely it is, and how far "no answer" is from it."""
        return [
            {"id": question.id, "question": question.text, "answer": found.text} | _figures(found)
            for question, found in zip(golds.examples, predictions, strict=True)
        ]

    def as_line(self, example: Question, prediction: Prediction, labels: Sequence[str]) -> CellsByName:
        """Return the answer, how likely it is, and how far "no answer" is from it."""
        return {"id": example.id, "answer": prediction.text} | _figures(prediction)

    def read_predictions(self, path: Path, golds: Golds, *, whole: bool = False) -> ScoredAnswers:
        """Read answers, of a folder or of one file, each with what it is worth."""
        folder = read_prediction_folder(path) if whole else None
        answers = read_answers(path) if folder is None else folder.answers
        return score_answers(str(path), golds.examples, answers, folder)

    def metrics(self, info: TaskInfo) -> tuple[str, ...]:
        """Return which scores can be compared."""
        return ("exact", "f1")

    def head(self, golds: Golds) -> dict[str, Any]:
        """Return how a comparison begins in JSON."""
        return {"questions": len(golds.examples)}

    def pair(
        self, golds: Golds, a: ScoredAnswers, b: ScoredAnswers, metrics: Sequence[str], draw: Draw
    ) -> dict[str, Paired]:
        """Return both models' scores and their differences in resamples, score by score."""
        paired = {}
        for metric in metrics:
            one, other = (each.score(metric, golds.examples) for each in (a, b))
            differences = 100 * (b.worth(metric, golds.examples) - a.worth(metric, golds.examples))
            paired[metric] = Paired(one, other, resample_means(differences, draw))
        return paired

    def resample(self, golds: Golds, models: Sequence[ScoredAnswers], metric: str, draw: Draw) -> Floats:
        """Return EM or F1 of several models: of all questions, then in resamples that all of them share."""
        worths = np.stack([100 * each.worth(metric, golds.examples) for each in models], axis=1)
        parts = np.concatenate([worths, np.ones((len(worths), 1))], axis=1)
        *totals, sizes = resample_sums(parts, draw.units, draw.resamples, draw.seed)
        return np.concatenate([worths.mean(axis=0)[:, None], np.stack(totals) / sizes], axis=1)

    def to_pair(self, golds: Golds, predictions: Sequence[Prediction]) -> ScoredAnswers:
        """Return answers with what they are worth."""
        return self._scored(golds, predictions)

    def outcomes(self, golds: Golds, a: ScoredAnswers, b: ScoredAnswers) -> dict[str, Outcomes]:
        """Count who equals a gold, by question type and for all."""
        groups = {**group_types(golds.examples).groups, "all": golds.examples}
        return {
            name: count_right([(a.is_right(each), b.is_right(each)) for each in group])
            for name, group in groups.items()
        }

    def disagreements(self, golds: Golds, a: ScoredAnswers, b: ScoredAnswers, count: int) -> list[Disagreement]:
        """Return the first questions that exactly one of two models gets right."""
        apart = (each for each in golds.examples if a.is_right(each) != b.is_right(each))
        return [_disagreement(question, a, b) for question, _ in zip(apart, range(count), strict=False)]

    def break_down(self, golds: Golds, models: Mapping[str, ScoredAnswers]) -> Breakdown:
        """Take answers apart by question type, question word, answer and context."""
        return Breakdown(*break_down_spans(golds.examples, models))

    def intervals(self, golds: Golds, predictions: Sequence[Prediction], draw: Draw) -> dict[str, Bounds]:
        """Return the bounds of EM and F1, at the null threshold that the answers were given at."""
        scored = self._scored(golds, predictions)
        is_right = scored.worth("exact", golds.examples)
        bounds = {"exact" if self.has_null else "exact_match": exact_interval(int(is_right.sum()), len(is_right))}
        if len(is_right) >= LEAST_EXAMPLES:
            bounds["f1"] = bounds_of(resample_means(100 * scored.worth("f1", golds.examples), draw))
        return bounds

    def errors(self, golds: Golds, predictions: Sequence[Prediction]) -> list[int]:
        """Return the questions whose answer has no word in common with a gold, the most probable answers first."""
        worths = self._scored(golds, predictions).worth("f1", golds.examples)
        wrong = [place for place, worth in enumerate(worths) if not worth]
        return sorted(wrong, key=lambda place: -(_probability(predictions[place]) or 0.0))

    def mistake(self, golds: Golds, place: int, prediction: Prediction, split: str) -> Mistake:
        """Return a question, the context around its answer, its golds and the predicted answer."""
        question: Question = golds.examples[place]
        texts = tuple(dict.fromkeys(answer.text for answer in question.answers))
        snippet = snippet_of(question.context, *place_to_show(question, (prediction.text,)))
        return Mistake(
            split=split,
            id=question.id,
            texts={"question": shortened(question.text), "context": shortened(snippet)},
            gold=" | ".join(texts) or NOTHING,
            predicted=prediction.text or NOTHING,
            probability=_probability(prediction),
        )

    def _scored(self, golds: Golds, predictions: Sequence[Prediction]) -> ScoredAnswers:
        return score_answers("predictions", golds.examples, {each.question_id: each.text for each in predictions})

    def score_columns(self, info: TaskInfo) -> dict[str, tuple[str, ...]]:
        """Return the scores of a table of members."""
        return COLUMNS

    def check_member(self, folder: Path) -> None:
        """Refuse a folder without logits, such as one of another task."""
        if not (folder / LOGITS).is_file():
            raise FolderError(f"{folder}: no {LOGITS} in it; {WHERE}, and `task` where it is of another task")

    def read_members(self, folders: Sequence[Path], data: str, golds: Golds) -> list[SpanMember]:
        """Read prediction folders with logits."""
        return read_members(folders, data, golds.examples)

    def join(
        self, golds: Golds, members: Sequence[SpanMember], how: How, shares: Weights, config: AnswerConfig
    ) -> Joined:
        """Combine members on one grid token by token; otherwise, and where a member scores pairs, by their spans."""
        texts, has_null = members[0].texts, members[0].has_null
        if all(member.texts is texts and member.logits.shape[1] == 2 for member in members):
            logits = combine_logits(texts.tokens, [member.logits for member in members], how, shares)
            return Joined(decode_spans(texts, logits, config, has_null=has_null), "tokens", texts, logits)
        scored = [ScoredText(member.texts, member.logits) for member in members]
        return Joined(combine_spans(scored, how, config, shares, has_null=has_null), "spans")

    def predictions_of(self, member: SpanMember, config: AnswerConfig) -> list[Prediction]:
        """Answer the questions with one member alone."""
        return member.answers(config)


SQUAD1, SQUAD2 = Spans(has_null=False), Spans(has_null=True)


def _figures(found: Prediction) -> CellsByName:
    """Return what is known of an answer in numbers: probabilities as `ask` gives them, and the null odds."""
    figures = {
        "probability": found.probability,
        "no_answer_probability": found.no_answer_probability,
        "null_odds": found.null_odds,
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def _probability(prediction: Prediction) -> float | None:
    found = (each.probability for each in prediction.candidates if each.text == prediction.text)
    return next(found, None)


def _disagreement(question: Question, a: ScoredAnswers, b: ScoredAnswers) -> Disagreement:
    right, one, other = OUTCOMES[a.is_right(question), b.is_right(question)], a.texts[question.id], b.texts[question.id]
    golds = tuple(dict.fromkeys(answer.text for answer in question.answers))
    snippet = snippet_of(question.context, *place_to_show(question, (one, other)))
    plain = {
        "id": question.id,
        "article": question.title,
        "right": right,
        "question": question.text,
        "golds": golds,
        "a": one,
        "b": other,
        "snippet": snippet,
    }
    article = f" ({question.title})" if question.title else ""
    printed = {"question": question.text, "gold": " | ".join(golds), "A": one, "B": other, "context": snippet}
    return Disagreement(plain, f"{right} right: {question.id}{article}", printed, NOTHING)


def _answerable(split: Split[Question], *, drop: bool) -> Split[Question]:
    """Return a split whose questions all have an answer; others are refused, or left out."""
    kept = tuple(question for question in split.examples if not question.is_impossible)
    if len(kept) == len(split.examples):
        return split
    if not drop:
        odd = next(question.id for question in split.examples if question.is_impossible)
        raise DataError(
            f"{split.name}: question {odd!r} has no answer, which SQuAD 1.1 does not know; use task: squad2, or leave "
            "such questions out with data.on_bad=drop"
        )
    return replace(split, examples=kept, dropped=split.dropped + len(split.examples) - len(kept))
