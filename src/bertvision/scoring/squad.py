"""The official SQuAD 1.1 and 2.0 scores, digit for digit, and the best span's score on answerable questions.

The official scripts add floating-point numbers in the order of the gold file with Python's own `+` or `sum`; so does
this module, because another order can change the last digit.
"""

import math
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from bertvision.data.example import Question
from bertvision.errors import DataError
from bertvision.predictions.prediction import Prediction

Scores = dict[str, float]
ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Worths(NamedTuple):
    """What every answer is worth by itself, by question."""

    exact: dict[str, float]
    f1: dict[str, float]


def score_squad2(
    questions: Sequence[Question],
    answers: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    na_prob_thresh: float = 1.0,
) -> Scores:
    """Return what evaluate-v2.0 prints; with null odds, an answer whose odds exceed the threshold counts as none.

    The best-threshold scores mean something only if `answers` holds the best span of every question, not an empty
    text where the model abstained.
    """
    return _score_worths(questions, answers, answer_worths(questions, answers), null_odds, na_prob_thresh)


def score_squad1(questions: Sequence[Question], answers: Mapping[str, str]) -> Scores:
    """Return what evaluate-v1.1 prints: a question without a prediction scores 0."""
    exact = f1 = 0.0
    for each in questions:
        if each.is_impossible:
            raise DataError(f"question {each.id!r} has no gold answer, which SQuAD 1.1 does not know; score squad2")
        if each.id in answers:
            exact += _best(exact_match, _texts(each), answers[each.id])
            f1 += _best(_token_f1_v1, _texts(each), answers[each.id])
    return {"exact_match": 100.0 * exact / len(questions), "f1": 100.0 * f1 / len(questions)}


def score_predictions(
    questions: Sequence[Question], predictions: Sequence[Prediction], threshold: float = 0.0
) -> Scores:
    """Score a model's predictions officially, at a null threshold and at the best one, and its best spans.

    `best_span_HasAns_*` is how well the best span answers the answerable questions when it may not abstain.
    """
    spans = {each.question_id: each.best_span for each in predictions}
    odds = {each.question_id: each.null_odds for each in predictions if each.null_odds is not None}
    worths = answer_worths(questions, spans)
    scores = _score_worths(questions, spans, worths, odds, threshold) if odds else score_squad1(questions, spans)
    return scores | _best_span_scores(questions, worths)


def _score_worths(
    questions: Sequence[Question],
    answers: Mapping[str, str],
    worths: Worths,
    null_odds: Mapping[str, float] | None,
    na_prob_thresh: float,
) -> Scores:
    if null_odds is not None:
        _check_ids(questions, null_odds, "null odds")
        _check_numbers(null_odds)
    exact, f1 = worths
    odds = null_odds if null_odds is not None else dict.fromkeys(exact, 0.0)
    abstained = {each.id for each in questions if odds[each.id] > na_prob_thresh}
    answerable = {each.id: not each.is_impossible for each in questions}
    exact_then, f1_then = (_with_abstained(raw, abstained, answerable) for raw in (exact, f1))
    scores = _means(exact_then, f1_then, list(exact))
    for prefix, wanted in (("HasAns", True), ("NoAns", False)):
        if ids := [each for each, has in answerable.items() if has == wanted]:
            scores |= {f"{prefix}_{name}": value for name, value in _means(exact_then, f1_then, ids).items()}
    if null_odds is not None:
        rising = dict(sorted(((each, odd) for each, odd in odds.items() if each in exact), key=itemgetter(1)))
        for name, raw in (("exact", exact), ("f1", f1)):
            best, threshold = _best_threshold(raw, answers, rising, answerable)
            scores |= {f"best_{name}": best, f"best_{name}_thresh": threshold}
    return scores


def _best_span_scores(questions: Sequence[Question], worths: Worths) -> Scores:
    answerable = [each.id for each in questions if not each.is_impossible]
    if not answerable:
        return {}
    plain = _means(*worths, answerable)
    return {"best_span_HasAns_exact": plain["exact"], "best_span_HasAns_f1": plain["f1"]}


