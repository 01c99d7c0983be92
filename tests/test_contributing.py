"""The walks that CONTRIBUTING tells are walks through this package."""

import re
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
SECTION = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Where a number comes from")[2]
WALKS = dict(re.findall(r"\*\*(.+?):\*\* (.+?)(?:\n\n|\Z)", SECTION.partition("\n## ")[0], re.S))


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("bertvision")


@pytest.mark.parametrize("walk", WALKS)
def test_every_file_of_a_walk_is_reached_from_its_first(walk, graph):
    files = re.findall(r"`([a-z_/]+\.py)`", WALKS[walk])
    assert 15 < len(files) <= 31
    modules = [f"bertvision.{file.removesuffix('.py').replace('/', '.')}" for file in files]
    shown = ["bertvision.report.page", modules[0]]
    reached = {each for start in shown for each in graph.find_upstream_modules(start)} | set(shown)
    assert [module for module in modules if module not in reached] == []


def test_there_are_three_walks():
    assert len(WALKS) == 3
