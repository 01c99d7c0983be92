"""What is minimised and by which steps, as settings; apart from the code, so that they are checked without torch."""

from typing import Annotated, Literal

from pydantic import Field

from bertvision.settings import Config

SpanLoss = Literal["sum", "mean"]
Start = Literal["zero", "prior"]  # of a readout's bias; prior: what `start_of` gives


class OptimConfig(Config):
    """AdamW and its schedule; the learning rate stands beside it in each stage's own config."""

    eps: float = Field(1e-8, gt=0)
    bias_correction: bool = True  # false: as in BERT's own optimizer and the 2021 code
    weight_decay: float = Field(0.01, ge=0)  # never on biases and norms
    schedule: Literal["linear", "constant"] = "constant"
    warmup: float = Field(0.0, ge=0, lt=1)  # share of all steps
    max_grad_norm: float | None = Field(1.0, gt=0)


class TeacherConfig(Config):
    """A trained model whose logits are learned beside the labels (Hinton et al. 2015); of several, their mean."""

    # A MODEL_DIR of the same task whose encoder has the same vocabulary, or several.
    model: str | Annotated[tuple[str, ...], Field(min_length=1)]
    loss_weight: float = Field(0.5, gt=0, le=1)  # of the teacher in the loss; the rest is the labels'
    temperature: float = Field(1.0, ge=1)  # that both models' logits are divided by

    @property
    def models(self) -> tuple[str, ...]:
        """Return all of them."""
        return (self.model,) if isinstance(self.model, str) else self.model