def answer_worths(questions: Sequence[Question], answers: Mapping[str, str]) -> Worths:
    """Return what each answer is worth by itself, officially, when all of them count."""
    _check_ids(questions, answers, "prediction")
    worths = Worths({}, {})
    for each in questions:
        golds, answer = _golds(each), answers[each.id]
        worths.exact[each.id] = exact = _best(exact_match, golds, answer)
        worths.f1[each.id] = exact or _best(token_f1, golds, answer)  # equal texts have an F1 of 1
    return worths


@lru_cache(maxsize=1 << 18)  # golds are compared with every model's answers, many times over
def normalize_answer(text: str) -> str:
    """Lower the text, drop punctuation and articles, and join what is left with single blanks."""
    # The official script drops articles before comparing, so "the Rhine" equals "Rhine".
    return " ".join(ARTICLES.sub(" ", text.lower().translate(WITHOUT_PUNCTUATION)).split())


def exact_match(gold: str, answer: str) -> int:
    """Return 1 where the normalised texts are equal."""
    return int(normalize_answer(gold) == normalize_answer(answer))


def token_f1(gold: str, answer: str) -> float:
    """Return the F1 of the normalised words, order ignored; where one side has none, whether both have none."""
    gold_words, words = normalize_answer(gold).split(), normalize_answer(answer).split()
    if not gold_words or not words:
        return int(gold_words == words)
    return _f1(gold_words, words)


def _token_f1_v1(gold: str, answer: str) -> float:
    """Return the F1 as version 1.1 computes it: 0 where nothing is shared, so also where both are empty."""
    return _f1(normalize_answer(gold).split(), normalize_answer(answer).split())


def _f1(gold_words: list[str], words: list[str]) -> float:
    left, shared = list(gold_words), 0
    for word in words:
        if word in left:
            left.remove(word)
            shared += 1
    if shared == 0:
        return 0
    precision, recall = 1.0 * shared / len(words), 1.0 * shared / len(gold_words)
    return (2 * precision * recall) / (precision + recall)


def _best(metric: Callable[[str, str], float], golds: Iterable[str], answer: str) -> float:
    return max(metric(gold, answer) for gold in golds)


def _texts(question: Question) -> list[str]:
    return list(dict.fromkeys(answer.text for answer in question.answers))  # annotators often agree


def _golds(question: Question) -> list[str]:
    """Return the texts that count as right: version 2.0 leaves out golds that normalise to nothing."""
    return [text for text in _texts(question) if normalize_answer(text)] or [""]


def _with_abstained(raw: Mapping[str, float], abstained: set[str], answerable: Mapping[str, bool]) -> Scores:
    return {each: float(not answerable[each]) if each in abstained else value for each, value in raw.items()}


def _means(exact: Mapping[str, float], f1: Mapping[str, float], ids: Sequence[str]) -> Scores:
    return {
        "exact": 100.0 * sum(exact[each] for each in ids) / len(ids),
        "f1": 100.0 * sum(f1[each] for each in ids) / len(ids),
        "total": len(ids),
    }


def _best_threshold(
    raw: Mapping[str, float], answers: Mapping[str, str], rising: Mapping[str, float], answerable: Mapping[str, bool]
) -> tuple[float, float]:
    """Sweep the threshold up the odds: each question answered adds its score or, if unanswerable, costs one."""
    current: float = sum(1 for has in answerable.values() if not has)
    best, threshold = current, 0.0
    for each, odd in rising.items():
        if answerable[each]:
            current += raw[each]
        elif answers[each]:
            current -= 1
        if current > best:
            best, threshold = current, odd
    return 100.0 * best / len(raw), threshold


def _check_ids(questions: Sequence[Question], given: Mapping[str, object], what: str) -> None:
    missing = [each.id for each in questions if each.id not in given]
    if missing:
        raise DataError(
            f"no {what} for {len(missing)} of {len(questions)} questions, such as {missing[0]!r}; "
            + ("predict an empty string where the model gives no answer" if what == "prediction" else "predict again")
        )


def _check_numbers(odds: Mapping[str, float]) -> None:
    for question, value in odds.items():
        if math.isnan(value):
            raise DataError(
                f"the null odds of question {question!r} are not a number; the model diverged, train it again"
            )
