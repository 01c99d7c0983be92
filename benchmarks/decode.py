"""Logits in memory -> answers and scores of a whole file, against run_qa's way (transformers 4).

That way is written plainly below: the best starts with the best ends, in loops. It is spared what costs the original
time: windows have no padding, and offsets need no reading from a data set.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from benchmarks.measuring import file_name, measure_in_turns
from bertvision.data.example import Question
from bertvision.data.squad import read_squad
from bertvision.encoder.load import load_tokenizer
from bertvision.errors import DataError
from bertvision.predictions.logits import Logits, TokenGrid, grid_of, text_grid
from bertvision.predictions.prediction import AnswerConfig, Candidate, Prediction
from bertvision.predictions.spans import decode_spans
from bertvision.progress import SILENT, Progress
from bertvision.records import BenchRecord, provenance
from bertvision.scoring.squad import Scores, normalize_answer, score_predictions
from bertvision.settings import Config
from bertvision.training.device import choose_compute
from bertvision.windows.window import WindowConfig, cut_windows

Span = tuple[np.float32, int, int, np.float32, np.float32]  # score, characters from and to, start logit, end logit
NOTHING_FOUND = Candidate("empty", 0.0, 0.0, 0.0)  # its stand-in where no pair of the preselected ones is an answer


class DecodeBench(Config):
    """What is measured."""

    data: str = "sample:dev"  # or a SQuAD file with answers
    encoder: str = "default"  # whose tokenizer cuts the windows
    seed: int = Field(0, ge=0)  # of the made-up logits
    rounds: int = Field(5, ge=1)


def bench_decode(config: DecodeBench, progress: Progress = SILENT) -> BenchRecord:
    """Time decoding and scoring of a whole file, and count the answers that run_qa's way gives differently."""
    compute = choose_compute("cpu", "float32")
    work = _read_work(config, progress)
    sides: dict[str, Callable[[], object]] = {
        "decode and score": lambda: work.score(work.decode()),
        "run_qa's way, and score": lambda: work.score(work.decode_plainly()),
        "decode alone": work.decode,
        "run_qa's way alone": work.decode_plainly,
    }
    measured = measure_in_turns(sides, config.rounds, compute.device, progress)
    names = {"data": Path(config.data).name, "encoder": Path(config.encoder).name}  # the folders are this machine's
    return BenchRecord(
        name="decode",
        variant=f"{names['encoder']}-{file_name(config.data)}",
        about="from logits in memory to answers with runners-up and official scores",
        settings={**config.model_dump(mode="json"), **names},
        sides=measured,
        figures={**work.figures, **count_differences(work)},
        provenance=provenance(compute.name, compute.precision),
    )


class DecodeWork:
    """One model's logits for all questions of a file."""

    def __init__(self, questions: Sequence[Question], grid: TokenGrid, logits: Logits) -> None:
        self.questions, self.config = questions, AnswerConfig()
        self._logits, self._windows = logits, windows_by_question(grid, logits)
        started = time.perf_counter()
        self._texts = text_grid(grid, [question.context for question in questions])
        self.figures = {
            "windows": float(grid.num_windows),
            "questions": float(len(questions)),
            "seconds of joining tokens with texts, once for all models": round(time.perf_counter() - started, 3),
        }

    def decode(self) -> list[Prediction]:
        """Answer all questions this project's way."""
        return decode_spans(self._texts, self._logits, self.config, has_null=True)

    def decode_plainly(self) -> list[Prediction]:
        """Answer all questions run_qa's way."""
        return [self.answer_plainly(place, self.config.n_best) for place in range(len(self.questions))]

    def answer_plainly(self, place: int, preselected: int | None) -> Prediction:
        """Answer one question run_qa's way, with so many starts and ends of every window (None: all of them)."""
        question, windows = self.questions[place], self._windows[place]
        preselected = preselected or max(len(window.starts) for window in windows)
        return answer_plainly(question.id, question.context, windows, self.config, preselected)

    def score(self, predictions: Sequence[Prediction]) -> Scores:
        """Score answers as if they were a process's first: golds that were normalised before are forgotten."""
        normalize_answer.cache_clear()
        return score_predictions(self.questions, predictions)


def count_differences(work: DecodeWork) -> dict[str, float]:
    """Count answers that differ from run_qa's; refuse one that its preselection does not explain."""
    ours, theirs = work.decode(), work.decode_plainly()
    places = [place for place, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one.text != other.text]
    missed = [place for place in places if work.answer_plainly(place, None).text == ours[place].text]
    if others := sorted(set(places) - set(missed)):
        one, other = ours[others[0]], theirs[others[0]]
        raise DataError(
            f"question {one.question_id!r} is answered {one.text!r} here and {other.text!r} by run_qa's way, which its "
            f"preselection does not explain ({len(others)} such questions); please report this with the data"
        )
    return {"answers that differ": float(len(places)), "of these, a better span not preselected": float(len(missed))}


