"""What every pooler is: states -> features per token, with a config of its own."""

from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import Field

from bertvision.settings import Config
from bertvision.shapes import LayerStates, Segments, TokenFeatures, TokenMask

TaskKind = Literal["span", "class"]  # logits per token (start, end), or per row

Width = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]  # a number, or a share of the hidden size


class PoolerBase(Config):
    """The base of poolers' configs."""

    tasks: ClassVar[tuple[TaskKind, ...]] = ("span", "class")  # what its features can be read out for
    classes_from: ClassVar[Literal["first token", "all tokens"]] = "first token"


class Pooler(Protocol):
    """A module with a number of features."""

    features: int

    def __call__(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Give features for every token; what padding holds must not change those of real tokens."""
        ...


def width_of(width: float, hidden: int) -> int:
    """Turn a share of the hidden size into a number; numbers stay as they are."""
    return width if isinstance(width, int) else max(1, round(width * hidden))
