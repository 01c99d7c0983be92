"""Precision, recall and F1 of entities as conlleval (CoNLL-2000 to 2003) computes them, and the accuracy of tags."""

from collections.abc import Sequence
from typing import NamedTuple

from bertvision.metrics.squad import Scores

Tags = Sequence[str]


class Entity(NamedTuple):
    """Words [first, end) of one sentence."""

    first: int
    end: int
    type: str


def score_tags(gold: Sequence[Tags], found: Sequence[Tags]) -> Scores:
    """Score the tags of sentences: an entity is right if its first word, last word and type are.

    As in conlleval, precision is 0 where nothing was found, and recall where there is nothing to find.
    """
    gold_sets, found_sets = ([set(entities(tags)) for tags in side] for side in (gold, found))
    right = sum(len(one & other) for one, other in zip(gold_sets, found_sets, strict=True))
    precision = _percent(right, sum(map(len, found_sets)))
    recall = _percent(right, sum(map(len, gold_sets)))
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    pairs = [pair for one, other in zip(gold, found, strict=True) for pair in zip(one, other, strict=True)]
    accuracy = _percent(sum(one == other for one, other in pairs), len(pairs))
    return {"precision": precision, "recall": recall, "f1": f1, "accuracy": accuracy}


def entities(tags: Tags) -> list[Entity]:
    """Find the entities of one sentence; an I that continues nothing begins one."""
    found: list[Entity] = []
    for place, tag in enumerate(tags):
        if tag == "O":
            continue
        last = found[-1] if found else None
        if tag[0] == "I" and last is not None and last.end == place and last.type == tag[2:]:
            found[-1] = last._replace(end=place + 1)
        else:
            found.append(Entity(place, place + 1, tag[2:]))
    return found


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
