"""Compares what two source trees make of twelve tiny experiments, to the bit.

    python tools/golden.py OLD_TREE [NEW_TREE] [--only spans --only tags] [--processes 2]

Each experiment of `golden_experiments.py` is run by both trees on this machine, with one thread. Then every file that
it wrote and all that its commands printed is compared: scores, predictions, weights, fingerprints, the list of files.
Prints each field that differs, with both values. Ends with 1 if one of them is not in the list of expected differences
in `golden.yaml`, which also holds the words that the trees call things by. What a tree has made is kept by the content
of its `src`, so that a second run makes only what changed.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from functools import cache
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import yaml
from golden_experiments import EXPERIMENTS, Experiment, build_encoder

HERE = Path(__file__).parent
TREE = HERE.parent
WORDS: dict[str, Any] = yaml.safe_load((HERE / "golden.yaml").read_text(encoding="utf-8"))
MEASURED: list[str] = WORDS["measured"]
SETTLED = [pattern for pattern in MEASURED if "/" not in pattern]  # of any file's fields: constants in records
PRINTED = "printed"  # folder of what commands printed, and their exit status
DONE = "done.json"  # in an experiment's folder when all its commands have ended: the input files
COMMANDS = "commands.json"
ABSENT = "(absent)"
LINES = 12  # printed for one file
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "<i1", "U8": "<u1", "BOOL": "?"}
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONHASHSEED": "0",
    "COLUMNS": "100",
}
Fields = dict[str, Any]  # field -> value


class Difference(NamedTuple):
    """A field whose values differ, and why it may; without a reason it may not."""

    field: str
    old: str
    new: str
    because: str | None


class Making(NamedTuple):
    """An experiment by a tree: its command lines by name, its settings by file, and the folder that it is made in."""

    tree: Path
    name: str
    commands: dict[str, str]
    settings: dict[str, Any]
    folder: Path


# Making.


def plan(tree: Path, name: str, kept: Path, *, is_new: bool) -> Making:
    """Say an experiment in the words of a tree; its folder is named by all that decides what it makes."""
    experiment = EXPERIMENTS[name]
    commands = {each: command_line(*command, is_new=is_new) for each, command in experiment.commands.items()}
    settings = {each: in_words_of(content, is_new=is_new) for each, content in experiment.settings.items()}
    parts = [hash_of(tree / "src"), hash_of(kept / "tiny"), json.dumps([commands, settings, SETTLED])]
    with TemporaryDirectory() as data:
        experiment.write(Path(data))
        parts.append(hash_of(Path(data)))
    parts += [hash_of(tree / "results")] if experiment.reads_results else []
    key = hashlib.sha256("".join(parts).encode()).hexdigest()[:12]
    return Making(tree, name, commands, settings, kept / f"{name}-{key}")


def make(making: Making) -> None:
    """Run an experiment's commands by a tree, unless what they made is there."""
    tree, name, commands, settings, folder = making
    if (folder / DONE).exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    prepare(EXPERIMENTS[name], folder, tree, settings)
    inputs = [str(path.relative_to(folder)) for path in files_of(folder)]
    (folder / COMMANDS).write_text(json.dumps(commands))
    worker = [sys.executable, __file__, "--run-in", str(folder), str(tree)]
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)])}
    ended = subprocess.run(worker, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{name} by {tree}: {ended.stderr[-2000:]}")
    (folder / DONE).write_text(json.dumps([*inputs, COMMANDS]))


def prepare(experiment: Experiment, folder: Path, tree: Path, settings: dict[str, Any]) -> None:
    """Write an experiment's encoder, data and settings."""
    folder.mkdir(parents=True)
    shutil.copytree(folder.parent / "tiny", folder / "tiny")
    experiment.write(folder)
    if experiment.reads_results:
        (folder / "results").symlink_to(tree / "results")
    for name, content in settings.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))


def run_commands(tree: Path) -> None:
    """Run the commands of the current folder in this process, in order; a refusal of one does not stop the others."""
    import bertvision

    if tree / "src" not in Path(bertvision.__file__).parents:
        raise SystemExit(f"bertvision is {bertvision.__file__}, and not in {tree}")
    Path(PRINTED).mkdir()
    for name, line in json.loads(Path(COMMANDS).read_text()).items():
        module, *arguments = line.split()[1:] if line.startswith("-m ") else ("bertvision", *line.split())
        sys.argv = [module, *arguments]
        with printing_to(Path(PRINTED, f"{name}.json"), Path(PRINTED, f"{name}.log")):
            try:
                runpy.run_module(module, run_name="__main__", alter_sys=True)
                status: object = 0
            except SystemExit as ended:
                status = ended.code or 0
        Path(PRINTED, f"{name}.exit").write_text(f"{status}\n")
        settle_measured(Path())


