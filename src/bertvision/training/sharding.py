"""An encoder in training that is split over the processes of a run, as FSDP does it: each keeps a part of every weight.

Gradients and what an optimizer keeps are split alike. A block is whole while it computes, and its gradients are added
up while they are split again. What leaves the run (checkpoints, encoders) is put together, and split when it is read.
"""

import warnings
from collections.abc import Mapping

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor


def shard(model: nn.Module, mesh: DeviceMesh) -> None:
    """Split a model's weights over processes, block by block, each on its device; all processes take part.

    Gradients come out as sums, like those that `Processes.add_up` makes, not as means.
    """
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")  # nothing here writes to states
    pooler, kind = getattr(model, "pooler", None), type(model)  # packed steps run a pooler by itself
    for module in (*_blocks_of(model), *([] if pooler is None else [pooler]), model):
        sharded = fully_shard(module, mesh=mesh, reshard_after_forward=True)
        sharded.set_force_sum_reduction_for_comms(True)
        sharded.set_gradient_divide_factor(1.0)
    model.__class__ = kind  # transformers knows by the class which states it can return; what FSDP does is in hooks


def _blocks_of(model: nn.Module) -> list[nn.Module]:
    """List the blocks of any kind of encoder: what its largest list of modules holds."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return list(max(lists, key=lambda each: sum(param.numel() for param in each.parameters()), default=()))


def is_sharded(tensor: Tensor) -> bool:
    """Return whether this process has only a part of a tensor."""
    return isinstance(tensor, DTensor)


def own_part(tensor: Tensor) -> Tensor:
    """Return what this process has of a tensor, which may be nothing of it, or all."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole_tensors(tensors: Mapping[str, Tensor], *, is_kept: bool = True) -> dict[str, Tensor]:
    """Put split tensors together in the host's memory; others stay as they are.

    All processes take part. One that needs none of them has nothing kept.
    """
    whole = {}
    for name, value in tensors.items():
        together = value.full_tensor() if isinstance(value, DTensor) else value
        if is_kept:
            whole[name] = together.cpu() if isinstance(value, DTensor) else together
    return whole


def split_like(tensor: Tensor, other: Tensor) -> Tensor:
    """Return this process's part of a whole tensor, where it has only a part of the other one."""
    if not isinstance(other, DTensor):
        return tensor
    return distribute_tensor(tensor.to(other.device), other.device_mesh, other.placements, src_data_rank=None)


def load_whole(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load weights that `whole_tensors` gave into a model, which may be split."""
    own = model.state_dict()
    model.load_state_dict({name: split_like(value, own.get(name, value)) for name, value in tensors.items()})
