"""`train_steps`: the one training loop, for the encoder and for any number of heads side by side.

Each learner has randomness of its own: what one draws does not depend on who else draws.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bertvision.training.accounting import give_back_memory
from bertvision.training.device import StepGraphs
from bertvision.training.distributed import ALONE, Processes
from bertvision.training.optim import Schedule

# A single step may overflow; this many in a row mean that the weights will not recover.
MAX_BAD_STEPS_IN_A_ROW = 10
# The host asks after learners that diverged once in so many steps; between two askings it never waits for the device.
STEPS_BETWEEN_LOOKS = 50


class RandomStream:
    """A place in torch's random numbers that is entered for a while and kept when left."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=self._devices):
            torch.manual_seed(seed)
            self.states = self._read()

    @contextmanager
    def entered(self, processes: Processes = ALONE) -> Iterator[None]:
        """Let everything inside draw from this stream; of several processes, each draws numbers of its own.

        What is kept of the stream is the same in all of them, so that the main one can save it for all.
        """
        with torch.random.fork_rng(devices=self._devices):
            torch.set_rng_state(self.states[0])
            for device, state in zip(self._devices, self.states[1:], strict=True):
                torch.cuda.set_rng_state(state, device)
            if processes.count > 1:
                drawn = int(torch.randint(2**62, ()))
                self.states = self._read()
                torch.manual_seed(seed_for(drawn, str(processes.rank)))
            yield
            if processes.count == 1:
                self.states = self._read()

    def _read(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self._devices)]


def seed_for(seed: int, *names: str) -> int:
    """Derive a seed for one purpose, the same wherever and beside whatever it is used."""
    digest = hashlib.sha256("/".join([str(seed), *names]).encode()).digest()
    return int.from_bytes(digest[:7], "big")


@runtime_checkable
class Batch(Protocol):
    """Anything that knows how many examples it holds."""

    @property
    def size(self) -> int:
        """Count the examples."""
        ...

    def share_of(self, num_examples: int) -> float:
        """Return by what its loss is multiplied in a step of so many examples."""
        ...


class Still(NamedTuple):
    """A weight, or some of its numbers, whose true gradient is zero, so that training leaves it as it is.

    A softmax does not see what is added to all that it is over. Rounding does, and Adam would make full steps of it:
    others on every machine, and heads that are trained afterwards would see them.
    """

    weight: nn.Parameter
    part: slice = slice(None)


class Frozen(NamedTuple):
    """Some numbers of a weight that keep their value exactly: no gradient reaches them, and no weight decay."""

    weight: nn.Parameter
    mask: Tensor  # true where frozen


def draws_in_training(model: nn.Module) -> bool:
    """Return whether a model draws random numbers in training."""
    return any(isinstance(each, nn.modules.dropout._DropoutNd) and each.p > 0 for each in model.modules())


@dataclass
class Learner:
    """One thing that learns: a model with its own optimizer, schedule, clipping and randomness."""

    name: str
    model: nn.Module
    optimizer: Optimizer
    schedule: Schedule
    stream: RandomStream
    max_grad_norm: float | None = 1.0
    still: Sequence[Still] = ()
    frozen: Sequence[Frozen] = ()

    def __post_init__(self) -> None:
        self._draws = draws_in_training(self.model)

    @property
    def draws(self) -> bool:
        """Return whether its model draws random numbers in training."""
        return self._draws

    def gradients(self) -> list[Tensor]:
        """Return the gradients of the last backward pass."""
        return [param.grad for param in self.model.parameters() if param.grad is not None]

    def clear_noise(self) -> None:
        """Set the gradients to zero that are zero but for rounding, and those of frozen numbers."""
        noise = [weight.grad[part] for weight, part in self.still if weight.grad is not None]
        if noise:
            torch._foreach_zero_(noise)
        for weight, mask in self.frozen:
            if weight.grad is not None:
                weight.grad.masked_fill_(mask, 0)

    def update(self, is_bad: Tensor, divisor: Tensor) -> None:
        """Take the step with gradients divided by a number, or none where it is bad: both are known to the device only.

        Optimizers do this under the names that torch's own gradient scaler uses.
        """
        self.optimizer.found_inf, self.optimizer.grad_scale = is_bad, divisor  # type: ignore[attr-defined]
        weights = [weight.detach() for weight, _ in self.frozen]
        before = [weight.clone() for weight in weights]
        self.optimizer.step()
        for weight, (_, mask), kept in zip(weights, self.frozen, before, strict=True):
            weight.copy_(torch.where(mask, kept, weight))  # weight decay moves what has no gradient, too
        self.optimizer.zero_grad()


