"""A reader in torch, ONNX and int8 side by side, and what its head adds to the bare encoder; on a GPU torch alone."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import Field

from benchmarks.measuring import file_name, measure_in_turns
from bertvision.data.example import Question
from bertvision.encoder.encode import encode
from bertvision.errors import SettingsError
from bertvision.evaluate.score import read_questions
from bertvision.heads.build import build_head
from bertvision.heads.config import HeadConfig
from bertvision.kinds.kind import Answering
from bertvision.model_folder import Model, find_model
from bertvision.predictions.logits import Logits
from bertvision.progress import SILENT, Progress
from bertvision.records import BenchRecord, provenance
from bertvision.serving.model import ServedModel
from bertvision.serving.onnx_export import export_onnx, write_graph
from bertvision.serving.onnx_model import OnnxEngine, open_onnx, open_session
from bertvision.serving.reader import Reader
from bertvision.serving.torch_model import open_model, torch_engine
from bertvision.settings import DEFAULT, Config
from bertvision.training.device import Compute, choose_compute
from bertvision.windows.batches import collate
from bertvision.windows.plan import CPU_TOKENS, lengths_of, plan_in_order_of_length
from bertvision.windows.window import Window

TORCH, BF16, ONNX, INT8 = "torch", "torch bf16", "onnx", "onnx int8"
BARE, SINGLE, ASKED = ", bare encoder", ", one by one", ", questions in one call"
CARD_SINGLE, CARD_BATCHED = "as cards show, one by one", "as cards show, batched"
CARD_BATCH = 16  # questions, in the order in which they are given, padded to the longest of them
Item = TypeVar("Item")


class InferenceBench(Config):
    """What is measured."""

    model: str = DEFAULT  # or a MODEL_DIR of a reader
    data: str = "sample:dev"  # or a SQuAD file; where it has answers, every side is scored
    questions: int = Field(1000, ge=1)  # spread over the file, answered once by every side
    # Many short rounds: on a machine with neighbours, two sides that run a second apart are the ones to compare.
    windows: int = Field(48, ge=1)  # of these questions, run in every round
    singles: int = Field(4, ge=1)  # questions that are asked one by one in every round
    asked: int = Field(32, ge=1)  # questions that are asked in one call, beside the way that cards show
    rounds: int = Field(25, ge=1)
    device: str = "cpu"  # on a GPU torch alone is measured, in its number format
    bf16: bool = False  # on a CPU torch in bf16 too, which is fast where the CPU has instructions for it


def bench_inference(config: InferenceBench, progress: Progress = SILENT) -> BenchRecord:
    """Time windows to logits in batches and questions to answers one by one, and score every side's answers."""
    compute = choose_compute(config.device, "float32" if config.device == "cpu" else "auto")
    place = find_model(Path(config.model))
    asked = read_questions(config.data)
    questions = _spread(asked.questions, config.questions)
    with tempfile.TemporaryDirectory() as folder:
        work = _open(place, Path(folder), compute, config.bf16)
        answering = work.torch.answering(questions)
        windows, singles = _spread(answering.windows, config.windows), _spread(questions, config.singles)
        sides = work.sides(windows, singles) | work.sides_of_questions(_spread(questions, config.asked))
        measured = measure_in_turns(sides, config.rounds, compute.device, progress)
        logits = {name: served.logits(answering.windows) for name, served in work.by_name.items()}
    is_scored = asked.has_golds and (work.torch.config.task != "squad1" or all(each.answers for each in questions))
    record = BenchRecord(
        name="inference",
        variant=f"{place.name}-{file_name(config.data)}",
        about="a batch of windows to logits, and questions to answers one by one",
        settings={
            **config.model_dump(mode="json"),
            "model": place.name,  # the folders are this machine's
            "data": Path(config.data).name,
            **({} if work.onnx is None else {"onnxruntime": metadata.version("onnxruntime")}),
        },
        sides=measured,
        figures={},
        provenance=provenance(compute.name, compute.precision),
    )
    counts = {"questions": float(len(questions)), "windows a round": float(len(windows))}
    figures = counts | _speeds(record, len(windows), len(singles)) | _answers(answering, logits, is_scored)
    return record.model_copy(update={"figures": figures})