@contextmanager
def printing_to(out: Path, errors: Path) -> Iterator[None]:
    """Send to files what is printed meanwhile, also by whoever holds the streams already."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with out.open("w") as first, errors.open("w") as second:
        os.dup2(first.fileno(), 1)
        os.dup2(second.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
            os.close(kept[0])
            os.close(kept[1])


def settle_measured(folder: Path) -> None:
    """Replace what is measured in records by constants, so that reports of them can be compared; also their hashes."""
    for path in folder.glob("*/records/*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        settled = _settled(content, f"x/{path}:")
        if settled == content:
            continue
        path.write_text(json.dumps(settled, indent=2) + "\n", encoding="utf-8")
        manifest = path.with_name("sha256.json")
        if manifest.exists():
            hashes = json.loads(manifest.read_text())
            hashes["sha256"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
            manifest.write_text(json.dumps(hashes, indent=2) + "\n")


def _settled(value: Any, field: str) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(value, dict):
        return {key: _settled(each, _joined(field, key)) for key, each in value.items()}
    if isinstance(value, list):
        return [_settled(each, _joined(field, str(index))) for index, each in enumerate(value)]
    if value is None or not any(fnmatchcase(field, pattern) for pattern in SETTLED):
        return value
    return "0" * 40 if isinstance(value, str) else type(value)(1)


def command_line(verb: str, values: dict[str, str], *, is_new: bool) -> str:
    """Fill in a verb's template in the words of a tree."""
    words = WORDS["verbs"][verb]
    if not is_new:
        return str(words["old"].format(**values))
    return str(words.get("new", words["old"]).format(**{key: renamed(value) for key, value in values.items()}))


def in_words_of(settings: Any, *, is_new: bool) -> Any:  # noqa: ANN401 (YAML)
    """Return settings in the words of a tree."""
    settings = json.loads(json.dumps(settings))
    for row in WORDS["settings"] if is_new else ():
        old, _, old_value = row["old"].partition("=")
        new, _, new_value = (row["new"] or "").partition("=")
        move_setting(settings, old, new, old_value, new_value)
    return settings


def move_setting(settings: Any, old: str, new: str, old_value: str = "", new_value: str = "") -> None:  # noqa: ANN401
    """Rename a dotted setting in place, or drop it where `new` is empty; with values, only where it has the old one."""
    *sections, key = old.split(".")
    holders = [settings]
    for section in sections:
        below = [each[section] for each in holders if isinstance(each, dict) and section in each]
        holders = [one for each in below for one in (each if isinstance(each, list) else [each])]
    for holder in holders:
        if not isinstance(holder, dict) or key not in holder or old_value not in ("", str(holder[key])):
            continue
        value = holder.pop(key)
        if not new:
            continue
        *new_sections, new_key = new.split(".")
        target = holder
        if new_sections != sections:
            target = settings
            for section in new_sections:
                target = target.setdefault(section, {})
        target[new_key] = yaml.safe_load(new_value) if new_value else value


def renamed(field: str) -> str:
    """Return what a field of OLD is called in NEW."""
    for row in WORDS["renamed"]:
        field = re.sub(row["old"], row["new"], field)
    return field


# Reading.


def read_fields(name: str, folder: Path) -> Fields:
    """Return every value that an experiment left: fields of its files, and what its commands printed."""
    inputs = set(json.loads((folder / DONE).read_text()))
    fields: Fields = {}
    for path in files_of(folder):
        inside = path.relative_to(folder)
        if str(inside) in inputs or inside.name == DONE or path.suffix == ".log":
            continue
        fields.update(read_file(path, f"{name}/{inside}:"))
    here = str(folder)  # which a model that stands on an encoder elsewhere names
    return {field: each.replace(here, "HERE") if isinstance(each, str) else each for field, each in fields.items()}


