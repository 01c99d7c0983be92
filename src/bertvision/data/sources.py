"""Where examples come from: a file, packed or not, a data set of the hub, or a slice of either.

Examples found in a source, good and bad -> a split, or one line about the first bad one.
"""

import gzip
import io
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple

from bertvision.data.example import Example, OnBad, Split
from bertvision.errors import DataError, MissingExtraError, SettingsError, reason_of
from bertvision.files import exists
from bertvision.hub import hub_problem
from bertvision.tables import counted

HUB_ID = re.compile(r"(?P<dataset>[\w.-]+/[\w.-]+)(/(?P<config>[\w.-]+))?(:(?P<split>\w+))?")
SLICE = re.compile(r"(?P<whole>.+)\[(?P<first>-?\d*):(?P<end>-?\d*)\]")
LIMIT = "BERTVISION_MAX_UNPACKED"  # in the environment: bytes
SMALL, HIGHEST_RATIO = 100_000_000, 100  # what any packed file may become, and a large one for each of its bytes
CAN_DROP = ", or leave it out with `data.on_bad=drop`"


class Source(NamedTuple):
    """A source without its slice, and the slice."""

    whole: str
    part: slice | None


class HubId(NamedTuple):
    """A data set of the hub."""

    dataset: str
    config: str | None
    split: str | None


def parse_source(source: str) -> Source:
    """Part `FILE[a:b]` into file and slice; a file that is really called so goes first."""
    found = SLICE.fullmatch(source)
    if found is None or exists(source):
        return Source(source, None)
    first, end = (int(found[name]) if found[name] else None for name in ("first", "end"))
    return Source(found["whole"], slice(first, end))


def take_part(split: Split[Example], source: str) -> Split[Example]:
    """Keep the examples that a source's `[a:b]` asks for; the split's name keeps it too."""
    part = parse_source(source).part
    if part is None:
        return split
    examples = split.examples[part]
    if not examples:
        raise DataError(f"{source}: no example in this slice of {len(split.examples)}; fix its numbers")
    return replace(split, name=source, examples=examples)


def parse_hub_id(source: str) -> HubId | None:
    """Read `owner/name[/config][:split]`; None where it is no hub id or a file has that name."""
    found = HUB_ID.fullmatch(source)
    if found is None or exists(source):
        return None
    return HubId(found["dataset"], found["config"], found["split"])


def load_hub_rows(dataset: str, config: str | None, split: str) -> Iterable[Mapping[str, Any]]:
    """Load one split of a data set from the hub."""
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("datasets", "hub") from None
    problem, before = hub_problem(), datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = problem is not None  # else it tries for a minute before it looks for downloads
    try:
        named = (dataset,) if config is None else (dataset, config)
        rows: Iterable[Mapping[str, Any]] = datasets.load_dataset(*named, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = reason_of(error) if problem is None else f"{reason_of(error)}; {problem}"
        raise DataError(f"{dataset}: split {split!r} cannot be loaded from the hub ({reason}); give a file") from None
    finally:
        datasets.config.HF_HUB_OFFLINE = before
    return rows


def read_bytes(path: Path, expected: str) -> bytes:
    """Read a file, unpacked if it is a gzip file; `expected` says in an error what to give instead."""
    try:
        raw = path.read_bytes()
        return _unpack(path, raw) if raw[:2] == b"\x1f\x8b" or path.suffix == ".gz" else raw
    except (EOFError, zlib.error):
        raise DataError(f"{path}: the gzip file is damaged or cut off; get it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); give {expected}") from None


def most_unpacked(packed: int) -> int:
    """Return how many bytes a packed file may become: far more than text shrinks by, which is three to ten times."""
    given = os.environ.get(LIMIT)
    if given is None:
        return max(SMALL, HIGHEST_RATIO * packed)
    if not given.isdecimal():
        raise SettingsError(f"{LIMIT} is {given!r}; give a number of bytes")
    return int(given)


def _unpack(path: Path, raw: bytes) -> bytes:
    limit = most_unpacked(len(raw))
    with gzip.open(io.BytesIO(raw)) as file:
        unpacked = file.read(limit + 1)
    if len(unpacked) > limit:
        raise DataError(
            f"{path}: its {len(raw):,} bytes become more than {limit:,} when unpacked; if it is no bomb, unpack it "
            f"yourself, or set {LIMIT} to more bytes"
        )
    return unpacked


def is_unicode(text: str) -> bool:
    """Return whether a text can be written: JSON's escapes and broken bytes can spell what UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Found(Generic[Example]):
    """An example, or what is wrong with it, and where it stands."""

    where: str
    example: Example | None
    problem: str = ""
    advice: str | None = None  # in place of what is advised for every bad one


class BadExampleError(Exception):
    """What is wrong with the example at hand, and what to do."""


def collect(
    found: Iterable[Found[Example]],
    name: str,
    on_bad: OnBad,
    sha256: str | None,
    *,
    what: str = "row",
    advice: str = CAN_DROP,
) -> Split[Example]:
    """Gather the good examples, each with an id of its own; bad ones are counted, or the first of them is refused."""
    examples: dict[str, Example] = {}
    bad: list[str] = []
    for each in found:
        if each.example is None:
            if not bad and each.advice is not None:
                advice = each.advice
            bad.append(f"{each.where}: {each.problem}")
        elif each.example.id in examples:
            bad.append(f"{each.where}: duplicate id; give every {what} an id of its own")
        else:
            examples[each.example.id] = each.example
    if bad and on_bad == "fail":
        count = "" if len(bad) == 1 else f" ({len(bad)} bad {what}s; this is the first)"
        raise DataError(f"{bad[0]}{count}{advice}")
    if not examples:
        why = f"all {len(bad)} were dropped, the first: {bad[0]}" if bad else "is it the right file?"
        raise DataError(f"{name}: no {what} in it; {why}")
    first_bad = bad[0].removeprefix(f"{name}: ") if bad else ""
    return Split(name, tuple(examples.values()), len(bad), sha256, first_bad)


def left_out(name: str, kept: int, dropped: int, first_bad: str) -> str:
    """Return how many examples of a file were dropped, and what is wrong with the first of them."""
    why = f"; {'the first: ' * (dropped > 1)}{first_bad}" if first_bad else ""
    return f"{name}: {counted(dropped, 'bad example')} left out, {kept} kept{why}"
