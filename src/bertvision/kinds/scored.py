"""How kinds are judged whose prediction is a label of each example: scored, compared, and taken apart into tables."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bertvision.kinds.kind import AnyExample, AnyLabel, Bounds, Breakdown, Golds, Kind, Predicted
from bertvision.predictions.files import in_order, known_gold
from bertvision.predictions.prediction import AnswerConfig, RowPrediction
from bertvision.records import LEAST_EXAMPLES, Mistake
from bertvision.scoring import metrics
from bertvision.scoring.bootstrap import Draw, Floats, Paired, bounds_of, exact_difference, exact_interval
from bertvision.scoring.disagreements import EMPTY, OUTCOMES, Disagreement, Outcomes, count_right, shortened
from bertvision.scoring.label_tables import (
    ClassScores,
    TypeCounts,
    class_section,
    confusion_section,
    count_types,
    mean_words,
    score_classes,
    type_section,
)
from bertvision.scoring.metrics import (
    PAPER,
    ROW_SCORES,
    Compared,
    Summed,
    labels_for,
    resample_scores,
    resample_spearman,
)
from bertvision.scoring.mislabelled import suspect_classes
from bertvision.scoring.squad import Scores
from bertvision.tables import Table, figure, number_cell

MOST_CLASSES = 12  # that who-is-right is told for one by one


class JudgedKind(Kind):
    """A kind whose predictions have labels to compare with gold labels; classes are judged so, others override some."""

    summed: ClassVar[Mapping[str, Summed]] = ROW_SCORES
    grouped_by_class: ClassVar[bool] = False  # who is right is told by gold class, where these are few
    has_classes: ClassVar[bool] = False  # whether one class may be taken for another
    types: ClassVar[tuple[str, str] | None] = ("By class", "class")  # title and noun of a table of them
    has_total: ClassVar[bool] = False  # whether that table has a row of all together

    def gold(self, example: AnyExample) -> AnyLabel:
        """Return what an example's prediction is compared with."""
        return known_gold(example.id, example.label)

    def label(self, prediction: Predicted) -> AnyLabel:
        """Return what a model says of an example."""
        return prediction.label

    def said(self, prediction: Predicted) -> AnyLabel:
        """Return its label."""
        return self.label(prediction)

    def wanted(self, example: AnyExample) -> AnyLabel:
        """Return the gold label."""
        return self.gold(example)

    def identity(self, example: AnyExample) -> Hashable:
        """Return its texts: rows of any table may be numbered from 0 on."""
        return tuple(self.texts(example).values())

    def show(self, example: AnyExample, label: AnyLabel, labels: Sequence[str]) -> Any:  # noqa: ANN401 (of its kind)
        """Return a label as a reader wants it."""
        return labels[label]

    def named(self, label: AnyLabel, labels: Sequence[str]) -> set[tuple[Any, ...]]:
        """Return what is to be found in one example, the type's name first."""
        return {(labels[label],)}

    # Scores

    def score(self, golds: Golds, predictions: Sequence[Any], config: AnswerConfig | None = None) -> Scores:
        """Return the task's scores; one that has no value is absent. Every example needs exactly one prediction."""
        truth = np.array([self.gold(example) for example in golds.examples])
        rows = in_order(golds.examples, predictions)
        scores = {metric: _score(metric, truth, rows) for metric in golds.info.scores}
        return {metric: value for metric, value in scores.items() if value is not None}

    def guess_scores(self, golds: Golds, train: Sequence[Any]) -> Scores:
        """Score the guesses."""
        return self.score(golds, self.guesses(golds, train))

    def guesses(self, golds: Golds, train: Sequence[Any]) -> list[Any]:
        """Predict the commonest label of train."""
        guess = self.guess([self.gold(example) for example in train])
        return [RowPrediction(each.id, guess) for each in golds.examples]

    def guess(self, golds: Sequence[Any]) -> AnyLabel:
        """Return the commonest label."""
        counts = Counter(golds)
        return min(counts, key=lambda label: (-counts[label], label))

    def values(self, metric: str, golds: Golds, predictions: Sequence[Any]) -> metrics.Numbers | None:
        """Return what a metric compares with the golds; None where there are no predictions for it."""
        return labels_for(metric, predictions)

    def gold_values(self, golds: Golds) -> metrics.Numbers:
        """Return what predictions are compared with, [example] or [example, label]."""
        return np.array([self.gold(example) for example in golds.examples])

    # Two models

    def pair(
        self, golds: Golds, a: Sequence[Any], b: Sequence[Any], metrics: Sequence[str], draw: Draw
    ) -> dict[str, Paired]:
        """Return both models' scores and their differences in resamples."""
        one, other = (self.score(golds, side) for side in (a, b))
        # All scores, whichever are asked for: an interval must not depend on what stands beside it.
        resampled = self._resample(golds, (a, b), golds.info.scores, draw)
        return {metric: _paired(one.get(metric), other.get(metric), resampled.get(metric)) for metric in metrics}

    def lead(self, golds: Golds, a: Sequence[Any], b: Sequence[Any], metric: str, draw: Draw) -> Bounds | None:
        """Return how far a lies above b: exactly where the metric is a share of examples that are right."""
        one, other = (self._is_right(golds, side, metric) for side in (a, b))
        if one is None or other is None:
            return super().lead(golds, a, b, metric, draw)
        return exact_difference(int((one > other).sum()), int((other > one).sum()), len(one))

    def resample(self, golds: Golds, models: Sequence[Sequence[Any]], metric: str, draw: Draw) -> Floats:
        """Return a score of several models: of all examples, then in resamples that all of them share."""
        whole = np.array([self.score(golds, each).get(metric, np.nan) for each in models])
        return np.concatenate([whole[:, None], self._resample(golds, models, (metric,), draw)[metric]], axis=1)

    def _resample(
        self, golds: Golds, models: Sequence[Sequence[Any]], scores: Sequence[str], draw: Draw
    ) -> dict[str, Floats]:
        """Return models' scores on the same resamples, [model, resample]; of those that all models have."""
        truth, parts, ranked = self.gold_values(golds), {}, {}
        for metric in scores:
            found = [self.values(metric, golds, side) for side in models]
            sides = [each for each in found if each is not None]
            if len(sides) < len(found):
                continue
            if metric == "spearman":
                ranked[metric] = resample_spearman(truth, sides, draw.resamples, draw.seed)
            else:
                parts[metric] = Compared(self.summed[metric.removeprefix(PAPER)], truth, sides)
        return resample_scores(parts, draw) | ranked

    def outcomes(self, golds: Golds, a: Sequence[Any], b: Sequence[Any]) -> dict[str, Outcomes] | None:
        """Count who is right in all and, where classes are few, by gold class."""
        if not self.is_right_or_wrong:
            return None
        truths = [self.gold(example) for example in golds.examples]
        is_right = [[self.label(each) == gold for each, gold in zip(side, truths, strict=True)] for side in (a, b)]
        pairs = list(zip(*is_right, strict=True))
        groups: dict[str, list[tuple[bool, ...]]] = {}
        if self.grouped_by_class and len(golds.labels) <= MOST_CLASSES:
            groups = {name: [] for name in golds.labels}
            for gold, pair in zip(truths, pairs, strict=True):
                groups[golds.labels[gold]].append(pair)
        return {name: count_right(each) for name, each in {**groups, "all": pairs}.items()}

    def disagreements(self, golds: Golds, a: Sequence[Any], b: Sequence[Any], count: int) -> list[Disagreement]:
        """Return the first examples that two models answer differently."""
        same = zip(golds.examples, a, b, strict=True)
        differing = [each for each in same if self.label(each[1]) != self.label(each[2])]
        return [self._disagreement(golds, *each) for each in self.sorted_by_interest(differing)[:count]]

    def sorted_by_interest(self, differing: list[tuple[Any, Any, Any]]) -> list[tuple[Any, Any, Any]]:
        """Order examples with both predictions: as the gold file has them."""
        return differing

    def better(self, example: AnyExample, a: Predicted, b: Predicted) -> str:
        """Say who is nearer to the gold."""
        gold = self.gold(example)
        return f"{OUTCOMES[self.label(a) == gold, self.label(b) == gold]} right"

    def _disagreement(self, golds: Golds, example: AnyExample, a: Predicted, b: Predicted) -> Disagreement:
        answers = {"gold": self.gold(example), "a": self.label(a), "b": self.label(b)}
        shown = {name: self.show(example, each, golds.labels) for name, each in answers.items()}
        better, texts = self.better(example, a, b), self.texts(example)
        printed = {name: _printed(shown[key]) for name, key in (("gold", "gold"), ("A", "a"), ("B", "b"))}
        return Disagreement(
            {"id": example.id, "better": better, "texts": texts, **shown},
            f"{better}: {example.id}",
            printed | {name: shortened(text) for name, text in texts.items()},
            EMPTY,
        )

    # One model

    def intervals(self, golds: Golds, predictions: Sequence[Any], draw: Draw) -> dict[str, Bounds]:
        """Return the bounds of the task's scores; a score that has no value has none."""
        is_right = {metric: self._is_right(golds, predictions, metric) for metric in golds.info.scores}
        exact = {
            name: exact_interval(int(each.sum()), len(each)) for name, each in is_right.items() if each is not None
        }
        if len(predictions) < LEAST_EXAMPLES:
            return exact
        resampled = self._resample(golds, (predictions,), golds.info.scores, draw)
        found = {metric: each[0] for metric, each in resampled.items()}
        known = {metric: each[~np.isnan(each)] for metric, each in found.items()}
        return {metric: bounds_of(each) for metric, each in known.items() if len(each)} | exact

    def _is_right(self, golds: Golds, predictions: Sequence[Any], metric: str) -> metrics.Numbers | None:
        """Return which examples are right, 1 or 0; None where the metric is no share of these."""
        summed, values = self.summed.get(metric.removeprefix(PAPER)), self.values(metric, golds, predictions)
        if summed is None or not summed.is_proportion or values is None:
            return None
        return summed.parts(self.gold_values(golds), values)[:, 0]

    def confusions(self, golds: Golds, predictions: Sequence[Any]) -> dict[str, dict[str, int]]:
        """Count which class is taken for which; what never occurs is left out."""
        if not self.grouped_by_class:
            return {}
        pairs = zip(golds.examples, predictions, strict=True)
        counts = Counter((self.gold(example), self.label(each)) for example, each in pairs)
        names = list(enumerate(golds.labels))
        return {gold: {name: counts[one, other] for other, name in names if counts[one, other]} for one, gold in names}

    def errors(self, golds: Golds, predictions: Sequence[Any]) -> list[int]:
        """Return the wrong ones, the most confident first."""
        pairs = list(zip(golds.examples, predictions, strict=True))
        wrong = [place for place, (example, each) in enumerate(pairs) if self.label(each) != self.gold(example)]
        return sorted(wrong, key=lambda place: -self.wrongness(*pairs[place]))

    def wrongness(self, example: AnyExample, prediction: Predicted) -> float:
        """Return how bad a wrong prediction is: its probability."""
        return self.sureness(prediction) or 0.0

    def sureness(self, prediction: Predicted) -> float | None:
        """Return the probability of what is predicted; None where there is none."""
        shares: Sequence[float] = prediction.probabilities
        return shares[prediction.label] if shares else None

    def suspects(self, golds: Golds, predictions: Sequence[Any]) -> list[int] | None:
        """Return the rows whose class looks wrong."""
        if not all(each.probabilities for each in predictions):
            return None
        return suspect_classes(self.gold_values(golds), np.array([each.probabilities for each in predictions]))

    def mistake(self, golds: Golds, place: int, prediction: Predicted, split: str) -> Mistake:
        """Return an example with its label and the predicted one."""
        example = golds.examples[place]
        gold, predicted = (
            self.show(example, each, golds.labels) for each in (self.gold(example), self.label(prediction))
        )
        return Mistake(
            split=split,
            id=example.id,
            texts={name: shortened(text) for name, text in self.texts(example).items()},
            gold=_printed(gold) or EMPTY,
            predicted=_printed(predicted) or EMPTY,
            probability=self.sureness(prediction),
        )

    def break_down(self, golds: Golds, models: Mapping[str, Sequence[Any]]) -> Breakdown:
        """Take predictions apart by class, label or entity type."""
        truths = [self.gold(example) for example in golds.examples]
        given = {model: [self.label(each) for each in predictions] for model, predictions in models.items()}
        scores = {model: self.score(golds, predictions) for model, predictions in models.items()}
        types = self._count_types(golds.labels, truths, given) if self.types is not None else {}
        classes, words = self._score_classes(golds, truths, given) if self.has_classes else ({}, {})
        tables, numbers = self.more_tables(truths, given)
        sections = [_score_section(golds.info.scores, scores)]
        if classes:
            sections.append(class_section(classes, tuple(words), tuple(words.values())))
        if self.types is not None:
            sections.append(type_section(*self.types, types))
        sections += [confusion_section(model, each) for model, each in classes.items()]
        plain = {
            "task": golds.task,
            self.nouns: len(golds.examples),
            "scores": scores,
            "types": {model: {name: each.as_dict() for name, each in of.items()} for model, of in types.items()},
            "classes": {model: each.as_dict() for model, each in classes.items()},
            "mean_words": words,
            "numbers": numbers,
        }
        return Breakdown(plain, [*sections, *tables])

    def more_tables(self, golds: Sequence[Any], given: Mapping[str, Sequence[Any]]) -> tuple[list[Table], Any]:
        """Return further tables, and the same as JSON values."""
        return [], {}

    def _count_types(
        self, labels: Sequence[str], golds: Sequence[Any], given: Mapping[str, Sequence[Any]]
    ) -> dict[str, dict[str, TypeCounts]]:
        truth = [self.named(gold, labels) for gold in golds]
        named = {model: [self.named(each, labels) for each in found] for model, found in given.items()}
        return {
            model: count_types(truth, found, self.type_names(labels), has_total=self.has_total)
            for model, found in named.items()
        }

    def type_names(self, labels: Sequence[str]) -> Sequence[str] | None:
        """Return the types to list; None: those that are found or there."""
        return labels

    def _score_classes(
        self, golds: Golds, truths: Sequence[Any], given: Mapping[str, Sequence[Any]]
    ) -> tuple[dict[str, ClassScores], dict[str, float | None]]:
        texts = [tuple(self.texts(example).values()) for example in golds.examples]
        names = self.texts(golds.examples[0])
        words = dict(zip(names, mean_words(texts, len(names)), strict=True))
        return {model: score_classes(texts, truths, each, golds.labels) for model, each in given.items()}, words


def _paired(a: float | None, b: float | None, resampled: Floats | None) -> Paired:
    return Paired(a, b, None if resampled is None else resampled[1] - resampled[0])


def _score(metric: str, gold: metrics.Numbers, rows: Sequence[RowPrediction]) -> float | None:
    labels = labels_for(metric, rows)
    return None if labels is None else metrics.METRICS[metric.removeprefix(PAPER)](gold, labels)


def _score_section(names: Sequence[str], scores: Mapping[str, Scores]) -> Table:
    rows = tuple((name, *(number_cell(of_model.get(name), 2) for of_model in scores.values())) for name in names)
    return Table("Scores", ("metric", *scores), rows)


def _printed(value: Any) -> str:  # noqa: ANN401 (of its kind)
    if isinstance(value, list):
        return "; ".join(value)
    return figure(value) if isinstance(value, float) else str(value)
