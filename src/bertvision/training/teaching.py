"""Learning from a larger model's logits beside the labels."""

from collections.abc import Callable

from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from bertvision.kinds.kind import Kind
from bertvision.settings import Config
from bertvision.training.losses import SpanLoss
from bertvision.windows.batches import WindowBatch

Teach = Callable[[WindowBatch], Tensor]  # gives a teacher's logits of a batch


class TeacherConfig(Config):
    """A trained model whose logits are learned beside the labels (Hinton et al. 2015)."""

    model: str  # a MODEL_DIR of the same task whose encoder has the same vocabulary
    share: float = Field(0.5, gt=0, le=1)  # of the teacher in the loss; the rest is the labels'
    temperature: float = Field(1.0, ge=1)  # that both models' logits are divided by


def taught_loss(
    kind: Kind,
    logits: Float[Tensor, "batch ..."],
    taught: Float[Tensor, "batch ..."],
    temperature: float,
    how: SpanLoss,
) -> Tensor:
    """Give the cross-entropy of a teacher's probabilities (of tokens, or of classes), mean over the windows.

    Times the squared temperature, so that gradients keep their size. `how` joins start and end as `span_loss` does.
    """
    is_of_tokens = kind.softmax == "tokens"
    over = 1 if is_of_tokens else -1
    wanted = (taught.float() / temperature).softmax(dim=over)
    each = F.log_softmax(logits.float() / temperature, dim=over) * wanted
    total = -each.sum() / len(logits) * temperature**2
    return total / 2 if is_of_tokens and how == "mean" else total