class Group:
    """Learners whose losses come out of one computation; what goes wrong with one of them leaves the others alone.

    `losses_of` gives one loss per learner, the mean over a batch's examples; mixed precision lives in there. A learner
    that draws random numbers has a group of its own, so that it draws from its own stream. With `graphs` steps on
    batches of a shape seen before are replayed by the device. Of several `processes` each has batches of its own, and
    all take the step on the sum of their gradients.
    """

    def __init__(
        self,
        learners: Sequence[Learner],
        losses_of: Callable[[Any], Tensor],
        graphs: StepGraphs | None = None,
        processes: Processes = ALONE,
    ) -> None:
        assert len(learners) == 1 or not any(learner.draws for learner in learners)
        self.learners, self._losses_of, self._graphs = list(learners), losses_of, graphs
        self._processes = processes
        device = next(self.learners[0].model.parameters()).device
        limits = [learner.max_grad_norm or torch.inf for learner in self.learners]
        self._limits = torch.tensor(limits, device=device)
        self.bad_steps = torch.zeros(len(self.learners), device=device)  # left out: loss or gradient was not finite
        self.bad_in_a_row = torch.zeros(len(self.learners), device=device)
        self.diverged = torch.zeros(len(self.learners), dtype=torch.bool, device=device)

    def step(self, batches: Sequence[Any]) -> Tensor:
        """Let every learner take one step on the mean over all examples of the batches; gives their losses."""
        with ExitStack() as streams:
            for learner in self.learners:
                learner.model.train()  # the caller may have evaluated since the last step
                if learner.draws:
                    streams.enter_context(learner.stream.entered(self._processes))
            losses = self._take(batches) if self._graphs is None else self._graphs.run(self._take, batches)
        for learner in self.learners:
            learner.schedule.step()
        return losses

    def _take(self, batches: Sequence[Batch]) -> Tensor:
        """Do what a step is on the device, which may replay it: nothing here waits for it or depends on the step."""
        losses = self._backward(batches)
        gradients = [each for learner in self.learners for each in learner.gradients()]
        self._processes.add_up([losses, *gradients])
        for learner in self.learners:
            learner.clear_noise()
        norms = self._gradient_norms()
        is_bad = ~(losses.isfinite() & norms.isfinite())
        self.bad_steps += is_bad & ~self.diverged
        self.bad_in_a_row.copy_((self.bad_in_a_row + 1) * is_bad)
        self.diverged |= self.bad_in_a_row >= MAX_BAD_STEPS_IN_A_ROW
        is_left_out = (is_bad | self.diverged).float().unbind()
        divisors = ((norms + 1e-6) / self._limits).clamp(min=1).unbind()  # as clip_grad_norm_ has it
        for learner, left_out, divisor in zip(self.learners, is_left_out, divisors, strict=True):
            learner.update(left_out, divisor)
        return losses

    def give_up(self) -> None:
        """Drop the learners whose last step was a bad one: their weights answer nothing."""
        self.diverged |= self.bad_in_a_row > 0

    def _backward(self, batches: Sequence[Batch]) -> Tensor:
        num_examples = sum(batch.size for batch in batches)
        losses = torch.zeros_like(self.bad_steps)
        for batch in batches:
            part = self._losses_of(batch) * batch.share_of(num_examples)
            part.sum().backward()
            losses += part.detach()
        return losses

    def _gradient_norms(self) -> Tensor:
        """Return each learner's norm, without mixing them: one that is infinite stays among its own."""
        gradients = [learner.gradients() for learner in self.learners]
        norms = iter(torch._foreach_norm([each for own in gradients for each in own]))
        return torch.stack([torch.linalg.vector_norm(torch.stack([next(norms) for _ in own])) for own in gradients])


class Step(NamedTuple):
    """One step of all learners over the same examples."""

    number: int  # counted from 1
    results: list[tuple[Group, Tensor]]

    @property
    def losses(self) -> dict[str, float]:
        """Read the losses of the learners that have not diverged; may be NaN. The host waits for the device here."""
        losses = {}
        for group, values in self.results:
            seen = torch.stack([values, group.diverged.to(values)]).tolist()
            for learner, loss, diverged in zip(group.learners, *seen, strict=True):
                if not diverged:
                    losses[learner.name] = loss
        return losses


def train_steps(groups: Sequence[Group], steps: Iterable[Sequence[Batch]], first_number: int = 1) -> Iterator[Step]:
    """Let every learner take one step on each element of `steps` (one batch, or several to accumulate).

    Between two steps the caller may log, evaluate, save or stop. A learner that diverged takes no further part; when
    all have, the steps end.
    """
    for number, batches in enumerate(steps, start=first_number):
        results = [(group, group.step(batches)) for group in groups]
        yield Step(number, results)
        if number % STEPS_BETWEEN_LOOKS == 0:
            give_back_memory()
            if len(diverged_among(groups)) == sum(len(g.learners) for g in groups):
                return


def diverged_among(groups: Sequence[Group]) -> list[str]:
    """Name the learners that have stopped for good; the host waits for the device here."""
    flags = [(group.learners, group.diverged.tolist()) for group in groups]
    return [each.name for learners, over in flags for each, is_over in zip(learners, over, strict=True) if is_over]
