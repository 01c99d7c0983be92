"""The browser that the web page is tested in: finds a Chromium or Chrome, or installs Debian's as root.

`make test` runs this first. Where there is none in the end, pytest leaves the page's tests out and says so; in CI
(CI=true) they fail. CHROME_PATH is another place to look at, and then the only one.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NO_BROWSER = "no Chromium or Chrome was found; install one (apt-get install chromium), or set CHROME_PATH to it"
LEFT_OUT = f"The web page's tests were left out: {NO_BROWSER}."


def find_browser() -> str | None:
    """Return the path of a browser that starts: Ubuntu's `chromium-browser` may only say that it is elsewhere."""
    given = os.environ.get("CHROME_PATH")
    paths = [shutil.which(name) for name in ([given] if given else NAMES)]
    return next((path for path in paths if path is not None and _runs(path, "--version")), None)


def install_browser() -> None:
    """Install Debian's where that may be done: as root, with apt."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    print("installing chromium for the web page's tests", flush=True)
    _runs("apt-get", "update", "-qq")
    if not _runs("apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"):
        print("apt-get could not install chromium", file=sys.stderr)


def is_left_out() -> bool:
    """Whether the page's tests are left out: without a browser, but not in CI."""
    return find_browser() is None and os.environ.get("CI") != "true"


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Return a browser of playwright's."""
    from playwright.sync_api import sync_playwright

    path = find_browser()
    assert path, NO_BROWSER  # in CI; elsewhere these tests are left out
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])  # CI is root in a container
        yield launched
        launched.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs the fixture `browser`."""
    left_out = [item for item in items if "browser" in getattr(item, "fixturenames", ())]
    if left_out and is_left_out():
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say so in one line."""
    if is_left_out():
        terminalreporter.write_line(LEFT_OUT, yellow=True)


def _runs(*command: str) -> bool:
    """Run a command without its output; returns whether it succeeded."""
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


if __name__ == "__main__" and find_browser() is None:
    install_browser()
