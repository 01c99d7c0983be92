"""The frozen bottom of an encoder, all that lies below the first block that learns; and the encoder without it.

The bottom runs in eval mode: without dropout a row's state behind it is the same whenever it is computed, so it can be
kept and given to the blocks above, and training cannot tell whether it was.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from torch import Tensor, nn
from transformers import PreTrainedModel

from bertvision.encoder.tuning.blocks import blocks_of, parts_of
from bertvision.encoder.tuning.freezing import first_trained_block
from bertvision.shapes import TokenFeatures


def first_above_bottom(model: PreTrainedModel) -> int | None:
    """Give the first block that learns (layers + 1 where none does); None where no block lies below it."""
    first = first_trained_block(model)
    return first if first > 1 else None


def bottom_of(model: PreTrainedModel, first: int) -> list[nn.Module]:
    """List the modules that make the input of a block, in the order in which they run."""
    parts, modules, below = parts_of(model), dict(model.named_modules()), blocks_of(model)[: first - 1]
    before = [modules[name] for path in parts.before if (name := path.removesuffix(".")) in modules]
    return [*before, *below[:1], *(modules[path] for path in parts.behind_first if path in modules), *below[1:]]


def quiet_bottom(model: PreTrainedModel, first: int) -> None:
    """Put what lies below a block into eval mode; `model.train()` undoes it."""
    for module in bottom_of(model, first):
        module.eval()


def state_entering(model: PreTrainedModel, first: int, run: Callable[[], object]) -> TokenFeatures:
    """Give the state that enters a block in a forward pass `run`, which ends there."""
    handle = bottom_of(model, first)[-1].register_forward_hook(_stop)
    try:
        run()
    except _Reached as reached:
        return reached.state
    finally:
        handle.remove()
    raise AssertionError(f"the pass did not run block {first - 1}")


@contextmanager
def starting_at(model: PreTrainedModel, first: int, state: TokenFeatures) -> Iterator[None]:
    """Within this, forward passes start at a block: what lies below it gives a state instead of running.

    What stands outside of the blocks (masks, relative positions) is computed as always. Of `output_hidden_states` those
    below the block are not the encoder's.
    """
    below, blocks = bottom_of(model, first), blocks_of(model)
    for module in below:
        given = (state, None) if parts_of(model).gives_pair and module in blocks else state
        module.__dict__["forward"] = partial(_give, given)  # in front of the class's own
    try:
        yield
    finally:
        for module in below:
            del module.__dict__["forward"]


class _Reached(Exception):  # noqa: N818 (no error: it ends a pass)
    def __init__(self, state: Tensor) -> None:
        super().__init__()
        self.state = state


def _stop(_module: nn.Module, _arguments: object, output: Tensor | tuple[Tensor | None, ...]) -> None:
    state = output[0] if isinstance(output, tuple) else output
    assert state is not None
    raise _Reached(state)


def _give(given: object, *_arguments: object, **_keywords: object) -> object:
    return given
