"""A trained model on any number of documents: shards of tables in, a shard of predictions for each out.

Memory does not grow with the shards: they are read, answered and written in chunks of rows. On a Ray cluster, Ray Data
hands them to actors, each of which holds the model.
"""

import glob
import hashlib
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from bertvision.data.shards import ShardFormat, ShardRow, read_shard
from bertvision.data.sources import BadExampleError
from bertvision.data.tables import ENDINGS, ending_of
from bertvision.errors import BertVisionError, DataError, LockedError, MissingExtraError
from bertvision.files import check_folder, exists, locked, make_folder, remove_file, sha256_of, whole_stream, write_json
from bertvision.progress import SILENT, Bar, Progress, SilentBar
from bertvision.run_folder import SETTINGS_FINGERPRINT, is_made, write_settings
from bertvision.serving.predict import ModelInUse, open_model_in_use
from bertvision.settings import Config, Settings
from bertvision.tables import counted
from bertvision.tasks import TASKS
from bertvision.windows.plan import lengths_of

FINISHED = "finished"  # a file for each finished shard, written last


class Chunk(NamedTuple):
    """How much of a shard is in memory at once: so many rows, or fewer where they are long."""

    rows: int
    letters: int


# On a GPU enough for dozens of its batches; on a CPU, whose batches are small, little beside an encoder.
CHUNKS = {"cpu": Chunk(256, 400_000), "cuda": Chunk(4096, 4_000_000)}


class ShardCounts(Config):
    """What came of one shard."""

    source: str
    source_bytes: int
    rows: int = 0  # with a prediction
    bad: int = 0  # set aside
    cut: int = 0  # with a prediction, and longer than the model reads: they lost their end
    tokens: int = 0
    seconds: float = 0.0
    sha256: dict[str, str] = {}  # of the source, of what was written, and of these counts themselves


@dataclass(frozen=True)
class ShardedPredictions:
    """What came of all shards."""

    out: Path
    shards: list[ShardCounts]
    busy: int = 0  # that another process is working on

    @property
    def rows(self) -> int:
        """Count the rows with a prediction."""
        return sum(each.rows for each in self.shards)

    @property
    def bad(self) -> int:
        """Count the rows that were set aside."""
        return sum(each.bad for each in self.shards)

    @property
    def cut(self) -> int:
        """Count the rows that were longer than the model reads, and lost their end."""
        return sum(each.cut for each in self.shards)


