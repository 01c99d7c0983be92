"""One split -> as many pairs of train and dev as there are folds."""

import hashlib
from dataclasses import replace

from bertvision.data.example import Example, Question, Sentence, Split
from bertvision.data.held_out import article_of
from bertvision.errors import DataError


def fold(split: Split[Example], k: int, n: int) -> tuple[Split[Example], Split[Example]]:
    """Give the k-th of n folds (counted from 1) as dev and all others as train, the same each time.

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


def _hash(unit: str) -> bytes:
    return hashlib.sha256(unit.encode()).digest()
