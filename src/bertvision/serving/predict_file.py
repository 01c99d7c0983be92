"""A trained model on anybody's file or texts: a folder gets the same prediction files as a run, a .csv a table."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bertvision.data.example import ColumnsConfig
from bertvision.data.sources import is_unicode, left_out, parse_source
from bertvision.data.text_format import decode_text, has_header
from bertvision.errors import DataError, SettingsError
from bertvision.evaluate.calibration import Decision
from bertvision.evaluate.golds import AskedFile, read_asked
from bertvision.evaluate.reader_scores import given_answers, reader_answers_of, reader_scores
from bertvision.files import given_folder, write_json_rows, write_text
from bertvision.kinds.facts import CellsByName
from bertvision.kinds.kind import Answering, Golds
from bertvision.metrics.squad import Scores
from bertvision.model_config import Calibration, PredictConfig, read_calibration_file, read_compute, read_settings
from bertvision.predictions.files import PREDICTION_FILES, READER_PREDICTIONS, to_csv
from bertvision.predictions.logits import Logits
from bertvision.progress import SILENT, Progress
from bertvision.serving.predictor import open_served
from bertvision.serving.served import ServedModel
from bertvision.settings import Settings
from bertvision.tables import counted
from bertvision.tasks import TASKS


class FilePredictions(NamedTuple):
    """What came out."""

    predictions: list[Any]  # as the kind of task has them
    scores: Scores | None  # None where the file has no answers to compare with
    summary: str  # in a few words
    lines: list[CellsByName]  # of a table: texts, labels by name, probabilities


class ModelInUse(NamedTuple):
    """A model, and how it is used."""

    served: ServedModel
    config: PredictConfig
    calibration: Calibration

    @property
    def columns(self) -> ColumnsConfig | None:
        """Return which columns its tables have; None where its task has other files."""
        layouts = TASKS[self.served.config.task].layouts
        return self.config.data.columns or layouts[0] if layouts else None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns of its texts; none where they have numbers."""
        return () if self.columns is None else self.columns.text_names


def predict_file(
    model_folder: str | Path,
    data: str,
    out: str | Path | None = None,
    settings: Settings | None = None,
    progress: Progress = SILENT,
    *,
    allow_outside: bool = False,
) -> FilePredictions:
    """Answer a file with the model of a MODEL_DIR, and score the answers where the file has golds.

    `out` is a folder for prediction files, or a .csv for a table; without it nothing is written.
    """
    out, path = None if out is None else Path(out), Path(parse_source(data).whole)
    if out is not None and out.exists() and path.exists() and out.samefile(path):
        raise SettingsError(f"{out}: is the file that is read; give --out another name")
    used = open_model_in_use(model_folder, settings, allow_outside)
    return _answer_to(out, used, _asked_file(used, data, data, progress), progress)


def predict_texts(
    model_folder: Path,
    texts: Sequence[str],
    out: Path | None = None,
    settings: Settings | None = None,
    progress: Progress = SILENT,
    *,
    allow_outside: bool = False,
) -> FilePredictions:
    """Answer texts with a model that says something of one text, or of its words; `out` as for `predict_file`."""
    used = open_model_in_use(model_folder, settings, allow_outside)
    return _answer_to(out, used, _asked_texts(used, texts), progress)


def predict_stream(
    model_folder: Path,
    content: bytes,
    out: Path | None = None,
    settings: Settings | None = None,
    progress: Progress = SILENT,
    *,
    allow_outside: bool = False,
) -> FilePredictions:
    """Answer what came by standard input: a table where it is JSON lines or has a header, else a text on each line."""
    used = open_model_in_use(model_folder, settings, allow_outside)
    text = decode_text(Path("standard input"), content, used.config.data.encoding)
    ending = _ending_of(text, used)
    if ending is None:
        lines = [line.removesuffix("\r") for line in text.split("\n") if line.strip()]
        progress.say(f"standard input: {counted(len(lines), 'text')}, one on each line")
        return _answer_to(out, used, _asked_texts(used, lines), progress)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"standard input{ending}"
        path.write_bytes(content)
        try:
            asked = _asked_file(used, str(path), "standard input", progress)
        except DataError as error:
            raise DataError(str(error).replace(str(path), "standard input")) from None
    return _answer_to(out, used, asked, progress)


def _ending_of(text: str, used: ModelInUse) -> str | None:
    """Return how a file of such a table is called; None where the text has neither JSON nor a header that is known."""
    if used.served.kind.labels_words:  # whose files are no tables
        return None
    if text.lstrip().startswith("{"):
        return ".jsonl"
    return ".csv" if used.names and has_header(text, used.names, used.config.data.delimiter) else None


