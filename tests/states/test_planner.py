import pytest

from bertvision.states.planner import Machine, Speeds, Work, choose_source, estimate_sources

# 1,000 tokens of 100 bytes: 10 s to encode, 2 s for heads, 1 s to copy, 5 s to write, 4 s to read from the disk.
WORK = Work(tokens=1000, passes=3, num_bytes=100_000)
SPEEDS = Speeds(100, 500, 100_000, 20_000, 25_000, reads_aside=False)
PLENTY = Machine(10**9, 10**9)
TIGHT = Machine(free_ram=199_999, free_disk=10**9)  # half of it is less than the states
FULL = Machine(free_ram=199_999, free_disk=111_111)  # and so is nine tenths of the disk


def parts(work, speeds, machine):
    return {each.source: each.parts for each in estimate_sources(work, speeds, machine)}


def test_live_encodes_in_every_pass_and_the_others_once():
    assert parts(WORK, SPEEDS, PLENTY) == {
        "live": {"encode": 30, "heads": 6},
        "ram": {"encode": 10, "keep": 1, "read": 3, "heads": 6},
        "disk": {"encode": 10, "keep": 1 + 5, "read": 3, "heads": 6},  # what was written is still in memory
    }
    assert [each.seconds for each in estimate_sources(WORK, SPEEDS, PLENTY)] == [36, 20, 25]


def test_states_that_memory_does_not_hold_are_read_from_the_disk_in_every_pass():
    assert parts(WORK, SPEEDS, TIGHT)["disk"] == {"encode": 10, "keep": 1 + 5, "read": 3 * (1 + 4), "heads": 6}


def test_a_gpu_reads_beside_its_heads():
    aside = SPEEDS._replace(reads_aside=True)
    assert parts(WORK, aside, PLENTY)["ram"] == {"encode": 10, "keep": 1, "read": 0, "heads": 6}
    assert parts(WORK, aside, TIGHT)["disk"] == {"encode": 10, "keep": 1 + 5, "read": 15 - 6, "heads": 6}


@pytest.mark.parametrize(
    ("work", "machine", "chosen"),
    [
        (WORK, PLENTY, "ram"),
        (WORK, TIGHT, "live"),  # 37 s on disk
        (WORK._replace(passes=4), TIGHT, "disk"),  # 48 s live, 44 s on disk
        (WORK._replace(passes=4), FULL, "live"),  # nothing fits
        (WORK._replace(passes=1), PLENTY, "live"),
        (WORK._replace(passes=2), PLENTY, "ram"),
    ],
)
def test_the_quickest_that_fits_is_chosen(work, machine, chosen):
    assert choose_source(work, SPEEDS, machine).source == chosen


def test_of_equals_the_one_that_keeps_nothing_is_chosen():
    slow = SPEEDS._replace(ram=20_000)  # 5 s to copy
    assert [each.seconds for each in estimate_sources(WORK, slow, PLENTY)] == [36, 36, 41]
    assert choose_source(WORK, slow, PLENTY).source == "live"


@pytest.mark.parametrize("speed", [1.0, 1e12])
def test_one_pass_is_live_however_fast_the_rest_is(speed):
    quick = Speeds(100, speed, 1e15, 1e15, 1e15, reads_aside=True)
    assert choose_source(WORK._replace(passes=1), quick, PLENTY).source == "live"


@pytest.mark.parametrize(("spare", "fits"), [(199_999, False), (200_000, True)])
def test_half_of_the_memory_is_left_alone(spare, fits):
    ram = estimate_sources(WORK, SPEEDS, Machine(spare, 10**9))[1]
    assert (ram.misfit is None) == fits


@pytest.mark.parametrize(("spare", "fits"), [(111_111, False), (111_112, True)])
def test_a_tenth_of_the_disk_is_left_alone(spare, fits):
    disk = estimate_sources(WORK, SPEEDS, Machine(10**9, spare))[2]
    assert (disk.misfit is None) == fits


def test_the_reason_names_the_others_and_what_does_not_fit():
    assert choose_source(WORK, SPEEDS, PLENTY).reason == "about 20.0 s against live 36.0 s and disk 25.0 s"
    reason = choose_source(WORK._replace(passes=4), SPEEDS, FULL).reason
    assert reason.startswith("about 48.0 s; ram does not fit (100.0 kB of memory, 100.0 kB to spare); disk does not")
