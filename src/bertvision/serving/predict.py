"""A trained model on anybody's file or texts: a folder gets prediction files, a .csv a table.

Questions are answered by the rule of `load`, `ask` and `serve`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertvision.data.example import ColumnsConfig
from bertvision.data.shards import ShardFormat, ShardRow, read_shard
from bertvision.data.sources import BadExampleError, Found, collect, is_unicode, left_out, parse_source
from bertvision.data.tables import ending_of
from bertvision.data.text_format import decode_text
from bertvision.errors import DataError, SettingsError
from bertvision.evaluate.calibrate import reader_answers, reader_scores
from bertvision.evaluate.score import AskedFile, read_asked
from bertvision.files import exists, given_folder, make_folder, write_text
from bertvision.kinds.kind import Answering, CellsByName, Golds
from bertvision.manifest import write_manifest
from bertvision.model_config import PredictConfig, read_calibration_file, read_compute, read_settings
from bertvision.predictions.files import OFFICIAL, PREDICTION_FILES, to_csv
from bertvision.predictions.logits import Logits
from bertvision.predictions.prediction import DecisionRule
from bertvision.progress import SILENT, Progress
from bertvision.scoring.calibration import Decision
from bertvision.scoring.squad import Scores
from bertvision.serving.load import open_served
from bertvision.serving.model import ServedModel
from bertvision.settings import Settings
from bertvision.tables import counted
from bertvision.tasks import TASKS
from bertvision.windows.cut import describe_left_out

ROWS = (".csv", ".jsonl", ".ndjson", ".parquet")  # tables, whatever a task's own files are


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
    rule: DecisionRule  # of answers to questions

    @property
    def columns(self) -> ColumnsConfig | None:
        """Return which columns its tables have; None where its task has other files."""
        layouts = TASKS[self.served.config.task].layouts
        return self.config.data.columns or layouts[0] if layouts else None

    @property
    def layouts(self) -> tuple[ColumnsConfig, ...]:
        """Return how its tables may be laid out; none where its task has other files."""
        own = self.config.data.columns
        return TASKS[self.served.config.task].layouts if own is None else (own,)

    @property
    def needs(self) -> str:
        """Say which columns a row of a table needs."""
        names = " and ".join(f"`{name}`" for name in (self.layouts[0].text_names if self.layouts else ()))
        return self.served.kind.row_columns or (f"a column {names}" if names else "the columns of training")

    @property
    def row_format(self) -> ShardFormat:
        """Return how tables of rows are written."""
        data, names = self.config.data, self.layouts[0].text_names if self.layouts else ()
        has_names = bool(names) or not self.layouts
        return ShardFormat(data.form, has_names if data.header is None else data.header, names)

    def example_of(self, row: ShardRow) -> Any:  # noqa: ANN401 (of its kind)
        """Return what is asked of a row of a table; `BadExampleError` where it is none."""
        if row.problem:
            raise BadExampleError(row.problem)
        config = self.served.config
        return self.served.kind.from_row(_identity(row, self.layouts), row, self.layouts, config.labels)

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
        raise SettingsError(f"{out}: is the file that is read; give `out` another name")
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
    """Answer what came by standard input: a text on each line that is not blank."""
    used = open_model_in_use(model_folder, settings, allow_outside)
    text = decode_text(Path("standard input"), content, used.config.data.encoding)
    lines = [line.removesuffix("\r") for line in text.split("\n") if line.strip()]
    progress.say(f"standard input: {counted(len(lines), 'text')}, one on each line")
    return _answer_to(out, used, _asked_texts(used, lines), progress)


def _asked_file(used: ModelInUse, source: str, name: str, progress: Progress) -> AskedFile:
    """Read a file's examples, and say how many are left out."""
    config, kind = used.served.config, used.served.kind
    has_own_files = kind.asks_questions or kind.labels_words  # of which a table of rows is none
    if has_own_files and ending_of(source) in ROWS and exists(source):
        asked = _asked_rows(used, Path(source))
    else:
        asked = read_asked(config.task, source, used.config.data, labels=config.labels, can_drop=True)
    if asked.dropped:
        progress.say(left_out(name, len(asked.questions), asked.dropped, asked.first_bad))
    return asked