def make_logits(grid: TokenGrid, seed: int) -> Logits:
    """Make up logits as a trained model's: noise, a hill around a span of every context, a peak at every first token.

    Without the hill, few of the highest starts and ends would make a span, and run_qa's way would have less to do.
    """
    random = np.random.default_rng(seed)
    logits = random.normal(-6.0, 2.0, (len(grid.offsets), 2))
    firsts, lengths = grid.window_at[:-1], np.diff(grid.window_at)
    counts = np.add.reduceat(grid.offsets[:, 0] >= 0, firsts, dtype=np.int64)  # tokens of the context
    starts = random.integers(0, counts)
    ends = np.minimum(starts + random.integers(0, 6, len(counts)), counts - 1)
    for column, places in enumerate((starts, ends)):
        away = np.abs(np.arange(len(logits)) - np.repeat(firsts + grid.context_at + places, lengths))
        logits[:, column] += np.repeat(random.normal(10.0, 3.0, len(counts)), lengths) * np.exp(-away / 8)
    logits[firsts] += random.normal(10.0, 3.0, (len(firsts), 2))
    return logits.astype(np.float32)


def _read_work(config: DecodeBench, progress: Progress) -> DecodeWork:
    questions = read_squad(config.data, answers="texts", hub_split="validation").examples
    windows = cut_windows(questions, load_tokenizer(config.encoder), WindowConfig(), labelled=False, progress=progress)
    grid = grid_of(windows, [question.id for question in questions])
    return DecodeWork(questions, grid, make_logits(grid, config.seed))


class PlainWindow(NamedTuple):
    """One window as run_qa sees it."""

    starts: npt.NDArray[np.float32]
    ends: npt.NDArray[np.float32]
    offsets: npt.NDArray[np.int32]  # -1, -1 outside the context


def windows_by_question(grid: TokenGrid, logits: Logits) -> dict[int, list[PlainWindow]]:
    """Sort the windows by the number of their question."""
    windows: dict[int, list[PlainWindow]] = defaultdict(list)
    for window, question in enumerate(grid.question_of.tolist()):
        tokens = slice(grid.window_at[window], grid.window_at[window + 1])
        windows[question].append(PlainWindow(logits[tokens, 0], logits[tokens, 1], grid.offsets[tokens]))
    return windows


def answer_plainly(
    question_id: str, context: str, windows: Sequence[PlainWindow], config: AnswerConfig, preselected: int
) -> Prediction:
    """Answer one question by all pairs of every window's highest starts and highest ends."""
    found: list[Span] = []
    nulls: list[Span] = []
    for window in windows:
        start, end = window.starts[0], window.ends[0]
        nulls.append((start + end, 0, 0, start, end))
        found += _pairs(window, config.max_answer_length, preselected)
    null = min(nulls)
    ranked = sorted([*found, null], key=lambda span: span[0], reverse=True)[: config.n_best]
    if null not in ranked:
        ranked.append(null)
    candidates = _candidates(ranked, context)
    best = next(candidate for candidate in candidates if candidate.text)
    odds = float(null[0] - best.start_logit - best.end_logit)
    text = "" if odds > config.null_threshold else best.text
    return Prediction(question_id, text, best.text, odds, candidates)


def _pairs(window: PlainWindow, longest: int, preselected: int) -> list[Span]:
    starts, ends, offsets = window.starts, window.ends, window.offsets.tolist()
    best_starts = np.argsort(starts)[: -preselected - 1 : -1].tolist()
    best_ends = np.argsort(ends)[: -preselected - 1 : -1].tolist()
    pairs = []
    for start in best_starts:
        for end in best_ends:
            if offsets[start][0] < 0 or offsets[end][0] < 0:
                continue
            if end < start or end - start + 1 > longest:
                continue
            score = starts[start] + ends[end]
            pairs.append((score, offsets[start][0], offsets[end][1], starts[start], ends[end]))
    return pairs


def _candidates(ranked: Sequence[Span], context: str) -> tuple[Candidate, ...]:
    scores = np.array([span[0] for span in ranked])
    weights = np.exp(scores - scores.max())
    probabilities = weights / weights.sum()
    candidates = [
        Candidate(context[first:stop], float(start), float(end), float(probability))
        for (_, first, stop, start, end), probability in zip(ranked, probabilities, strict=True)
    ]
    return tuple(candidates if len(candidates) > 1 else [NOTHING_FOUND, *candidates])
