"""Parts train-open for the default model: python tools/default_data.py train-open.json.gz FOLDER.

Half of the paragraphs of one source are held out for the threshold. Articles drawn at random would do for nothing but
borrowed questions: 923 of the 946 unanswerable ones among 5% of them are questions of another paragraph, which are
easy to decline. This source has as many unanswerable as answerable questions, and people wrote them for its
paragraphs, as those of SQuAD 2.0's dev set. What is chosen depends on train-open alone.
"""

import gzip
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from bertvision.files import write_text

SOURCE = "squad-b"


def main(path: Path, folder: Path) -> None:
    """Write FOLDER/train.json and FOLDER/held_out.json."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        whole = json.load(file)
    for name, is_held_out in (("train", False), ("held_out", True)):
        articles = [article for article in whole["data"] if _is_held_out(article) == is_held_out]
        write_text(folder / f"{name}.json", json.dumps({**whole, "data": articles}) + "\n")
        questions = [question for article in articles for each in article["paragraphs"] for question in each["qas"]]
        impossible = sum(question["is_impossible"] for question in questions)
        print(f"{name}: {len(articles):,} articles, {len(questions):,} questions, {impossible:,} unanswerable")


def _is_held_out(article: dict[str, Any]) -> bool:
    """Draw half of the source's articles by their text, which are one paragraph each and have one title in common."""
    text = "".join(each["context"] for each in article["paragraphs"])
    return article["source"] == SOURCE and hashlib.sha256(text.encode()).digest()[0] < 128


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