def _asked_rows(used: ModelInUse, path: Path) -> AskedFile:
    """Read the rows of a table, as of a shard."""
    config, found = used.served.config, list[Found[Any]]()
    for row in read_shard(path, used.row_format, lambda _: None):
        where = f"{path}: line {row.line}"
        try:
            found.append(Found(where, used.example_of(row)))
        except BadExampleError as problem:
            found.append(Found(where, None, f"{problem}; a row needs {used.needs}"))
    split = collect(found, str(path), used.config.data.on_bad, None)
    golds = Golds(config.task, TASKS[config.task], split.examples, config.labels)
    return AskedFile(golds, has_golds=False, dropped=split.dropped, first_bad=split.first_bad)


def _identity(row: ShardRow, layouts: Sequence[ColumnsConfig]) -> str:
    """Return a row's own id, else its line."""
    columns = [each.id for each in layouts if each.id is not None]
    given = next((row.cells[name] for name in (*columns, "id") if row.cells.get(name) is not None), row.line)
    if not isinstance(given, str | int) or not is_unicode(str(given)):
        raise BadExampleError(f"its id has type {type(given).__name__}, or is no UTF-8; give a text or a number")
    return str(given)


def _asked_texts(used: ModelInUse, texts: Sequence[str]) -> AskedFile:
    """Return texts as examples without golds."""
    config = used.served.config
    info = TASKS[config.task]
    if used.columns is None and not info.kind.labels_words:
        what = "; for questions about one text there is `bertvision ask`" if info.kind.asks_questions else ""
        raise SettingsError(f"a model of {config.task} needs a file as `data` ({info.files}){what}")
    if used.columns is not None and isinstance(used.columns.text, tuple):
        raise SettingsError(
            f"a model of {config.task} reads two texts; give a table with the columns "
            f"{' and '.join(map(str, used.columns.text))}, as `data`"
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
    config = read_settings(served.config, settings or {}, read_calibration_file(served.folder))
    changed = served.changed(labels=_labels(served, config.data.labels), answers=config.answers)
    is_asked = "null_threshold" in (settings or {}).get("answers", {})
    return ModelInUse(changed, config, served.rule(config.answers.null_threshold if is_asked else None))


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
            found = _answer(used, asked, beside, progress)
            write_manifest(beside)
            return found
    found = _answer(used, asked, None, progress)
    if out is not None:
        write_text(out, to_csv(found.lines))
    return found


def is_table(out: Path) -> bool:
    """Return whether a place for predictions is a table's rather than a folder's."""
    return out.suffix.lower() == ".csv" and not out.is_dir()


def _answer(used: ModelInUse, asked: AskedFile, out: Path | None, progress: Progress) -> FilePredictions:
    answering = used.served.answering(asked.golds.examples, progress)
    if (told := describe_left_out(answering.windows)) is not None:
        progress.say(f"warning: {told}; cut long texts into parts, or train with a larger windows.max_length")
    logits = used.served.logits(answering.windows, progress)
    kind, predictions = used.served.kind, answering.answer(logits, used.rule)
    official = answering.answer(logits) if kind.in_context else predictions
    if out is not None:
        answering.write(out, predictions, logits)
        if kind.in_context:
            make_folder(out / OFFICIAL)
            kind.write(out / OFFICIAL, answering.golds, official)
    scores = None
    if asked.can_be_scored(predictions):
        scores = answering.score(official, logits) | _reader_scores(used, answering, logits)
    lines = kind.tabulate(answering.golds, predictions, used.names)
    return FilePredictions(predictions, scores, kind.summarise(predictions), lines)


def _reader_scores(used: ModelInUse, answering: Answering, logits: Logits) -> Scores:
    """Score the answers that are given, as records have them beside the official decoder's; of questions alone."""
    kind, examples = answering.info.kind, answering.split.examples
    if not kind.in_context:
        return {}
    answers = reader_answers(examples, answering.layout, logits, answering.config, has_null=kind.has_null)
    return reader_scores(answers, Decision(used.rule.null_threshold, used.rule.temperature))
