"""Takes the pictures of the web page that the documentation shows: tools/screenshots.py [MODEL [FOLDER]].

Needs the `dev` extra and a Chromium or Chrome. Their model is what `serve --model` takes, of a head that is a sum over
layers; without one, the default model.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arguments import read_arguments
from browser import find_browser
from PIL import Image
from playwright.sync_api import Page, sync_playwright

FOLDER = Path(__file__).parent.parent / "docs" / "images"
DESKTOP, PHONE = {"width": 1180, "height": 900}, {"width": 360, "height": 780}


def main(model: str | None, place: str | None) -> None:
    """Serve the model, ask the page's first example, and take the pictures."""
    folder = FOLDER if place is None else Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    with serving(model or "default") as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        page = asked(browser.new_page(viewport=DESKTOP, color_scheme="light", reduced_motion="reduce"), address)
        page.screenshot(path=folder / "page.png", full_page=True)
        page = asked(browser.new_page(viewport=PHONE, color_scheme="dark", reduced_motion="reduce"), address)
        page.locator("#result").evaluate("element => element.scrollIntoView()")
        page.screenshot(path=folder / "page_phone.png")
        browser.close()
    for path in (folder / "page.png", folder / "page_phone.png"):
        image = Image.open(path).convert("RGB")
        image.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE).save(path, optimize=True)


def asked(page: Page, address: str) -> Page:
    """Ask the first example and wait for its X-ray."""
    page.goto(address)
    page.get_by_role("button", name="Ask", exact=True).click()
    page.locator("#heat tbody td").first.wait_for()
    page.mouse.move(0, 0)
    return page


@contextmanager
def serving(model: str) -> Iterator[str]:
    """Serve a model on a free port of this machine; gives the page's address."""
    command = [sys.executable, "-m", "bertvision", "serve", "--model", model, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        found = next((found for line in server.stderr if (found := re.search(r"http://\S+", line))), None)
        if found is None:
            sys.exit("the server did not start; `bertvision serve` with this model says why")
        try:
            yield found.group()
        finally:
            server.terminate()


if __name__ == "__main__":
    main(*read_arguments(__doc__, "[MODEL]", "[FOLDER]"))
