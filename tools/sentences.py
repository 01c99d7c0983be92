"""Prints how many words a sentence of README and docs has on average, page by page, and the longest with --longest."""

import argparse
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
GOAL = 18  # words, on average (CONTRIBUTING)
GENERATED = re.compile(r"<!-- .*?written by make.*? -->.*?<!-- end of .*? -->", re.DOTALL)
BLOCK = re.compile(r"^ *(`{3,}|:{3,}).*?^ *\1\s*$", re.DOTALL | re.MULTILINE)
NO_PROSE = re.compile(r"^ *(#|\||<!--|!\[).*$", re.MULTILINE)
ITEM = re.compile(r"\n\s*\n|\n *(?:[-*]|\d+\.) ")  # paragraphs and list items
END = re.compile(r"(?<=[.!?])(?<!\bal\.)[)*”\"]* +(?=[^a-z(])")  # "et al. 2019" goes on


def sentences(text: str) -> list[str]:
    """Return the sentences of a page: no code, tables, headings or generated parts."""
    for left_out in (GENERATED, BLOCK, NO_PROSE):
        text = left_out.sub("\n", text)
    text = re.sub(r"`[^`]*`", "Code", text)  # one word
    parts = [" ".join(part.split()) for part in ITEM.split(f"\n{text}")]
    return [sentence for part in parts for sentence in END.split(part) if re.search(r"\w", sentence)]


def words(sentence: str) -> int:
    """Count what has a letter or digit in it; a link is its text."""
    return sum(bool(re.search(r"\w", word)) for word in re.sub(r"\]\([^)]*\)", "]", sentence).split())


def main(longest: int) -> None:
    """Print the table, longest average first."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    pages = [page for page in pages if not {"_build", "_generated"} & set(page.parts)]
    found = {page: sentences(page.read_text(encoding="utf-8")) for page in pages}
    averages = {page: sum(map(words, each)) / max(1, len(each)) for page, each in found.items()}
    for page in sorted(pages, key=averages.__getitem__, reverse=True):
        print(f"{averages[page]:5.1f}  {len(found[page]):4}  {page.relative_to(ROOT)}")  # noqa: T201
        for sentence in sorted(found[page], key=words, reverse=True)[:longest]:
            print(f"         {words(sentence):3}  {sentence}")  # noqa: T201
    every = [sentence for each in found.values() for sentence in each]
    print(f"{sum(map(words, every)) / len(every):5.1f}  {len(every):4}  all (goal: under {GOAL})")  # noqa: T201


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longest", type=int, default=0, help="show so many sentences of each page")
    main(parser.parse_args().longest)
