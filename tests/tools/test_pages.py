import runpy
from pathlib import Path

import pytest

from bertvision.records import BenchRecord, Side, provenance

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "pages.py"))
WIDE = {"COLUMNS": "200", "TERMINAL_WIDTH": "200", "TERM": "xterm-256color", "FORCE_COLOR": "1", "CI": "true"}


@pytest.mark.parametrize("page", TOOL["PAGES"], ids=lambda page: page.name)
@pytest.mark.parametrize("surroundings", [{}, WIDE], ids=["as it is", "a wide terminal in colour"])
def test_the_committed_pages_are_what_make_pages_writes(page, surroundings, monkeypatch):
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    assert page.read_text(encoding="utf-8") == TOOL["written"](page), "run make pages"


def test_every_committed_study_is_laid_out_as_its_record_and_the_rule_have_it():
    pages = TOOL["study_pages"]()
    assert len(pages) > 5
    assert {path: path.read_text(encoding="utf-8") for path in pages} == pages, "run make pages"


def test_every_line_of_help_fits_80_columns():
    lines = (TOOL["DOCS"] / "commands.md").read_text(encoding="utf-8").splitlines()
    helped = [line for line in lines if line.startswith("  --")]
    assert len(helped) > 100
    assert max(map(len, helped)) <= 80


def test_a_plan_is_scaled_to_8_and_64_devices_and_to_100_million_passages():
    sides = {"fine-tune": (6400.0, 1000, 1000), "1 million windows by a head": (60.0, 0, 0)}
    record = BenchRecord(
        name="plan",
        variant="bert-large",
        about="a run",
        settings={"encoder": "bert-large", "epochs": 2, "tokens": 32768},
        sides=tuple(Side(name=name, seconds=(seconds,)) for name, (seconds, *_) in sides.items()),
        figures={
            f"{name}: {what}": value
            for name, (_, *values) in sides.items()
            for what, value in zip(("steps", "MB of gradients"), values, strict=True)
        },
        provenance=provenance("an H200", "bf16"),
    )
    rows = [line.strip("| ").split(" | ") for line in TOOL["planned"](record).splitlines() if line.startswith("|")]
    # 6,400 s / 8, and 1,000 steps of 14 messages of 125 MB at 450 GB/s; / 64, and of 126 messages of 15.6 MB at 50.
    assert [cell.strip() for cell in rows[2]] == ["fine-tune", "1.8 h", "13 min", "2 min", "99%", "70%"]
    assert [cell.strip() for cell in rows[3]] == ["100,000,000 passages", "1.7 h", "12 min", "93.8 s", "100%", "100%"]
