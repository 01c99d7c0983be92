"""Parameter groups, optimizers and schedules."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from bertvision.training.config import OptimConfig

Named = tuple[str, nn.Parameter]
BETAS = (0.9, 0.999)  # of AdamW's moments, as in all of the papers' systems
STEPS_UNTIL_UNCORRECTED = 1e8  # 0.9999999 to the power of it is below float32's precision


def build_optimizer(
    model: nn.Module,
    lr: float,
    config: OptimConfig,
    rates: Mapping[str, float] | None = None,
    *,
    capturable: bool = False,
) -> Optimizer:
    """Build AdamW over the trainable parameters, in two groups: with and without weight decay.

    `rates` are other learning rates than `lr`, by a word of the parameters' names: two more groups for each. A group
    without parameters is left out: its rate is nobody's. An optimizer whose steps are to be captured in a CUDA graph
    has its rates on the device.
    """
    groups = [
        {"params": params, "weight_decay": decay, "lr": rate}
        for rate, named in _by_rate(model, lr, rates or {}).items()
        for params, decay in zip(_by_decay(named), (config.weight_decay, 0.0), strict=True)
        if params
    ]
    optimizer = AdamW(groups, lr=lr, betas=BETAS, eps=config.eps, fused=True, capturable=capturable)
    if capturable:
        device = next(model.parameters()).device
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(float(group["lr"]), device=device)
    if not config.bias_correction:
        _forgo_correction(optimizer)
    return optimizer


def _forgo_correction(optimizer: AdamW) -> None:
    """Count steps from where the correction of AdamW's moments has become 1, so that early steps are larger by design.

    BERT was trained without it, and the 2021 system fine-tuned without it (`correct_bias=False`).
    """
    for group in optimizer.param_groups:
        for param in group["params"]:
            optimizer.state[param] = {
                "step": torch.tensor(STEPS_UNTIL_UNCORRECTED, device=param.device),
                "exp_avg": torch.zeros_like(param),
                "exp_avg_sq": torch.zeros_like(param),
            }


class Schedule:
    """Sets the learning rate of the step that comes next; its whole state is how many steps were taken.

    torch's own schedulers warn when a first step is left out (its gradient may not be finite) and keep more to save.
    """

    def __init__(self, optimizer: Optimizer, rate: Callable[[int], float]) -> None:
        self._optimizer, self._rate = optimizer, rate
        self._factor: float | None = None  # that holds now
        self._bases = [float(group["lr"]) for group in optimizer.param_groups]
        self.go_to(0)

    def go_to(self, taken: int) -> None:
        """Set the rate that holds after a number of steps."""
        self.taken, before = taken, self._factor
        self._factor = self._rate(taken)
        if self._factor == before:
            return
        for group, base in zip(self._optimizer.param_groups, self._bases, strict=True):
            if isinstance(group["lr"], Tensor):  # in place: a CUDA graph reads it there
                group["lr"].fill_(base * self._factor)
            else:
                group["lr"] = base * self._factor

    def rate_of(self, number: int) -> float:
        """Return the largest rate of a step, counted from 1."""
        return max(self._bases) * self._rate(number - 1)

    def step(self) -> None:
        """Go on by one step."""
        self.go_to(self.taken + 1)


def build_schedule(optimizer: Optimizer, config: OptimConfig, num_steps: int) -> Schedule:
    """Build the learning-rate schedule for a training of `num_steps` steps."""
    return Schedule(optimizer, rate_by_step(config, num_steps))


def rate_by_step(config: OptimConfig, num_steps: int) -> Callable[[int], float]:
    """Return the factor on the learning rate for each step: up over the warmup, then flat or down to 0."""
    warmup = round(config.warmup * num_steps)

    def rate(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        if config.schedule == "constant":
            return 1.0
        return max(0.0, (num_steps - step) / max(1, num_steps - warmup))

    return rate


def _by_rate(model: nn.Module, lr: float, rates: Mapping[str, float]) -> dict[float, list[Named]]:
    by_rate: dict[float, list[Named]] = {lr: []}
    for name, param in model.named_parameters():
        if param.requires_grad:
            rate = next((rate for word, rate in rates.items() if word in name.split(".")), lr)
            by_rate.setdefault(rate, []).append((name, param))
    return by_rate


def _by_decay(named: Sequence[Named]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Split parameters into weights, and biases, norms and mixing weights: the latter have one axis or none.

    Only the biases of layers that lie stacked in one tensor have more, so these go by their name.
    """
    decayed = [param for name, param in named if param.ndim > 1 and not name.endswith("bias")]
    return decayed, [param for name, param in named if param.ndim <= 1 or name.endswith("bias")]
