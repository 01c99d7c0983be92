"""Puts a share of a tuned encoder's feed-forward weights into the encoder as it was before (SPEC 10.3).

    python tools/inject.py ENCODER TUNED OUT --share 0.5 [--seed 1]

TUNED is such as `RUN/encoder/4`. Every single number of the blocks' feed-forward layers is the tuned one with this
probability; all else is ENCODER's. OUT is an encoder like any other. As in the original it is scored without training,
its output layer fresh:

    bertvision run EXPERIMENT --set encoder=OUT --set finetune.fractions='[0]'
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from bertvision.encoder.load import load_encoder
from bertvision.encoder.tuning.adapter_file import save_plain
from bertvision.encoder.tuning.blocks import parts_of, plain_parameters
from bertvision.errors import EncoderError
from bertvision.files import given_folder
from bertvision.training.loop import seed_for


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the encoder, and say how many numbers of it are the tuned ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder")
    parser.add_argument("tuned")
    parser.add_argument("out", type=Path)
    parser.add_argument("--share", type=float, required=True)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    injected = inject(given.encoder, given.tuned, given.out, given.share, given.seed)
    print(f"{given.out}: {injected:,} numbers are the tuned ones")  # noqa: T201


def inject(encoder: str, tuned: str, out: Path, share: float, seed: int = 1) -> int:
    """Write an encoder with a share of another one's feed-forward weights, and count these numbers."""
    fresh, source = load_encoder(encoder), load_encoder(tuned)
    own, given = plain_parameters(fresh.model), plain_parameters(source.model)
    injected = 0
    for name in feed_forward_names(fresh.model):
        if name not in given or given[name].shape != own[name].shape:
            raise EncoderError(f"{tuned}: not tuned from {encoder}, as {name} shows; give the encoder that it began as")
        generator = torch.Generator().manual_seed(seed_for(seed, "inject", name))
        mask = torch.rand(own[name].shape, generator=generator) < share
        own[name].data = torch.where(mask, given[name].data, own[name].data)
        injected += int(mask.sum())
    with given_folder(out) as beside:
        save_plain(beside, fresh.model)
        fresh.tokenizer.save_pretrained(beside)
    return injected


def feed_forward_names(model: PreTrainedModel) -> list[str]:
    """Name the weights of the linear layers of blocks that are no part of attention."""
    blocks = model.get_submodule(parts_of(model).blocks)
    layers = [path for path, module in blocks.named_modules() if isinstance(module, nn.Linear)]
    apart = [path for path in layers if not {"attention", "attn"} & set(path.split("."))]
    below = {f"{parts_of(model).blocks}.{path}" for path in apart}
    return [name for name in plain_parameters(model) if name.rpartition(".")[0] in below]


if __name__ == "__main__":
    main()
