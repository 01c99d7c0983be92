"""The scores of the 2020 system (SPEC 4.2): word pieces compared as they are, no SQuAD normalisation."""

from collections import Counter
from collections.abc import Sequence

from bertvision.metrics.squad import Scores
from bertvision.tasks.task import Pieces


def score_pieces(golds: Sequence[Sequence[Pieces]], answers: Sequence[Pieces]) -> Scores:
    """Give both scores in percent; each question counts by its best gold, an unanswerable one has an empty gold."""
    exact = f1 = 0.0
    for wanted, answer in zip(golds, answers, strict=True):
        exact += answer in wanted
        f1 += max(piece_f1(gold, answer) for gold in wanted)
    return {"paper_v1_exact": 100.0 * exact / len(golds), "paper_v1_f1": 100.0 * f1 / len(golds)}


def piece_f1(gold: Pieces, answer: Pieces) -> float:
    """Give the F1 of two bags of word pieces; where one is empty, whether both are."""
    if not gold or not answer:
        return float(gold == answer)
    return 2 * (Counter(gold) & Counter(answer)).total() / (len(gold) + len(answer))