@dataclass(frozen=True)
class InferenceWork:
    """One model in all its forms, and its encoder with the least that gives logits: the last state, read out."""

    torch: ServedModel
    bf16: ServedModel | None  # None where it is not asked for
    bare: Model
    onnx: "OnnxForms | None"  # None on a GPU

    @property
    def by_name(self) -> dict[str, ServedModel]:
        """Return the forms of the whole model."""
        forms: dict[str, ServedModel | None] = {TORCH: self.torch, BF16: self.bf16}
        if self.onnx is not None:
            forms |= {ONNX: self.onnx.plain, INT8: self.onnx.int8}
        return {name: form for name, form in forms.items() if form is not None}

    def sides(self, windows: Sequence[Window], singles: Sequence[Question]) -> dict[str, Callable[[], object]]:
        """Return what is timed."""
        pairs = _pairs(singles)
        bare: dict[str, Callable[[], object]] = {TORCH: lambda: self.run_bare(windows)}
        if self.onnx is not None:
            bare[ONNX] = partial(self.onnx.bare.logits, windows)
        batches: dict[str, Callable[[], object]] = {}
        for name, served in self.by_name.items():
            batches[name] = partial(served.logits, windows)
            if name in bare:
                batches[name + BARE] = bare[name]
        readers = {f"{name}{SINGLE}": Reader(served) for name, served in self.by_name.items()}
        return batches | {name: _one_by_one(reader, pairs) for name, reader in readers.items()}

    def sides_of_questions(self, questions: Sequence[Question]) -> dict[str, Callable[[], object]]:
        """Return what is timed from text to answer: all questions in one call, and the way that cards show."""
        pairs = _pairs(questions)
        served = {name: each for name, each in self.by_name.items() if name in (TORCH, ONNX)}
        ours: dict[str, Callable[[], object]] = {
            f"{name}{ASKED}": partial(Reader(each).answer_pairs, pairs) for name, each in served.items()
        }
        return ours | {
            CARD_SINGLE: lambda: [self.answer_as_cards_show([pair]) for pair in pairs],
            CARD_BATCHED: lambda: [
                self.answer_as_cards_show(pairs[first : first + CARD_BATCH])
                for first in range(0, len(pairs), CARD_BATCH)
            ],
        }

    def answer_as_cards_show(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Answer as cards of AutoModelForQuestionAnswering do: what is too long is cut off, the best start and end."""
        tokenizer = self.bare.encoder.tokenizer
        questions, contexts = map(list, zip(*pairs, strict=True))
        options = {"truncation": "only_second", "max_length": self.torch.config.windows.max_length, "padding": True}
        given = tokenizer(questions, contexts, return_tensors="pt", **options).to(
            torch_engine(self.torch).compute.device
        )
        with torch.no_grad():
            state = self.bare.encoder.model(**given).last_hidden_state
            unused = torch.zeros_like(given["input_ids"])  # segments, which a linear layer does not look at
            logits = self.bare.head(state[:, None].float(), given["attention_mask"].bool(), unused)
        starts, ends = logits.argmax(dim=1).T.tolist()
        rows = zip(given["input_ids"], starts, ends, strict=True)
        return [str(tokenizer.decode(ids[start : end + 1])) for ids, start, end in rows]

    def run_bare(self, windows: Sequence[Window]) -> None:
        """Run the encoder as it is served, but keep its last state alone."""
        encoder, pad_id = self.bare.encoder, self.bare.encoder.tokenizer.pad_token_id
        device, tokens = torch_engine(self.torch).compute.device, self.torch.config.answers.batch_tokens
        for rows in plan_in_order_of_length(
            lengths_of(windows), tokens if device.type != "cpu" else min(tokens, CPU_TOKENS)
        ):
            batch = collate(windows, rows, pad_id).to(device)
            with torch.no_grad():
                state = encode(encoder, batch, last_only=True).float()
                self.bare.head(state, batch.mask, batch.segments)[batch.mask].cpu().numpy()


class OnnxForms(NamedTuple):
    """The whole model, also in int8 where that is possible, and its encoder with a linear layer."""

    plain: ServedModel
    int8: ServedModel | None
    bare: ServedModel


def _open(place: Path, folder: Path, compute: Compute, bf16: bool) -> InferenceWork:
    """Open a model; for a CPU export it into a folder twice, and its bare encoder."""
    served = open_model(place, compute)
    if not served.kind.in_context:
        raise SettingsError(f"{place}: is a model of {served.config.task}; give one that answers questions")
    model, linear = torch_engine(served).model, HeadConfig.model_validate("last_linear")
    head = build_head(linear, model.encoder.shape).train(False).to(compute.device)
    bare = Model(model.config.model_copy(update={"head": linear}), model.encoder, head)
    if compute.device.type != "cpu":
        return InferenceWork(served, None, bare, None)
    in_bf16 = open_model(place, choose_compute("cpu", "bf16")) if bf16 else None
    return InferenceWork(served, in_bf16, bare, _export(place, bare, folder))


def _export(place: Path, bare: Model, folder: Path) -> OnnxForms:
    export_onnx(place, folder / "onnx")
    with suppress(SettingsError):  # of models that int8 would change too much
        export_onnx(place, folder / "int8", int8=True)
    write_graph(bare, folder / "bare.onnx")
    onnx = open_onnx(folder / "onnx")
    int8 = open_onnx(folder / "int8") if (folder / "int8").exists() else None
    assert isinstance(onnx.engine, OnnxEngine)
    bare_engine = replace(onnx.engine, session=open_session(folder / "bare.onnx"))
    return OnnxForms(onnx, int8, replace(onnx, engine=bare_engine))


def _pairs(questions: Sequence[Question]) -> list[tuple[str, str]]:
    return [(question.text, question.context) for question in questions]


def _one_by_one(reader: Reader, pairs: Sequence[tuple[str, str]]) -> Callable[[], object]:
    return lambda: [reader.answer_pairs([pair]) for pair in pairs]


def _speeds(record: BenchRecord, windows: int, singles: int) -> dict[str, float]:
    """Return windows a second, milliseconds a question, and what the head adds to the bare encoder in per cent."""
    seconds = {side.name: median(side.seconds) for side in record.sides}
    names = [name for name in (TORCH, BF16, ONNX, INT8) if name in seconds]
    found = {f"{name}: windows a second": windows / seconds[name] for name in names}
    found |= {f"{name}: milliseconds a question{SINGLE}": 1000 * seconds[name + SINGLE] / singles for name in names}
    for name in (name for name in names if name + BARE in seconds):
        for what, ratio in zip(("", ", lowest", ", highest"), record.ratio(name, name + BARE), strict=True):
            found[f"{name}: head over bare encoder, per cent{what}"] = 100 * (ratio - 1)
    for way in (CARD_SINGLE, CARD_BATCHED):
        found[f"torch: questions in one call, times as fast as when called {way}"] = record.ratio(
            way, TORCH + ASKED
        ).middle
    if ONNX in seconds:
        found["onnx: times as fast as torch"] = record.ratio(TORCH, ONNX).middle
        found["onnx: questions in one call, times as fast as torch"] = record.ratio(TORCH + ASKED, ONNX + ASKED).middle
    return {name: round(value, 3) for name, value in found.items()}


def _answers(answering: Answering, logits: Mapping[str, Logits], is_scored: bool) -> dict[str, float]:
    """Count answers that differ from torch's, and score all where the file has golds."""
    answers = {name: answering.answer(of_side) for name, of_side in logits.items()}
    found = {}
    for name in (name for name in logits if name != TORCH):
        pairs = zip(answers[name], answers[TORCH], strict=True)
        found[f"{name}: answers that differ from torch's"] = float(sum(one.text != other.text for one, other in pairs))
    for name, of_side in answers.items() if is_scored else ():
        scores = answering.score(of_side, logits[name])
        found |= {f"{name}: {score}": round(scores[score], 3) for score in ("f1", "exact")}
    return found


def _spread(items: Sequence[Item], count: int) -> list[Item]:
    """Choose so many items that lie evenly spread, because files are sorted by article."""
    places = np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int)
    return [items[place] for place in places.tolist()]
