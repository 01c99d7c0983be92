import os
import subprocess
import sys
from pathlib import Path

import browser
import pytest

PAGE = "def test_page(browser):\n    pass\n\n\ndef test_other():\n    pass\n"
CONFTEST = """import browser as tool
import pytest
from browser import pytest_collection_modifyitems, pytest_terminal_summary


@pytest.fixture
def browser():
    assert tool.find_browser()
"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """An empty folder in the place of PATH; gives a function that writes a program into it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CHROME_PATH", raising=False)

    def write(name, body="exit 0"):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
        return str(folder / name)

    return write


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome"])
def test_a_browser_of_any_name_is_found(name, programs):
    assert browser.find_browser() is None
    path = programs(name)
    assert browser.find_browser() == path


def test_a_browser_that_does_not_start_is_none(programs):
    programs("chromium-browser", "echo it is in a snap; exit 1")
    assert browser.find_browser() is None


def test_the_one_that_is_asked_for_is_the_only_one(programs, monkeypatch):
    programs("chromium")
    monkeypatch.setenv("CHROME_PATH", programs("mine"))
    assert browser.find_browser() == os.environ["CHROME_PATH"]
    monkeypatch.setenv("CHROME_PATH", "/nowhere/chrome")
    assert browser.find_browser() is None


@pytest.mark.parametrize(("user", "is_installed"), [(0, True), (1000, False)])
def test_debians_is_installed_by_root_alone(user, is_installed, programs, monkeypatch):
    chromium = Path(os.environ["PATH"]) / "chromium"
    programs("apt-get", f"[ $1 = update ] || {{ echo '#!/bin/sh' > {chromium}; /bin/chmod +x {chromium}; }}")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    browser.install_browser()
    assert browser.find_browser() == (str(chromium) if is_installed else None)


def test_an_installation_that_fails_is_told_and_stops_nothing(programs, monkeypatch, capsys):
    programs("apt-get", "exit 100")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    browser.install_browser()
    assert "could not install chromium" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "ci", "last_line", "is_told"),
    [
        ("chromium", "", "2 passed", False),
        ("other", "", "1 passed, 1 deselected", True),
        ("other", "true", "1 passed, 1 error", False),
    ],
)
def test_without_a_browser_tests_are_left_out_in_one_line_and_fail_in_ci(
    name, ci, last_line, is_told, programs, tmp_path
):
    programs(name)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_page.py").write_text(PAGE)
    told = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:jaxtyping",
            "-p",
            "no:hypothesispytest",
            str(tmp_path),
        ],
        env={**os.environ, "CI": ci, "PYTHONPATH": str(Path(browser.__file__).parent)},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert last_line in told.splitlines()[-1]
    assert told.count(browser.LEFT_OUT) == is_told
