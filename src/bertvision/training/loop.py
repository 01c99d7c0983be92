"""`train_steps`: the one training loop, for the encoder and for any number of heads side by side."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, get_total_norm
from torch.optim import Optimizer

from bertvision.training.optim import Schedule
from bertvision.training.random_stream import RandomStream

# A single step may overflow; this many in a row mean that the weights will not recover.
MAX_BAD_STEPS_IN_A_ROW = 10


@runtime_checkable
class Batch(Protocol):
    """Anything that knows how many examples it holds."""

    @property
    def size(self) -> int:
        """Count the examples."""
        ...


@dataclass
class Learner:
    """One thing that learns: a model with its own loss, optimizer, schedule, clipping and randomness."""

    name: str
    model: nn.Module
    loss_of: Callable[[Any], Tensor]  # mean over a batch's examples; mixed precision lives in here
    optimizer: Optimizer
    schedule: Schedule
    stream: RandomStream
    max_grad_norm: float | None = 1.0
    bad_steps: int = 0  # steps left out because loss or gradient was not finite
    bad_in_a_row: int = 0
    _parameters: list[nn.Parameter] = field(init=False)

    def __post_init__(self) -> None:
        self._parameters = [param for param in self.model.parameters() if param.requires_grad]
        self._draws = any(isinstance(module, nn.modules.dropout._DropoutNd) for module in self.model.modules())

    @property
    def diverged(self) -> bool:
        """Tell whether this learner has stopped for good."""
        return self.bad_in_a_row >= MAX_BAD_STEPS_IN_A_ROW

    def give_up(self) -> None:
        """Stop this learner for good."""
        self.bad_in_a_row = MAX_BAD_STEPS_IN_A_ROW

    def backward(self, batches: Sequence[Batch]) -> tuple[Tensor, Tensor]:
        """Add up the gradients of one step; gives its loss (mean over all examples) and the gradients' norm."""
        self.model.train()  # the caller may have evaluated since the last step
        num_examples = sum(batch.size for batch in batches)
        loss = torch.zeros(())
        with self.stream.entered() if self._draws else nullcontext():
            for batch in batches:
                part = self.loss_of(batch) * (batch.size / num_examples)
                part.backward()  # type: ignore[no-untyped-call]
                loss = loss.to(part.device) + part.detach()
        if self.max_grad_norm is not None:
            return loss, clip_grad_norm_(self._parameters, self.max_grad_norm)
        return loss, get_total_norm([param.grad for param in self._parameters if param.grad is not None])

    def update(self, is_finite: bool) -> None:
        """Take the step, or leave it out where it would spoil the weights."""
        if is_finite:
            self.optimizer.step()
            self.bad_in_a_row = 0
        else:
            self.bad_steps += 1
            self.bad_in_a_row += 1
        self.schedule.step()
        self.optimizer.zero_grad()


class Step(NamedTuple):
    """One step of all learners over the same examples."""

    number: int  # counted from 1
    num_examples: int
    losses: dict[str, float]  # of the learners that took part; may be NaN


def train_steps(learners: Sequence[Learner], steps: Iterable[Sequence[Batch]], first_number: int = 1) -> Iterator[Step]:
    """Let every learner take one step on each element of `steps` (one batch, or several to accumulate).

    Between two steps the caller may log, evaluate, save or stop. A learner that diverged takes no further part.
    """
    for number, batches in enumerate(steps, start=first_number):
        learning = [learner for learner in learners if not learner.diverged]
        if not learning:
            return
        results = [learner.backward(batches) for learner in learning]
        # One transfer for all learners: on a GPU the host waits once a step.
        values = torch.stack([torch.stack([loss, norm.to(loss)]) for loss, norm in results]).tolist()
        for learner, (loss, norm) in zip(learning, values, strict=True):
            learner.update(is_finite=_finite(loss) and _finite(norm))
        losses = {learner.name: loss for learner, (loss, _) in zip(learning, values, strict=True)}
        yield Step(number, sum(batch.size for batch in batches), losses)


def _finite(number: float) -> bool:
    return number - number == 0.0
