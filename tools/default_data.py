"""Parts train-open for the models that ship: python tools/default_data.py train-open.json.gz FOLDER.

Half of the paragraphs of one source are held out for the threshold. Articles drawn at random would do for nothing but
borrowed questions: 923 of the 946 unanswerable ones among 5% of them are questions of another paragraph, which are
easy to decline. This source has as many unanswerable as answerable questions, and people wrote them for its
paragraphs, as those of SQuAD 2.0's dev set. What is chosen depends on train-open alone.

Both parts also get short passages, lest a model abstain where a passage is one plain sentence: of an eighth of the
answerable questions the sentence that holds the answer, and with every second of these a question that the rest of its
paragraph answers and the sentence does not.
"""

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arguments import read_arguments

from bertvision.data.passages import Passage, stems_of, topic_words
from bertvision.files import write_text

SOURCE = "squad-b"
SHORT = 256 // 8  # of 256 possible first bytes of an answerable question's hash: those whose sentence is a passage
SHARED = 2  # stems of a question that its sentence must hold, lest it make no sense without the rest


def main(path: Path, folder: Path) -> None:
    """Write FOLDER/train.json and FOLDER/held_out.json."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        whole = json.load(file)
    for name, is_held_out in (("train", False), ("held_out", True)):
        articles = [_with_short(article) for article in whole["data"] if _is_held_out(article) == is_held_out]
        write_text(folder / f"{name}.json", json.dumps({**whole, "data": articles}) + "\n")
        questions = [question for article in articles for each in article["paragraphs"] for question in each["qas"]]
        impossible = sum(question["is_impossible"] for question in questions)
        print(f"{name}: {len(articles):,} articles, {len(questions):,} questions, {impossible:,} unanswerable")


def _is_held_out(article: dict[str, Any]) -> bool:
    """Draw half of the source's articles by their text, which are one paragraph each and have one title in common."""
    text = "".join(each["context"] for each in article["paragraphs"])
    return article["source"] == SOURCE and _first_byte(text) < 128


def _with_short(article: dict[str, Any]) -> dict[str, Any]:
    """Add passages of one sentence to an article."""
    short = [passage for paragraph in article["paragraphs"] for passage in _short_passages(paragraph)]
    return {**article, "paragraphs": [*article["paragraphs"], *short]}


def _short_passages(paragraph: dict[str, Any]) -> Iterator[dict[str, Any]]:
    answerable = [question for question in paragraph["qas"] if not question["is_impossible"]]
    for question in answerable:
        drawn = _first_byte(question["id"])
        if drawn >= SHORT or (sentence := _sentence_of(paragraph["context"], question)) is None:
            continue
        start, text = sentence
        answers = [{**each, "answer_start": each["answer_start"] - start} for each in question["answers"]]
        whole = [each for each in answers if text[each["answer_start"] :].startswith(each["text"])]
        short = {
            **question,
            "id": f"{question['id']}-sentence",
            "answers": [e for e in whole if e["answer_start"] >= 0],
        }
        others = [each for each in answerable if not _may_be_answered(each, text)]
        other = {"id": f"{question['id']}-rest", "answers": [], "is_impossible": True}
        taken = [{**others[drawn % len(others)], **other}] if others and drawn % 2 else []
        yield {"context": text, "qas": [short, *taken]}


def _sentence_of(context: str, question: dict[str, Any]) -> tuple[int, str] | None:
    """Return the sentence that holds the first answer, with its first character, where it answers by itself."""
    start = question["answers"][0]["answer_start"]
    end = start + len(question["answers"][0]["text"])
    for sentence in Passage(context).sentences:
        if sentence.start <= start and end <= sentence.end:
            text = context[sentence.start : sentence.end].rstrip()
            return (sentence.start, text) if _may_be_answered(question, text) else None
    return None


def _may_be_answered(question: dict[str, Any], text: str) -> bool:
    """Return whether a text has enough of a question's words to be taken for what answers it."""
    asked = stems_of(" ".join(topic_words(question["question"])))
    return len(asked & stems_of(text)) >= min(SHARED, len(asked))


def _first_byte(text: str) -> int:
    return hashlib.sha256(text.encode()).digest()[0]


if __name__ == "__main__":
    main(*map(Path, read_arguments(__doc__, "TRAIN_OPEN", "FOLDER")))
