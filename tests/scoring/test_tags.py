import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertvision.scoring.metrics import entities, score_tags

TAGS = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])
PAIRS = st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=8), min_size=1, max_size=5)


def parts(tag):
    return ("O", "") if tag == "O" else tuple(tag.split("-", 1))


def chunk_ends(before, tag):
    """conlleval's endOfChunk, for the tags of IOB."""
    (old, old_type), (new, new_type) = parts(before), parts(tag)
    return (old in "BI" and new in "BO") or (old != "O" and old_type != new_type)


def chunk_starts(before, tag):
    """conlleval's startOfChunk, for the tags of IOB."""
    (old, old_type), (new, new_type) = parts(before), parts(tag)
    return new == "B" or (old == "O" and new == "I") or (new != "O" and old_type != new_type)


def conlleval(sentences):
    """Count as conlleval's main loop does, word by word, with an O after every sentence."""
    correct = guessed = gold_chunks = right_tags = words = 0
    inside = False
    gold_before = found_before = "O"
    for gold, found in (pair for sentence in sentences for pair in [*sentence, ("O", "O")]):
        gold_ends, found_ends = chunk_ends(gold_before, gold), chunk_ends(found_before, found)
        if inside:
            if gold_ends and found_ends and parts(gold_before)[1] == parts(found_before)[1]:
                inside, correct = False, correct + 1
            elif gold_ends != found_ends or parts(gold)[1] != parts(found)[1]:
                inside = False
        starts = chunk_starts(gold_before, gold), chunk_starts(found_before, found)
        if all(starts) and parts(gold)[1] == parts(found)[1]:
            inside = True
        gold_chunks, guessed = gold_chunks + starts[0], guessed + starts[1]
        gold_before, found_before = gold, found
    for sentence in sentences:
        right_tags += sum(gold == found for gold, found in sentence)
        words += len(sentence)
    precision = 100 * correct / guessed if guessed else 0.0
    recall = 100 * correct / gold_chunks if gold_chunks else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return {"precision": precision, "recall": recall, "f1": f1, "accuracy": 100 * right_tags / words}


@given(PAIRS)
def test_scores_are_conllevals(sentences):
    gold = [[pair[0] for pair in sentence] for sentence in sentences]
    found = [[pair[1] for pair in sentence] for sentence in sentences]
    assert score_tags(gold, found) == pytest.approx(conlleval(sentences))


def test_the_counts_of_conllevals_own_example_give_its_scores():
    # Its page: 459 phrases, found 539, correct 371; precision 68.83%, recall 80.83%, FB1 74.35.
    gold = [["B-NP"]] * 371 + [["B-NP"]] * 88 + [["O"]] * 168
    found = [["B-NP"]] * 371 + [["O"]] * 88 + [["B-NP"]] * 168
    scores = score_tags(gold, found)
    assert [round(scores[name], 2) for name in ("precision", "recall", "f1")] == [68.83, 80.83, 74.35]


def test_an_entity_ends_where_its_sentence_does():
    scores = score_tags([["B-PER"], ["B-PER"]], [["B-PER"], ["I-PER"]])
    assert (scores["f1"], scores["accuracy"]) == (100.0, 50.0)


def test_an_inside_without_beginning_is_an_entity():
    assert entities(["I-PER", "I-PER", "I-LOC", "B-LOC", "O"]) == [(0, 2, "PER"), (2, 3, "LOC"), (3, 4, "LOC")]


def test_finding_nothing_scores_0_and_all_o_has_its_accuracy():
    scores = score_tags([["B-PER", "O", "O", "O"]], [["O"] * 4])
    assert scores == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "accuracy": 75.0}


def test_entities_of_other_schemes_are_whole():
    assert entities(["B-PER", "E-PER", "S-PER", "O"]) == [(0, 2, "PER"), (2, 3, "PER")]
    assert entities(["PER", "PER", "LOC", "O", "LOC"]) == [(0, 2, "PER"), (2, 3, "LOC"), (4, 5, "LOC")]
