"""Which examples are kept from training.

A slice of the training data, of questions whole articles, on which something is chosen; or one split -> as many pairs
of train and dev as there are folds.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertvision.data.example import ChoiceRow, Example, Question, Sentence, Split, TextRow
from bertvision.errors import DataError
from bertvision.files import write_json, write_text


def hold_out(split: Split[Example], share: float) -> tuple[Split[Example], Split[Example]]:
    """Part a share of the examples, the same for every seed, from the others.

    They are taken in the order of their hashes: of questions whole articles, each with all articles that it shares a
    paragraph with, of sentences whole documents, and of others those with the same text together. So no text is on both
    sides. What would overshoot the share is passed over.
    """
    units = _units(split.examples)
    taken = _take_units(split.examples, units, share * len(units))
    sides: dict[bool, list[Example]] = {True: [], False: []}
    for example, unit in zip(split.examples, units, strict=True):
        sides[unit in taken].append(example)
    if not sides[False]:
        raise DataError(
            f"{split.name}: data.held_out={share:g} would take all of its {len(taken)} articles, documents or texts "
            "(those that share a paragraph go together), and one must stay to learn from; set data.held_out=0 or give "
            "more of them"
        )
    held_out = Split(f"{split.name}, held out", tuple(sides[True]), 0, split.sha256)
    return replace(split, examples=tuple(sides[False])), held_out


def check_apart(train: Split[Example], held_out: Split[Example]) -> None:
    """Refuse a held-out split that shares a text with what is learned from: of questions, a paragraph."""
    known = {_text_of(example) for example in train.examples}
    shared = [example for example in held_out.examples if _text_of(example) in known]
    if shared:
        raise DataError(
            f"{held_out.name}: {len(shared):,} of its examples, such as {shared[0].id!r}, have texts of {train.name} "
            "(a question: its paragraph); what is held out must not be learned from: leave these out of one of them"
        )


def write_held_out(path: Path, examples: Sequence[Question] | Sequence[TextRow | ChoiceRow | Sentence]) -> None:
    """Write held-out questions as a SQuAD file, and of others a list of their ids."""
    questions = [example for example in examples if isinstance(example, Question)]
    if questions:
        write_squad(path, questions)
    else:
        write_json(path, [example.id for example in examples])


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


def _units(examples: Sequence[Question | TextRow | ChoiceRow | Sentence]) -> list[str]:
    """Name what each example is held out with; a file of one document is taken sentence by sentence."""
    documents = {example.document for example in examples if isinstance(example, Sentence)}
    return [_text_of(each) if len(documents) == 1 else _kept_together(each) for each in examples]


def _kept_together(example: Question | TextRow | ChoiceRow | Sentence) -> str:
    match example:
        case Question():
            return article_of(example)
        case Sentence(document=document):
            return str(document)
        case _:
            return _text_of(example)


def _text_of(example: Question | TextRow | ChoiceRow | Sentence) -> str:
    """Return what an example must not have in common with one that is held out."""
    match example:
        case TextRow(texts=texts):
            return "\n".join(texts)
        case Sentence(words=words):
            return " ".join(words)
        case _:
            return example.context


def _take_units(
    examples: Iterable[Question | TextRow | ChoiceRow | Sentence], units: Iterable[str], wanted: float
) -> set[str]:
    contexts: dict[str, set[str]] = defaultdict(set)
    articles: dict[str, set[str]] = defaultdict(set)
    sizes: Counter[str] = Counter()
    for example, unit in zip(examples, units, strict=True):
        context = example.context if isinstance(example, Question) else unit
        contexts[unit].add(context)
        articles[context].add(unit)
        sizes[unit] += 1
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
    units = [cluster_of(example) for example in split.examples]
    if len(set(units)) < n:
        units = [example.id for example in split.examples]
    if len(units) < n:
        raise DataError(
            f"{split.name}: {len(units)} examples cannot be parted into {n} folds; ask for fewer, or name a file as dev"
        )
    dealt = {unit: place % n for place, unit in enumerate(sorted(set(units), key=_hash))}
    is_dev = [dealt[unit] == k - 1 for unit in units]
    train = tuple(example for example, held in zip(split.examples, is_dev, strict=True) if not held)
    dev = tuple(example for example, held in zip(split.examples, is_dev, strict=True) if held)
    name = f"{split.name}, fold {k} of {n}"
    return replace(split, name=f"{name}, the others", examples=train), Split(name, dev, 0, split.sha256)


def cluster_of(example: Question | TextRow | ChoiceRow | Sentence) -> str:
    """Name what an example is like others in: its article or document; one that has none is alone."""
    match example:
        case Sentence(document=document):
            return str(document)
        case Question():
            return article_of(example)
        case _:
            return example.id
