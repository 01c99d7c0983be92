import runpy
from pathlib import Path

import pytest

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
