"""Compares the decoders of one model: python tools/decoders.py HELD_OUT HELD_OUT_GOLD ANSWERS GOLD OUT.json.

HELD_OUT and ANSWERS are folders of `bertvision predict`, whose logits are decoded. Threshold and temperature of each
decoder are fitted on the held-out questions. Writes OUT.json, and the same as a table to OUT.md.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from arguments import read_arguments

from bertvision.evaluate.calibrate import reader_answers
from bertvision.evaluate.score import read_questions
from bertvision.files import write_json, write_text
from bertvision.predictions.logits import load_logits, text_grid
from bertvision.predictions.prediction import AnswerConfig
from bertvision.predictions.spans import decode_spans
from bertvision.report.renderers import to_markdown
from bertvision.scoring.calibration import (
    Decision,
    answers_of,
    calibration_error,
    fit_decision,
    judge,
    reliability_bins,
    scores_at,
)
from bertvision.scoring.confidence import Answers
from bertvision.scoring.squad import Scores
from bertvision.tables import Table

SCORES = ("exact", "f1", "HasAns_f1", "NoAns_f1", "best_f1")
MEASURES = {
    **{"best_f1": "best F1", "f1": "F1", "exact": "EM", "ece": "ECE", "brier": "Brier"},
    **{"null_ece": "ECE of “no answer”", "null_brier": "Brier of “no answer”"},
    **{"threshold": "null threshold", "temperature": "temperature"},
}


class Decoded(NamedTuple):
    """One split, decoded in both ways."""

    official: Answers
    reader: Answers


def main(held_out: Path, held_out_gold: str, answers: Path, gold: str, out: Path) -> None:
    """Fit on the one split, judge on the other, write both files."""
    fitted_on, judged = _decode(held_out, held_out_gold), _decode(answers, gold)
    before, after = fit_decision(fitted_on.official), fit_decision(fitted_on.reader)
    found = {
        "official": _scores(judged.official, before),
        "reader, as the official decoder was calibrated": _scores(judged.reader, before),
        "reader": _scores(judged.reader, after),
    }
    sizes = {"questions": len(judged.official.questions), "held_out": len(fitted_on.official.questions)}
    write_json(out, {**sizes, "decoders": found})
    rows = tuple((name, *(_cell(measure, each[measure]) for measure in MEASURES)) for name, each in found.items())
    table = Table("", ("decoder", *MEASURES.values()), rows)
    said = f"{sizes['questions']:,} questions; fitted on {sizes['held_out']:,} others.\n\n"
    write_text(out.with_suffix(".md"), said + to_markdown(table))


def _decode(folder: Path, gold: str) -> Decoded:
    questions, config = read_questions(gold).questions, AnswerConfig()
    grid, logits = load_logits(folder / "logits.safetensors")
    assert grid.question_ids == tuple(each.id for each in questions), f"{folder}: has other questions than {gold}"
    texts = text_grid(grid, [each.context for each in questions])
    official = answers_of(questions, decode_spans(texts, logits, config, has_null=True))
    return Decoded(official, reader_answers(questions, texts, logits, config, has_null=True))


def _scores(answers: Answers, decision: Decision) -> Scores:
    official, judged = scores_at(answers, decision.threshold), judge([answers], [decision])
    null = answers.shares(answers.is_null, *decision)
    return {
        **decision._asdict(),
        **{name: official[name] for name in SCORES},
        "ece": judged.error,
        "brier": judged.brier,
        "null_ece": calibration_error(reliability_bins(null, answers.is_impossible)),
        "null_brier": float(np.square(null - answers.is_impossible).mean()),
    }


def _cell(measure: str, value: float) -> str:
    return f"{value:.3f}" if measure.endswith(("ece", "brier")) else f"{value:.2f}"


if __name__ == "__main__":
    held_out, held_out_gold, answers, gold, out = read_arguments(
        __doc__, "HELD_OUT", "HELD_OUT_GOLD", "ANSWERS", "GOLD", "OUT"
    )
    main(Path(held_out), held_out_gold, Path(answers), gold, Path(out))
