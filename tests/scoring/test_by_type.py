import numpy as np
import pytest

from bertvision.data.example import Sentence, TextRow
from bertvision.kinds.kind import Golds
from bertvision.predictions.prediction import RowPrediction, TagPrediction
from bertvision.scoring.label_tables import TypeCounts, type_section
from bertvision.scoring.metrics import score_tags
from bertvision.tasks import TASKS

GOLD = [("B-PER", "I-PER", "O", "B-LOC"), ("B-ORG", "O")]
FOUND = [("B-PER", "I-PER", "O", "B-ORG"), ("B-ORG", "I-ORG")]


def count_types(task, labels, golds, found):
    """Return the counts that a breakdown shows, as tuples."""
    if task == "ner":
        examples = [Sentence(str(n), ("x",) * len(tags), tags, 0) for n, tags in enumerate(golds)]
        predictions = [TagPrediction(str(n), tags) for n, tags in enumerate(found)]
    else:
        examples = [TextRow(str(n), ("x",), label) for n, label in enumerate(golds)]
        predictions = [RowPrediction(str(n), label) for n, label in enumerate(found)]
    broken = TASKS[task].kind.break_down(Golds(task, TASKS[task], examples, tuple(labels)), {"A": predictions})
    return {
        name: TypeCounts(*(each[key] for key in TypeCounts._fields))
        for name, each in broken.plain["types"]["A"].items()
    }


def test_entities_are_counted_by_type_and_all_together():
    assert count_types("ner", (), GOLD, FOUND) == {
        "LOC": (1, 0, 0),
        "ORG": (1, 2, 0),  # one where a place is, one that is a word too long
        "PER": (1, 1, 1),
        "all": (3, 3, 1),
    }


def test_all_entities_together_score_as_conlleval_does():
    every, official = count_types("ner", (), GOLD, FOUND)["all"], score_tags(GOLD, FOUND)
    assert (every.precision, every.recall, every.f1) == pytest.approx(
        (official["precision"], official["recall"], official["f1"])
    )


def test_labels_of_label_sets_are_counted_one_by_one():
    gold, found = np.random.default_rng(0).integers(0, 2, (2, 30, 3))
    counts = count_types("multilabel", ("x", "y", "z"), [*map(tuple, gold.tolist())], [*map(tuple, found.tolist())])
    for place, name in enumerate("xyz"):
        assert counts[name] == (gold[:, place].sum(), found[:, place].sum(), (gold * found)[:, place].sum())
    assert counts["all"] == (gold.sum(), found.sum(), (gold * found).sum())


def test_classes_are_listed_in_their_order_also_where_nobody_is_of_one():
    assert count_types("classification", ("b", "a", "c"), [0, 1, 1], [0, 0, 1]) == {
        "b": (1, 2, 1),
        "a": (2, 1, 1),
        "c": (0, 0, 0),
    }


def test_shares_are_in_percent_and_none_where_there_is_nothing_to_divide_by():
    found = TypeCounts(gold=4, predicted=2, right=1)
    assert (found.precision, found.recall, found.f1) == (50, 25, pytest.approx(100 * 2 * 0.5 * 0.25 / 0.75))
    assert TypeCounts(0, 0, 0).as_dict()["f1"] is None
    assert (TypeCounts(0, 1, 0).precision, TypeCounts(0, 1, 0).recall, TypeCounts(0, 1, 0).f1) == (0, None, 0)


def test_a_type_that_one_model_alone_gives_has_empty_cells_for_the_other():
    models = {"A": {"x": TypeCounts(1, 1, 1), "all": TypeCounts(1, 1, 1)}, "B": {"y": TypeCounts(0, 2, 0)}}
    section = type_section("By entity type", "type", models)
    assert section.header == ("type", "gold", "prec. A", "recall A", "F1 A", "prec. B", "recall B", "F1 B")
    assert section.rows == (
        ("x", "1", "100.0", "100.0", "100.0", "", "", ""),
        ("y", "0", "", "", "", "0.0", "", "0.0"),
        ("all", "1", "100.0", "100.0", "100.0", "", "", ""),
    )
