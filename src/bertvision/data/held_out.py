"""Which examples are kept from training.

A slice of the training data, whole articles, for thresholds, temperatures and weights; or one split -> as many pairs of
train and dev as there are folds.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertvision.data.example import Example, Question, Sentence, Split
from bertvision.errors import DataError
from bertvision.files import write_text


def hold_out(split: Split[Question], share: float) -> tuple[Split[Question], Split[Question]]:
    """Part a share of the questions, the same for every seed, from the others.

    Articles are taken in the order of their titles' hashes, each with all articles that it shares a paragraph with, so
    that no text is on both sides; those that would overshoot the share are passed over.
    """
    taken = _take_articles(split.examples, share * len(split.examples))
    sides: dict[bool, list[Question]] = {True: [], False: []}
    for question in split.examples:
        sides[article_of(question) in taken].append(question)
    if not sides[False]:
        raise DataError(
            f"{split.name}: data.held_out={share:g} would take all of its {len(taken)} articles (those that share a "
            "paragraph go together), and one must stay to learn from; set data.held_out=0 or give more articles"
        )
    held_out = Split(f"{split.name}, held out", tuple(sides[True]), 0, split.sha256)
    return replace(split, examples=tuple(sides[False])), held_out


def check_apart(train: Split[Question], held_out: Split[Question]) -> None:
    """Refuse a held-out split that shares a paragraph with what is learned from."""
    known = {question.context for question in train.examples}
    shared = [question for question in held_out.examples if question.context in known]
    if shared:
        raise DataError(
            f"{held_out.name}: {len(shared):,} of its questions, such as {shared[0].id!r}, are about paragraphs of "
            f"{train.name}; what is held out must not be learned from: leave these paragraphs out of one of them"
        )


def article_of(question: Question) -> str:
    """Name the article that a question belongs to: its title or, without one, the paragraph itself."""
    return question.title or question.context


def write_squad(path: Path, questions: Sequence[Question]) -> None:
    """Write questions as a SQuAD file, articles and paragraphs in the order in which they first appear."""
    paragraphs: dict[str, dict[str, list[Question]]] = defaultdict(lambda: defaultdict(list))
    for question in questions:
        paragraphs[question.title][question.context].append(question)
    articles = [{"title": title, "paragraphs": list(_paragraphs(each))} for title, each in paragraphs.items()]
    version = "v2.0" if any(question.is_impossible for question in questions) else "1.1"
    write_text(path, json.dumps({"version": version, "data": articles}) + "\n")


def _take_articles(questions: Iterable[Question], wanted: float) -> set[str]:
    contexts: dict[str, set[str]] = defaultdict(set)
    articles: dict[str, set[str]] = defaultdict(set)
    sizes: Counter[str] = Counter()
    for question in questions:
        article = article_of(question)
        contexts[article].add(question.context)
        articles[question.context].add(article)
        sizes[article] += 1
    groups: list[set[str]] = []  # articles that share a paragraph, directly or through others
    seen: set[str] = set()
    for first in sorted(sizes, key=_hash):
        together, going = set[str](), {first} - seen
        while going:
            together |= going
            going = {article for each in going for text in contexts[each] for article in articles[text]} - together
        seen |= together
        groups += [together] if together else []
    size_of = {min(group): sum(sizes[article] for article in group) for group in groups}
    taken: set[str] = set()
    for group in groups:
        if size_of[min(group)] <= wanted:
            taken |= group
            wanted -= size_of[min(group)]
    return taken or min(groups, key=lambda group: size_of[min(group)])


def _hash(unit: str) -> bytes:
    return hashlib.sha256(unit.encode(errors="surrogatepass")).digest()


def _paragraphs(questions_by_context: dict[str, list[Question]]) -> Iterator[dict[str, Any]]:
    for context, questions in questions_by_context.items():
        yield {"context": context, "qas": [_qa(question) for question in questions]}


def _qa(question: Question) -> dict[str, Any]:
    return {
        "id": question.id,
        "question": question.text,
        "is_impossible": question.is_impossible,
        "answers": [{"text": answer.text, "answer_start": answer.start} for answer in question.answers],
    }


def fold(split: Split[Example], k: int, n: int) -> tuple[Split[Example], Split[Example]]:
    """Return the k-th of n folds (counted from 1) as dev and all others as train, the same each time.

    Documents (of questions: articles) stay whole where there are at least n of them; otherwise examples are dealt one
    by one. They are dealt in the order of their hashes, so that neighbours go to different folds.
    """
    units = [_unit(example) for example in split.examples]
    if len(set(units)) < n:
        units = [example.id for example in split.examples]
    if len(units) < n:
        raise DataError(f"{split.name}: {len(units)} examples cannot be parted into {n} folds; ask for fewer")
    dealt = {unit: place % n for place, unit in enumerate(sorted(set(units), key=_hash))}
    is_dev = [dealt[unit] == k - 1 for unit in units]
    train = tuple(example for example, held in zip(split.examples, is_dev, strict=True) if not held)
    dev = tuple(example for example, held in zip(split.examples, is_dev, strict=True) if held)
    name = f"{split.name}, fold {k} of {n}"
    return replace(split, name=f"{name}, the others", examples=train), Split(name, dev, 0, split.sha256)


def _unit(example: Example) -> str:
    match example:
        case Sentence(document=document):
            return str(document)
        case Question():
            return article_of(example)
        case _:
            return example.id