@dataclass(frozen=True)
class Shard:
    """A file of rows, and where its predictions go."""

    source: Path
    target: Path
    bad: Path
    finished: Path

    def counts(self) -> ShardCounts | None:
        """Return what came of it; None where it is not done, or any file of it is another by now."""
        try:
            counts = ShardCounts.model_validate_json(self.finished.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
        return counts if counts.sha256 == self.hashes(counts) else None

    def hashes(self, counts: ShardCounts) -> dict[str, str]:
        """Hash the source, what was written, and the counts."""
        paths = {"source": self.source, "target": self.target, "bad": self.bad}
        content = counts.model_dump_json(exclude={"seconds", "sha256"}).encode()
        found = {name: sha256_of(path) for name, path in paths.items() if path.exists()}
        return {**found, "counts": hashlib.sha256(content).hexdigest()}


def are_shards(sources: Sequence[str]) -> bool:
    """Return whether data are shards rather than one file: several, a folder, or a pattern such as `*.jsonl.gz`."""
    return len(sources) > 1 or any(Path(each).is_dir() or _is_pattern(each) for each in sources)


def predict_shards(
    model_folder: Path,
    sources: Sequence[str],
    out: Path,
    settings: Settings | None = None,
    progress: Progress = SILENT,
    *,
    allow_outside: bool = False,
) -> ShardedPredictions:
    """Answer every shard that `out` does not hold yet; several processes may do this at once.

    A shard that cannot be read to its end is left out, and an error names it when all others are done.
    """
    shards, predictor = open_shards(model_folder, sources, out, settings, allow_outside=allow_outside)
    problems = list[str]()
    with progress.bar("predict", sum(shard.source.stat().st_size for shard in shards)) as bar:
        for place, shard in enumerate(shards, start=1):
            try:
                predictor.predict(shard, bar, f"shard {place} of {len(shards)}")
            except LockedError:
                continue
            except DataError as error:
                problems.append(str(error))
    return counts_or_error(sources, out, problems, predictor.needs)


def open_shards(
    model_folder: Path, sources: Sequence[str], out: Path, settings: Settings | None, *, allow_outside: bool
) -> "tuple[list[Shard], ShardPredictor]":
    """Find the shards and open the model for them; `out` is from then on of this model."""
    shards = find_shards(sources, check_folder(out))
    predictor = ShardPredictor(open_model_in_use(model_folder, settings, allow_outside))
    predictor.open(out)
    return shards, predictor


def counts_or_error(sources: Sequence[str], out: Path, problems: Sequence[str], needs: str) -> ShardedPredictions:
    """Count what has come of all shards, or name the first that could not be read to its end.

    Where every row is bad, the error says what a row needs.
    """
    found = read_counts(sources, out)
    if problems:
        total = len(found.shards) + found.busy
        others = f"; {len(problems)} of {total} shards cannot be read to their end" if len(problems) > 1 else ""
        raise DataError(f"{problems[0]}{others}; all others are done, and the same command does what is missing")
    if found.bad and not found.rows and not found.busy:
        raise DataError(
            f"{', '.join(sources)}: {counted(found.bad, 'row')} and none that can be used: {needs}; each row's own "
            f"problem stands in {out}, in the files that end in .bad.jsonl"
        )
    return found


def read_counts(sources: Sequence[str], out: Path) -> ShardedPredictions:
    """Count what has come of shards so far."""
    shards = find_shards(sources, out)
    found = [counts for shard in shards if (counts := shard.counts()) is not None]
    return ShardedPredictions(out, found, len(shards) - len(found))


def find_shards(sources: Sequence[str], out: Path) -> list[Shard]:
    """List the files that are meant, and where their predictions go: below `out` as they lie below their folder."""
    found = {path for source in sources for path in _paths_of(source)}
    paths = sorted(path for path in found if not path.is_relative_to(out.resolve()))  # what is there was written here
    if not paths:
        raise DataError(f"{', '.join(sources)}: no such files; give a folder, files or a pattern, all in quotes")
    root = Path(os.path.commonpath([path.parent for path in paths]))
    shards = [_shard(path, path.relative_to(root), out) for path in paths]
    counts = Counter(shard.target for shard in shards)
    if twins := [shard for shard in shards if counts[shard.target] > 1]:
        names = " and ".join(str(each.source) for each in twins[:2])
        raise DataError(f"{names} would both have their predictions in {twins[0].target}; rename one")
    return shards


class ShardPredictor:
    """A model that answers shards."""

    def __init__(self, used: ModelInUse) -> None:
        self._used, self._config = used, used.served.config
        self._info = TASKS[self._config.task]
        self._chunk = CHUNKS["cuda" if used.served.engine.is_on_gpu else "cpu"]

    @property
    def settings_fingerprint(self) -> Settings:
        """Return what decides the predictions."""
        used = self._used
        return {
            "stage": "predict",
            "encoder": self._config.encoder_fingerprint,
            **used.served.engine.settings_fingerprint,
            "labels": list(self._config.labels),
            "answers": used.config.answers.model_dump(mode="json", exclude={"batch_tokens", "decoders"}),
            "rule": used.rule._asdict(),
            "data": used.config.data.model_dump(mode="json"),
        }

    @property
    def needs(self) -> str:
        """Say what the model needs of a row."""
        return f"a model of {self._config.task} needs {self._used.needs}"

    @property
    def num_gpus(self) -> int:
        """Return how many GPUs it runs on."""
        return int(self._used.served.engine.is_on_gpu)

    def open(self, out: Path) -> None:
        """Make a folder for its predictions; refuse one that holds those of another model, or of other settings."""
        make_folder(out)
        settings_fingerprint = self.settings_fingerprint
        while not is_made(out, settings_fingerprint):
            with (
                suppress(LockedError),
                locked(out, SETTINGS_FINGERPRINT),
            ):  # processes that begin together come here together
                if not is_made(out, settings_fingerprint):
                    write_settings(out, settings_fingerprint)

    def predict(self, shard: Shard, bar: Bar, what: str = "") -> ShardCounts:
        """Answer a shard, unless it is done; `LockedError` where another process is at it."""
        if (done := shard.counts()) is not None:
            bar.advance(done.source_bytes)
            return done
        make_folder(shard.target.parent)
        with locked(shard.target.parent, shard.target.name):
            return shard.counts() or self._predict(shard, bar, what)

    def _predict(self, shard: Shard, bar: Bar, what: str) -> ShardCounts:
        started = time.perf_counter()
        counts = ShardCounts(source=str(shard.source), source_bytes=shard.source.stat().st_size)
        with whole_stream(shard.target) as good, whole_stream(shard.bad) as bad:  # the bad ones get their name first
            for rows in _chunks(shard.source, self._used.row_format, self._chunk, bar, what):
                counts = self._answer(rows, good, bad, counts)
        if not counts.bad:
            remove_file(shard.bad)
        counts = counts.model_copy(update={"seconds": round(time.perf_counter() - started, 3)})
        counts = counts.model_copy(update={"sha256": shard.hashes(counts)})
        write_json(shard.finished, counts.model_dump(mode="json"))
        return counts

    def _answer(
        self, rows: Sequence[ShardRow], good: BufferedIOBase, bad: BufferedIOBase, before: ShardCounts
    ) -> ShardCounts:
        """Write a prediction of every row, or what is wrong with it."""
        examples, lines = list[Any](), list[int]()
        for row in rows:
            try:
                examples.append(self._used.example_of(row))
                lines.append(row.line)
            except BadExampleError as problem:
                aside = {"line": row.line, "reason": str(problem), "row": row.raw or dict(row.cells)}
                bad.write(json.dumps(aside, default=str).encode() + b"\n")
        tokens, cut = 0, 0
        if examples:
            asked = self._used.served.answering(examples, part="shard")
            predictions = asked.answer(self._used.served.logits(asked.windows), self._used.rule)
            tokens = int(lengths_of(asked.windows).sum())
            cut = len({window.example for window in asked.windows if window.tokens_left_out})
            for line, example, found in zip(lines, examples, predictions, strict=True):
                written = {"line": line, **self._info.kind.as_line(example, found, self._config.labels)}
                good.write(json.dumps(written, ensure_ascii=False).encode() + b"\n")
        return before.model_copy(
            update={
                "rows": before.rows + len(examples),
                "bad": before.bad + len(rows) - len(examples),
                "cut": before.cut + cut,
                "tokens": before.tokens + tokens,
            }
        )


def _chunks(source: Path, how: ShardFormat, most: Chunk, bar: Bar, what: str) -> Iterator[list[ShardRow]]:
    """Return the rows of a shard some at a time."""
    chunk, letters = list[ShardRow](), 0
    for row in read_shard(source, how, lambda more: bar.advance(more, lambda: what)):
        chunk.append(row)
        letters += len(row.raw) + sum(len(cell) for cell in row.cells.values() if isinstance(cell, str | list))
        if len(chunk) >= most.rows or letters >= most.letters:
            yield chunk
            chunk, letters = [], 0
    if chunk:
        yield chunk


def _shard(path: Path, inside: Path, out: Path) -> Shard:
    plain = inside.with_suffix("") if inside.suffix == ".gz" else inside
    packed = ".gz" if inside.suffix == ".gz" else ""
    target = out / plain.with_suffix(f".jsonl{packed}")
    return Shard(
        path,
        target,
        out / plain.with_suffix(f".bad.jsonl{packed}"),
        out / FINISHED / inside.with_name(f"{target.name}.json"),
    )


def _is_pattern(source: str) -> bool:
    return any(letter in source for letter in "*?") and not exists(source)


def _paths_of(source: str) -> Iterator[Path]:
    place = Path(source)
    if place.is_dir():
        found = [path for path in place.rglob("*") if ending_of(str(path)) in ENDINGS]
    else:
        found = [place] if exists(source) else [Path(path) for path in glob.glob(source, recursive=True)]
    return (path.resolve() for path in found if path.is_file() and not path.name.startswith("."))


class ShardActor:
    """A model in a process of the cluster; when that is killed, Ray starts another and gives it the shard again."""

    def __init__(self, model_folder: str, settings: Settings | None, allow_outside: bool) -> None:
        self._predictor = ShardPredictor(open_model_in_use(Path(model_folder), settings, allow_outside))

    def __call__(self, batch: Mapping[str, Sequence[str]]) -> dict[str, list[Any]]:
        """Answer some shards, given as the paths of their files; return what is wrong with each, if anything."""
        paths = zip(*(batch[name] for name in ("source", "target", "bad", "finished")), strict=True)
        shards = [Shard(*map(Path, each)) for each in paths]
        return {"bytes": [each.source.stat().st_size for each in shards], "problem": [*map(self._predict, shards)]}

    def _predict(self, shard: Shard) -> str:
        try:
            self._predictor.predict(shard, SilentBar())
        except LockedError:
            return ""
        except DataError as error:
            return str(error)
        return ""


def predict_on_ray(
    model_folder: Path,
    sources: Sequence[str],
    out: Path,
    settings: Settings | None = None,
    progress: Progress = SILENT,
    *,
    allow_outside: bool = False,
    actors: int = 1,
    actor: type[Any] = ShardActor,
) -> ShardedPredictions:
    """Do what `predict_shards` does in so many actors of a Ray cluster, or of this machine; the files are the same.

    All machines need the same paths to model, shards and `out`. Each actor has a GPU where the model runs on one.
    """
    ray = _load_ray()
    shards, predictor = open_shards(model_folder, sources, out, settings, allow_outside=allow_outside)
    left = [shard for shard in shards if shard.counts() is None]
    problems = list[str]()
    with progress.bar("predict", sum(shard.source.stat().st_size for shard in left)) as bar:
        for row in _rows(ray, left, actor, (str(model_folder), settings, allow_outside), actors, predictor.num_gpus):
            bar.advance(int(row["bytes"]))
            problems += [row["problem"]] if row["problem"] else []
    return counts_or_error(sources, out, problems, predictor.needs)


def _rows(
    ray: Any,  # noqa: ANN401 (the package)
    shards: Sequence[Shard],
    actor: type[Any],
    given: tuple[Any, ...],
    actors: int,
    num_gpus: int,
) -> Any:  # noqa: ANN401 (Ray's iterator over rows)
    if not shards:
        return ()
    names = ("source", "target", "bad", "finished")
    items = [{name: str(getattr(shard, name).absolute()) for name in names} for shard in shards]
    data = ray.data.from_items(items, override_num_blocks=len(items))  # a block is what an actor is given at once
    answered = data.map_batches(
        actor,
        fn_constructor_args=given,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=min(actors, len(items))),
        num_gpus=num_gpus,
    )
    return answered.iter_rows()


def _load_ray() -> Any:  # noqa: ANN401 (the package)
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtraError("ray", "ray") from None
    if not ray.is_initialized():
        try:
            # RAY_ADDRESS names a cluster; progress is ours to show.
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise BertVisionError(f"no Ray cluster to be reached ({error}); see RAY_ADDRESS") from None
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    return ray
