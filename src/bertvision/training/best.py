"""The weights of the best evaluation of a training, and when to stop waiting for better ones."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor, nn

from bertvision.records import TrainingPoint
from bertvision.training.checkpoint import BEST, load_tensors
from bertvision.training.sharding import load_whole, whole_tensors


class BestWeights:
    """Keeps a model's weights in the host's memory whenever none before had a better score."""

    def __init__(
        self, model: nn.Module, points: Sequence[TrainingPoint] = (), saved: Path | None = None, *, is_asked: bool
    ) -> None:
        """Begin with none, or go on with those that `save_progress` left; without `is_asked` none are ever kept."""
        self._model, self._is_asked = model, is_asked
        self._scores = {point.step: point.score for point in points if point.score is not None}
        self.tensors: dict[str, Tensor] = {}
        if is_asked and saved is not None and (saved / BEST).exists():
            self.tensors = load_tensors(saved / BEST)

    @property
    def step(self) -> int | None:
        """Return the step that they are of; None where there are none."""
        return [*self._scores][best_of([*self._scores.values()])] if self.tensors else None

    def offer(self, step: int, score: float | None) -> None:
        """Keep the weights as they are now, if this is the best score."""
        if not self._is_asked or score is None:
            return
        self._scores[step] = score
        if best_of([*self._scores.values()]) == len(self._scores) - 1:
            self.tensors = {
                name: value.detach().to("cpu", copy=True)
                for name, value in whole_tensors(self._model.state_dict()).items()
            }

    def is_over(self, patience: int | None) -> bool:
        """Return whether so many evaluations in a row were no better."""
        scores = [*self._scores.values()]
        return patience is not None and bool(scores) and len(scores) - 1 - best_of(scores) >= patience

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within this the model has them, where there are any."""
        if not self.tensors:
            yield
            return
        last = {name: value.detach().clone() for name, value in self._model.state_dict().items()}
        load_whole(self._model, self.tensors)
        try:
            yield
        finally:
            self._model.load_state_dict(last)


def best_of(scores: Sequence[float | None]) -> int:
    """Return the place of the first best score; the last where nothing was scored."""
    known = [(score, -place) for place, score in enumerate(scores) if score is not None]
    return -max(known)[1] if known else len(scores) - 1
