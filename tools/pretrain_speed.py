"""Measures pre-training beside transformers' Trainer: tokens a second and the share of the GPU's peak, same model.

    python -m tools.pretrain_speed CORPUS [--length 512] [--tokens 65536] [--steps 240] [--sides ours,trainer_compiled]

CORPUS is a folder that `bertvision pretrain` made (OUT/data, or data.folder). Every side masks words of full rows, in
bf16 on a GPU, and is measured over its last third, warm. `ours` compiles its blocks, as in long pre-trainings. Trainer
gets what makes it fastest: fused AdamW, rows without padding, workers, cuDNN's attention (all its rows have one shape),
and in `trainer_compiled` torch.compile. `--profile` lists the kernels of ten of our steps.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import Dataset
from transformers import (
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from bertvision.encoder import fast_steps
from bertvision.files import read_json
from bertvision.pretraining.config import PretrainConfig, build_pretraining
from bertvision.pretraining.corpus import Corpus, open_corpus
from bertvision.pretraining.model import build_model
from bertvision.pretraining.pretrain import pretrain
from bertvision.progress import Silent
from bertvision.run_folder import SETTINGS_FINGERPRINT
from bertvision.training.device import choose_compute, wait_for

SIDES = ("ours", "trainer", "trainer_compiled")
PROFILED_STEPS = 10


def main() -> None:
    """Measure the sides one after the other, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--size", type=json.loads, default={"layers": 12, "hidden": 768, "heads": 12})
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--trainer-steps", type=int, default=90)
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    for side in given.sides.split(","):
        speed, per_token = measure_ours(given) if side == "ours" else measure_trainer(given, side)
        peak = choose_compute().peak
        share = None if peak is None else round(speed * per_token / peak, 4)
        print(json.dumps({"side": side, "tokens_per_second": round(speed), "peak_fraction": share}), flush=True)


def config_for(given: argparse.Namespace, steps: int) -> PretrainConfig:
    """Return the pre-training on a corpus that is there already."""
    stages = [{"length": given.length, "steps": steps, "tokens": given.tokens}]
    settings = {key: value for key, value in read_json(given.corpus / SETTINGS_FINGERPRINT).items() if key != "bytes"}
    settings["data"] = {**settings["data"], "folder": str(given.corpus)}
    more = {
        "size": {**given.size, "positions": given.length},
        "stages": stages,
        "objective": "mlm",
        "short_fraction": 0.0,
    }
    return build_pretraining({**settings, **more, "evaluate_every": -(-steps // 3), "save_every": 1e6})


class Said(Silent):
    """Shows the lines of a pre-training, and the kernels of ten steps in its middle, where that is asked for."""

    def __init__(self, profiled_at: int | None) -> None:
        self._left, self._profiler = profiled_at, profile(activities=[ProfilerActivity.CUDA])

    def say(self, message: str) -> None:
        """Print one line."""
        print(message, flush=True)

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator["Said"]:
        """Open a bar that counts steps."""
        yield self

    def advance(self, amount: int, note: Any = None) -> None:  # noqa: ANN401 (never asked for)
        """Begin and end the profile when its steps have come."""
        if self._left is None:
            return
        self._left -= amount
        if self._left == 0:
            torch.cuda.synchronize()
            self._profiler.start()
        if self._left == -PROFILED_STEPS:
            torch.cuda.synchronize()
            self._profiler.stop()
            print(self._profiler.key_averages().table(sort_by="self_cuda_time_total", row_limit=40), flush=True)


def measure_ours(given: argparse.Namespace) -> tuple[float, float]:
    """Return tokens a second over the last third, and operations a token."""
    config = config_for(given, given.steps)
    fast_steps.MIN_STEPS_TO_COMPILE = 0
    with tempfile.TemporaryDirectory(prefix="pretrain-speed-") as folder:
        record = pretrain(config, Path(folder) / "out", Said(given.steps // 2 if given.profile else None))
    before, last = [point for point in record.training if point.score is not None][-2:]
    tokens = record.tokens / record.steps * (last.step - before.step)
    return tokens / (last.seconds - before.seconds), record.operations / record.tokens


class FullRows(Dataset[dict[str, list[int]]]):
    """Rows of one length, one behind the other: nothing of them is padding."""

    def __init__(self, corpus: Corpus, length: int, first: int, last: int) -> None:
        self._corpus, self._room, self._ends = corpus, length - 2, (first, last)

    def __len__(self) -> int:
        """Count the rows."""
        return len(self._corpus.ids) // self._room

    def __getitem__(self, number: int) -> dict[str, list[int]]:
        """Return one row."""
        text = self._corpus.ids[number * self._room : (number + 1) * self._room].astype(np.int64)
        return {"input_ids": [self._ends[0], *text.tolist(), self._ends[1]]}


class Clock(TrainerCallback):
    """Notes when the last third begins and ends."""

    def __init__(self, first: int, device: torch.device) -> None:
        self._first, self._device, self.times = first, device, [0.0, 0.0]

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ANN401 (as Trainer has it)
        """Look at the clock after the first step that counts, and after every later one."""
        if state.global_step == self._first or state.global_step == state.max_steps:
            wait_for(self._device)
            self.times[int(state.global_step == state.max_steps)] = time.perf_counter()


def measure_trainer(given: argparse.Namespace, side: str) -> tuple[float, float]:
    """Return tokens a second of transformers' Trainer over its last third, and operations a token."""
    compute, steps, rows = choose_compute(), given.trainer_steps, given.tokens // given.length
    torch.backends.cuda.enable_cudnn_sdp(True)  # `choose_compute` turns it off, for rows of many shapes
    prepared = open_corpus(given.corpus)
    model = build_model(config_for(given, steps), prepared.vocabulary).whole
    assert isinstance(model, BertForMaskedLM)
    tokenizer, on_gpu = prepared.vocabulary.tokenizer, compute.device.type == "cuda"
    tokenizer.model_input_names = ["input_ids"]  # no mask: compiled attention would read it, though it masks nothing
    clock = Clock(steps - max(1, steps // 3), compute.device)
    with tempfile.TemporaryDirectory(prefix="pretrain-speed-") as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=rows,
            bf16=on_gpu,
            use_cpu=not on_gpu,
            optim="adamw_torch_fused",
            torch_compile=side == "trainer_compiled",
            dataloader_num_workers=min(6, os.cpu_count() or 1) if on_gpu else 0,
            dataloader_drop_last=True,
            learning_rate=1e-4,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        data = FullRows(prepared.train, given.length, tokenizer.cls_token_id, tokenizer.sep_token_id)
        collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
        Trainer(model, arguments, data_collator=collator, train_dataset=data, callbacks=[clock]).train()
    tokens = rows * given.length * max(1, steps // 3)
    return tokens / (clock.times[1] - clock.times[0]), operations_per_token(model, given.length)


def operations_per_token(model: Any, length: int) -> float:  # noqa: ANN401 (transformers' model)
    """Count what is needed, as `flops_of` does: words are predicted at 15% of the places, though Trainer scores all."""
    config, blocks = model.config, sum(weight.numel() for weight in model.bert.encoder.parameters())
    scores = 0.15 * config.hidden_size * (config.hidden_size + config.vocab_size)
    return float(6 * (blocks + scores) + 12 * config.num_hidden_layers * config.hidden_size * length)


if __name__ == "__main__":
    main()
