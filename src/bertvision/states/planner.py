"""Live, RAM or disk: what each would take for this task, encoder, number of passes and machine, and which to choose."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bertvision.states.machine import in_units
from bertvision.states.source import SourceName

# Half of the free memory: batches, heads and the page cache need room too.
RAM_SHARE = 0.5
# A file system that is nearly full is slow, and other programs write too.
DISK_SHARE = 0.9


class Work(NamedTuple):
    """What has to be done."""

    tokens: int  # of one pass
    passes: float  # 1.5: half of the states are needed once more
    num_bytes: int  # of all kept states


class Speeds(NamedTuple):
    """How fast this machine is, measured on a sample of the work."""

    encoder: float  # tokens a second, from ids to all states
    heads: float  # tokens a second, all heads together, forward, backward and optimizer
    ram: float  # bytes a second of kept states, from memory into a batch
    disk_write: float  # bytes a second, checksums and waiting for the disk included
    disk_read: float  # bytes a second, from the disk itself
    reads_aside: bool  # whether heads have a processor of their own (a GPU), so that reading goes on beside them


class Machine(NamedTuple):
    """What it has to spare, in bytes."""

    free_ram: int
    free_disk: int


class Estimate(NamedTuple):
    """What one source would take."""

    source: SourceName
    parts: dict[str, float]  # seconds of each part of the work
    num_bytes: int
    misfit: str | None  # why it cannot be chosen

    @property
    def seconds(self) -> float:
        """Add up the parts."""
        return sum(self.parts.values())


class Choice(NamedTuple):
    """The chosen source, and why."""

    source: SourceName
    reason: str
    estimates: list[Estimate]


ONE_PASS = Choice("live", "one pass needs every state once, so keeping them gains nothing", [])


def choose_source(work: Work, speeds: Speeds, machine: Machine) -> Choice:
    """Choose the quickest source that fits; of equals, the one that keeps less."""
    estimates = estimate_sources(work, speeds, machine)
    best = min((each for each in estimates if each.misfit is None), key=lambda each: each.seconds)
    return Choice(best.source, _reason(best, estimates), estimates)


def estimate_sources(work: Work, speeds: Speeds, machine: Machine) -> list[Estimate]:
    """Estimate live, ram and disk, in this order."""
    encode, heads = work.tokens / speeds.encoder, work.passes * work.tokens / speeds.heads
    copy = work.num_bytes / speeds.ram
    room = {"memory": RAM_SHARE * machine.free_ram, "disk": DISK_SHARE * machine.free_disk}
    # What was just written is still in memory where there is room for it, and is not read from the disk again.
    fetch = 0.0 if work.num_bytes <= room["memory"] else work.num_bytes / speeds.disk_read
    in_ram = {"encode": encode, "keep": copy, **_passes(work.passes * copy, heads, speeds)}
    # A shard is filled in memory before it is written.
    on_disk = {"encode": encode, "keep": copy + work.num_bytes / speeds.disk_write}
    on_disk |= _passes(work.passes * (copy + fetch), heads, speeds)
    return [
        Estimate("live", {"encode": work.passes * encode, "heads": heads}, 0, None),
        Estimate("ram", in_ram, work.num_bytes, _misfit(work.num_bytes, room, "memory")),
        Estimate("disk", on_disk, work.num_bytes, _misfit(work.num_bytes, room, "disk")),
    ]


def _passes(read: float, heads: float, speeds: Speeds) -> dict[str, float]:
    return {"read": max(0.0, read - heads) if speeds.reads_aside else read, "heads": heads}


def _misfit(num_bytes: int, room: Mapping[str, float], where: str) -> str | None:
    if num_bytes <= room[where]:
        return None
    return f"{in_units(num_bytes)} of {where}, {in_units(room[where])} to spare"


def _reason(best: Estimate, estimates: Sequence[Estimate]) -> str:
    others = [f"{each.source} {in_time(each.seconds)}" for each in estimates if each is not best and not each.misfit]
    unfit = [f"{each.source} does not fit ({each.misfit})" for each in estimates if each.misfit]
    against = f" against {' and '.join(others)}" if others else ""
    return "; ".join([f"about {in_time(best.seconds)}{against}", *unfit])


def in_time(seconds: float) -> str:
    """Write a duration for a person."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