def _asked_file(used: ModelInUse, source: str, name: str, progress: Progress) -> AskedFile:
    """Read a file's examples, and say how many are left out."""
    config = used.served.config
    asked = read_asked(config.task, source, used.config.data, labels=config.labels, can_drop=True)
    if asked.dropped:
        progress.say(left_out(name, len(asked.questions), asked.dropped, asked.first_bad))
    return asked


def _asked_texts(used: ModelInUse, texts: Sequence[str]) -> AskedFile:
    """Return texts as examples without golds."""
    config = used.served.config
    info = TASKS[config.task]
    if used.columns is None and not info.kind.labels_words:
        what = "; for questions about one text there is `bertvision ask`" if info.kind.asks_questions else ""
        raise SettingsError(f"a model of {config.task} needs --data FILE ({info.files}){what}")
    if used.columns is not None and isinstance(used.columns.text, tuple):
        raise SettingsError(
            f"a model of {config.task} reads two texts; give a table with the columns "
            f"{' and '.join(map(str, used.columns.text))}, by --data FILE or by standard input"
        )
    if not texts:
        raise DataError("there is no text; give one")
    for place, text in enumerate(texts, start=1):
        if not text.strip() or not is_unicode(text):
            raise DataError(f"text {place} is {'not UTF-8' if text.strip() else 'empty'}; write something there")
    examples = [info.kind.example(str(place), text) for place, text in enumerate(texts)]
    return AskedFile(Golds(config.task, info, examples, config.labels), has_golds=False)


def open_model_in_use(model_folder: str | Path, settings: Settings | None, allow_outside: bool) -> ModelInUse:
    """Load a MODEL_DIR or an exported model with changed settings, and with how it was calibrated."""
    compute = read_compute(settings or {})
    served = open_served(model_folder, compute.device, compute.precision, allow_outside=allow_outside)
    calibration = read_calibration_file(served.folder)
    config = read_settings(served.config, settings or {}, calibration)
    changed = served.changed(labels=_labels(served, config.data.labels), answers=config.answers)
    return ModelInUse(changed, config, calibration or Calibration())


def _labels(served: ServedModel, labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return a model's labels, called as `data.labels` says, where a checkpoint has LABEL_0 and LABEL_1."""
    own = served.config.labels
    if labels and len(labels) != len(own):
        raise SettingsError(f"data.labels has {len(labels)} names, and the model {len(own)} labels")
    return labels or own


def _answer_to(out: Path | None, used: ModelInUse, asked: AskedFile, progress: Progress) -> FilePredictions:
    """Answer examples, and write a folder or, where `out` is called so, a table."""
    if out is not None and not is_table(out):
        with given_folder(out, PREDICTION_FILES) as beside:
            return _answer(used, asked, beside, progress)
    found = _answer(used, asked, None, progress)
    if out is not None:
        write_text(out, to_csv(found.lines))
    return found


def is_table(out: Path) -> bool:
    """Return whether a place for predictions is a table's rather than a folder's."""
    return out.suffix.lower() == ".csv" and not out.is_dir()


def _answer(used: ModelInUse, asked: AskedFile, out: Path | None, progress: Progress) -> FilePredictions:
    answering = used.served.answering(asked.golds.examples, progress)
    logits = used.served.logits(answering.windows, progress)
    predictions = answering.answer(logits)
    if out is not None:
        answering.write(out, predictions, logits)
    scores = answering.score(predictions, logits) if asked.can_be_scored(predictions) else None
    reader = _read_by_reader(answering, logits, used.calibration, out, scores is not None)
    kind = used.served.kind
    lines = kind.tabulate(answering.golds, predictions, used.names)
    return FilePredictions(predictions, None if scores is None else scores | reader, kind.summarise(predictions), lines)


def _read_by_reader(
    answering: Answering, logits: Logits, calibration: Calibration, out: Path | None, can_be_scored: bool
) -> Scores:
    """Write the answers of the decoder `reader` too, where `answers.decoders` asks for it, and return its scores."""
    answers = reader_answers_of(answering, logits)
    if answers is None:
        return {}
    decision = Decision(calibration.threshold, calibration.temperature)
    if out is not None:
        write_json_rows(out / READER_PREDICTIONS, given_answers(answers, decision.threshold))
    return reader_scores(answers, decision) if can_be_scored else {}