def read_file(path: Path, prefix: str) -> Iterator[tuple[str, Any]]:
    """Give the fields of one file: leaves of JSON, tensors, lines of text, or a hash of anything else."""
    yield f"{prefix}(file)", "there"
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix == ".safetensors":
        yield from _tensors(content, prefix)
        return
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        yield f"{prefix}(bytes)", hashlib.sha256(content).hexdigest()[:16]
        return
    if suffix in (".json", ".yaml"):
        try:
            loaded = json.loads(text) if suffix == ".json" else yaml.safe_load(text)
        except ValueError:
            yield f"{prefix}(lines)", Lines(text.splitlines())
            return
        yield from _leaves(loaded, prefix)
    elif suffix == ".jsonl":
        yield from _leaves([json.loads(line) for line in text.splitlines()], prefix)
    else:
        yield f"{prefix}(lines)", Lines(text.splitlines())


def _leaves(value: Any, field: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 (JSON)
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in items:
            yield from _leaves(each, _joined(field, str(key)))
    else:
        yield field, value


def _joined(field: str, key: str) -> str:
    return f"{field}{key}" if field.endswith(":") else f"{field}.{key}"


def _tensors(content: bytes, prefix: str) -> Iterator[tuple[str, Any]]:
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    yield from _leaves(header.pop("__metadata__", {}), f"{prefix}metadata")
    for name, facts in header.items():
        start, end = facts["data_offsets"]
        raw = content[8 + size + start : 8 + size + end]
        if facts["dtype"] == "BF16":
            array = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
        else:
            array = np.frombuffer(raw, DTYPES[facts["dtype"]])
        yield _joined(prefix, name), Tensor(facts["dtype"], tuple(facts["shape"]), array)


class Lines(list[str]):
    """The lines of a text file, of which only those that differ are told."""


class Tensor(NamedTuple):
    """A tensor of a file, equal to another one where all its bits are."""

    dtype: str
    shape: tuple[int, ...]
    values: np.ndarray[Any, Any]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


# Comparing.


def compare(old: Fields, new: Fields) -> list[Difference]:
    """Return the fields that differ, OLD's under their names in NEW."""
    old = {renamed(field): value for field, value in old.items()}
    found = []
    for field in dict.fromkeys([*old, *new]):
        if is_measured(field) and field in old and field in new:
            continue
        if is_whole_file_absent(field, old, new) and not field.endswith(":(file)"):
            continue  # one line for the file is enough
        one, other = old.get(field, ABSENT), new.get(field, ABSENT)
        if is_equal(one, other):
            continue
        for each, *values in differing_lines(field, one, other) or [(field, one, other)]:
            texts = shown(*values)
            found.append(Difference(each, *texts, reason_for(each, *texts, WORDS["expected"])))
    return found


def differing_lines(field: str, old: Any, new: Any) -> list[tuple[str, str, str]]:  # noqa: ANN401 (any value)
    """Return the lines that differ between two texts; a line that only one of them has stands beside an absent one."""
    if not isinstance(old, Lines) or not isinstance(new, Lines):
        return []
    file = field.removesuffix("(lines)")
    found = []
    for kind, start, end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            pairs = zip_longest(old[start:end], new[new_start:new_end], fillvalue=ABSENT)
            found += [(f"{file}line {new_start + n}", one, other) for n, (one, other) in enumerate(pairs, start=1)]
    return found


def is_whole_file_absent(field: str, old: Fields, new: Fields) -> bool:
    """Whether one of the trees did not write a field's file."""
    file = field.partition(":")[0] + ":(file)"
    return (file in old) != (file in new)


def is_equal(one: Any, other: Any) -> bool:  # noqa: ANN401 (any value)
    """Whether two values are the same to the bit; NaN equals NaN."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one[:2] == other[:2] and one.values.tobytes() == other.values.tobytes()
    return type(one) is type(other) and (one == other or (one != one and other != other))


def shown(one: Any, other: Any) -> tuple[str, str]:  # noqa: ANN401 (any value)
    """Return two values as text; of tensors of one shape, how far they are apart."""
    if isinstance(one, Tensor) and isinstance(other, Tensor) and one[:2] == other[:2]:
        apart = np.abs(one.values.astype(np.float64) - other.values.astype(np.float64))
        return str(one), f"{np.count_nonzero(apart)} of {apart.size} values differ, by {apart.max():.3g} at most"
    return _text(one), _text(other)


def _text(value: Any) -> str:  # noqa: ANN401 (any value)
    if isinstance(value, Tensor) or (isinstance(value, str) and value == ABSENT):
        return str(value)
    return repr(value)


def shortened(text: str) -> str:
    """Return the beginning of a text, as much as is printed."""
    return text if len(text) <= 120 else f"{text[:117]}..."


def is_measured(field: str) -> bool:
    """Whether a field depends on the clock or the machine."""
    return any(fnmatchcase(field, pattern) for pattern in MEASURED)


def reason_for(field: str, old: str, new: str, expected: list[dict[str, Any]]) -> str | None:
    """Return the sentence that asks for a difference: field and both values fit one row's patterns."""
    difference = (field, old, new)
    for group in expected:
        if any(all(map(fits, difference, patterns)) for patterns in group["fields"]):
            return str(group["because"])
    return None


def fits(text: str, pattern: str) -> bool:
    """Whether a text is a pattern's, where only `*` stands for anything."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


# The command.


def files_of(folder: Path) -> list[Path]:
    """Return all files below a folder, in order, but for compiled code."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(path for path in found if not any(part.endswith(".egg-info") for part in path.parts))


@cache
def hash_of(path: Path) -> str:
    """Return a hash of a file, or of a folder's files and their names."""
    found = hashlib.sha256()
    for each in [path] if path.is_file() else files_of(path):
        found.update(f"{each.relative_to(path)}\0".encode())
        found.update(hashlib.sha256(each.read_bytes()).digest())
    return found.hexdigest()


def print_differences(differences: list[Difference], *, every: bool) -> None:
    """Print a line for each, those of one file up to a limit."""
    printed: Counter[str] = Counter()
    for each in differences:
        file = each.field.partition(":")[0]
        printed[file] += 1
        if every or printed[file] <= LINES:
            because = f"   (expected: {each.because})" if each.because else ""
            print(f"{each.field}\n    {shortened(each.old)} -> {shortened(each.new)}{because}")
    for file, count in printed.items():
        if not every and count > LINES:
            print(f"{file}: {count - LINES} more fields differ; --every shows them")


def main(arguments: list[str] | None = None) -> int:
    """Make and compare; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, metavar="OLD_TREE", help="a checkout, in the old words of golden.yaml")
    parser.add_argument("new", type=Path, metavar="NEW_TREE", nargs="?", default=TREE, help="[default: this one]")
    parser.add_argument("--only", action="append", choices=EXPERIMENTS, metavar="NAME", help="run this one; repeatable")
    parser.add_argument("--processes", type=int, default=2, help="experiments run side by side [default: 2]")
    parser.add_argument(
        "--cache", type=Path, default=TREE / "runs" / "golden", help="where makings are kept [default: runs/golden]"
    )
    parser.add_argument("--new-words-in-both", action="store_true", help="OLD_TREE, too, has the new words")
    parser.add_argument("--every", action="store_true", help="print every field, however many of a file differ")
    asked = parser.parse_args(arguments)
    names = asked.only or list(EXPERIMENTS)
    old, new, kept = asked.old.resolve(), asked.new.resolve(), asked.cache.resolve()
    for tree in (old, new):
        if not (tree / "src" / "bertvision").is_dir():
            parser.error(f"{tree}: no src/bertvision in it; give a checkout")
    if not (kept / "tiny").exists():
        build_encoder(kept / "tiny")
    makings = {
        (name, tree): plan(tree, name, kept, is_new=tree == new or asked.new_words_in_both)
        for name in names
        for tree in (old, new)
    }
    with ThreadPoolExecutor(asked.processes) as pool:  # the two of a tree that is compared with itself are one
        list(pool.map(make, {each.folder: each for each in makings.values()}.values()))
    count = 0
    differences = []
    for name in names:
        one, other = (read_fields(name, makings[name, tree].folder) for tree in (old, new))
        count += len(one)
        differences += compare(one, other)
    print_differences(differences, every=asked.every)
    unexpected = sum(each.because is None for each in differences)
    print(f"{len(names)} experiments, {count} fields: {len(differences)} differ, {unexpected} of them not expected")
    return int(unexpected > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run-in"]:
        os.chdir(sys.argv[2])
        sys.path.pop(0)  # tools/
        run_commands(Path(sys.argv[3]))
    else:
        sys.exit(main())
