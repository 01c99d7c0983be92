"""Best F1 of resampled questions, which no sums give: in each resample another threshold of "no answer" is best."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Question
from bertvision.metrics.resampling import Draw, Floats, draw_counts
from bertvision.metrics.squad import answer_worths


class Sweep(NamedTuple):
    """What each answer adds as the threshold rises, from where the model abstains from all questions."""

    abstained: Floats  # what "no answer" is worth, by question
    order: npt.NDArray[np.int64]  # the questions whose answers change the score, by rising odds of "no answer"
    gains: Floats  # by how much they do: their F1, or -1 where "no answer" was right


def build_sweep(questions: Sequence[Question], spans: Mapping[str, str], null_odds: Mapping[str, float]) -> Sweep:
    """Order a model's best spans as the official script does: one by one, and where odds are equal as in their file."""
    place_of = {each.id: place for place, each in enumerate(questions)}
    f1 = answer_worths(questions, spans).f1
    gains = np.array([-float(bool(spans[each.id])) if each.is_impossible else f1[each.id] for each in questions])
    rising = np.array([place_of[each] for each in sorted(null_odds, key=null_odds.__getitem__)])
    order = rising[gains[rising] != 0]
    return Sweep(np.array([float(each.is_impossible) for each in questions]), order, gains[order])


def best_f1(sweep: Sweep, counts: Floats) -> Floats:
    """Return the official best F1 in percent, questions counted so often: [resample, question] -> [resample]."""
    nothing = counts @ sweep.abstained  # whole numbers, so exact for any number of threads
    sums = np.take(counts, sweep.order, axis=1)  # takes half as long as an index does
    sums *= sweep.gains
    sums[:, :1] += nothing[:, None]
    np.cumsum(sums, axis=1, out=sums)  # from left to right, as the official script adds
    best: Floats = 100.0 * np.maximum(nothing, sums.max(axis=1, initial=0.0)) / counts.sum(axis=1)
    return best


def resample_best_f1(sweeps: Sequence[Sweep], draw: Draw) -> Floats:
    """Return every model's best F1 of the questions as they are, then of the same resamples: [model, 1 + resample]."""
    found = [[best_f1(sweep, np.ones((1, len(draw.units)))) for sweep in sweeps]]
    kinds = np.ones(int(draw.units.max()) + 1, dtype=np.int64)
    for drawn in draw_counts(kinds, draw.resamples, draw.seed):
        counts = np.take(drawn, draw.units, axis=1)  # a question comes as often as its article
        found.append([best_f1(sweep, counts) for sweep in sweeps])
    return np.concatenate(found, axis=1)
