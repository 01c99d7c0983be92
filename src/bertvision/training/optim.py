"""Parameter groups, optimizers and schedules."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from bertvision.settings import Config

Beta = Annotated[float, Field(ge=0, lt=1)]
Named = tuple[str, nn.Parameter]


class OptimConfig(Config):
    """AdamW and its schedule; the learning rate stands beside it in each stage's own config."""

    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: float = Field(1e-8, gt=0)
    bias_correction: bool = True  # false: as in BERT's own optimizer and the 2021 code
    weight_decay: float = Field(0.01, ge=0)  # never on biases and norms
    schedule: Literal["linear", "constant"] = "constant"
    warmup: float = Field(0.0, ge=0, lt=1)  # share of all steps
    max_grad_norm: float | None = Field(1.0, gt=0)


def build_optimizer(
    model: nn.Module, lr: float, config: OptimConfig, rates: Mapping[str, float] | None = None
) -> Optimizer:
    """Build AdamW over the trainable parameters, in two groups: with and without weight decay.

    `rates` are other learning rates than `lr`, by a word of the parameters' names: two more groups for each.
    """
    groups = [
        {"params": params, "weight_decay": decay, "lr": rate}
        for rate, named in _by_rate(model, lr, rates or {}).items()
        for params, decay in zip(_by_decay(named), (config.weight_decay, 0.0), strict=True)
        if params
    ]
    settings: dict[str, Any] = {"lr": lr, "betas": config.betas, "eps": config.eps}
    if not config.bias_correction:
        return UncorrectedAdamW(groups, **settings)
    return AdamW(groups, fused=True, **settings)


class Schedule:
    """Sets the learning rate of the step that comes next; its whole state is how many steps were taken.

    torch's own schedulers warn when a first step is left out (its gradient may not be finite) and keep more to save.
    """

    def __init__(self, optimizer: Optimizer, rate: Callable[[int], float]) -> None:
        self._optimizer, self._rate = optimizer, rate
        self._bases = [float(group["lr"]) for group in optimizer.param_groups]
        self.go_to(0)

    def go_to(self, taken: int) -> None:
        """Set the rate that holds after a number of steps."""
        self.taken = taken
        for group, base in zip(self._optimizer.param_groups, self._bases, strict=True):
            group["lr"] = base * self._rate(taken)

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


class UncorrectedAdamW(Optimizer):
    """AdamW without bias correction, which torch does not have: early steps are larger by design.

    BERT was trained with it, and the 2021 system fine-tuned with it (`correct_bias=False`). Like torch's fused
    optimizers it leaves a step out where `found_inf` is 1, and divides gradients by `grad_scale`; unlike them it makes
    the host wait for the former.
    """

    found_inf: Tensor | None = None
    grad_scale: Tensor | None = None

    def __init__(self, params: Iterable[Any], lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        if self.found_inf is not None and self.found_inf.item():
            return
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            if params and self.grad_scale is not None:
                torch._foreach_div_([param.grad for param in params], self.grad_scale)
            if params:
                self._update(params, [param.grad for param in params], group)

    def _update(self, params: list[Tensor], grads: list[Tensor], group: dict[str, Any]) -> None:
        (beta1, beta2), lr = group["betas"], group["lr"]
        firsts = [self._moment(param, "exp_avg") for param in params]
        seconds = [self._moment(param, "exp_avg_sq") for param in params]
        torch._foreach_lerp_(firsts, grads, 1 - beta1)
        torch._foreach_mul_(seconds, beta2)
        torch._foreach_addcmul_(seconds, grads, grads, 1 - beta2)
        scales = torch._foreach_sqrt(seconds)
        torch._foreach_add_(scales, group["eps"])
        torch._foreach_mul_(params, 1 - lr * group["weight_decay"])
        torch._foreach_addcdiv_(params, firsts, scales, -lr)

    def _moment(self, param: Tensor, name: str) -> Tensor:
        state: dict[str, Tensor] = self.state[param]
        if name not in state:
            state[name] = torch.zeros_like(param)
        return state[name]


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
