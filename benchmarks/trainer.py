"""transformers' Trainer on our windows: as run_qa has it, and with the flags that make it fast."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import (
    AutoModelForQuestionAnswering,
    PreTrainedModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from bertvision.encoder.load import Encoder, quiet_transformers
from bertvision.heads.head import Head
from bertvision.training.device import Compute
from bertvision.windows.batches import collate
from bertvision.windows.window import Window

FULL = 384  # tokens that run_qa pads every window to
DYNAMO = "ACCELERATE_DYNAMO_"  # variables of a compiled training, which the next one would obey
Features = dict[str, Any]


@dataclass(frozen=True)
class Flags:
    """How Trainer is run; `windows` of a step, None: as many as fit into our steps on average."""

    windows: int | None = None
    full: bool = False  # every window padded to 384 tokens, rather than to the longest of its batch
    grouped: bool = False  # windows of about the same length go together
    compiled: bool = False
    best: bool = True  # bf16 on a GPU, TF32 for what is left in float32, workers, pinned memory


class QuestionTrainer(Trainer):
    """Trainer that keeps every step's loss on the device."""

    losses: list[Tensor]

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:  # noqa: ANN401 (Trainer's own arguments)
        """Note the loss; ours is the sum of those of start and end, transformers' their mean."""
        loss: Tensor = super().training_step(*args, **kwargs)
        self.losses.append(2 * loss.detach())
        return loss


def question_model(encoder: Encoder, output: Head) -> PreTrainedModel:
    """Copy an encoder and its output layer into transformers' model for questions, so that both start as one."""
    with quiet_transformers():
        model: PreTrainedModel = AutoModelForQuestionAnswering.from_config(encoder.model.config)
    model.base_model.load_state_dict(encoder.model.state_dict(), strict=False)  # all but a pooler
    _last_layer(model).load_state_dict(_last_layer(output.readout).state_dict())
    return model


def _last_layer(module: nn.Module) -> nn.Linear:
    """Find what gives the scores of start and end, here and in transformers."""
    layer = getattr(module, "qa_outputs", None) or module.linear
    assert isinstance(layer, nn.Linear)
    return layer


def train_with_trainer(
    model: PreTrainedModel,
    encoder: Encoder,
    windows: Sequence[Window],
    flags: Flags,
    *,
    lr: float,
    seed: int,
    step_windows: int,
    workers: int,
    compute: Compute,
    on_step: Callable[[int], None] = lambda windows: None,
) -> list[float]:
    """Train a model for questions in place and return the losses; `on_step` is told of every step's windows."""
    size = flags.windows or step_windows
    with tempfile.TemporaryDirectory(prefix="bertvision-trainer-") as folder, _left_as_it_was():
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=size,
            num_train_epochs=1,
            learning_rate=lr,
            lr_scheduler_type="constant",
            weight_decay=0.01,  # as ours
            seed=seed,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
            dataloader_drop_last=True,  # a smaller last batch would be compiled anew
            use_cpu=compute.device.type == "cpu",
            **_speed(flags, workers, compute),
        )
        trainer = QuestionTrainer(
            model=model,
            args=arguments,
            train_dataset=_Windows(windows),
            data_collator=_Collator(windows, encoder, FULL if flags.full else None),
            callbacks=[_OnStep(on_step, size)],
        )
        trainer.losses = []
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return torch.stack(trainer.losses).tolist() if trainer.losses else []


def _speed(flags: Flags, workers: int, compute: Compute) -> dict[str, Any]:
    """Return the arguments that make it fast; nothing of them changes what is learned but for rounding."""
    on_gpu = compute.device.type == "cuda"
    if not flags.best:
        return {"dataloader_pin_memory": on_gpu}  # Trainer's own default where there is a GPU
    more: dict[str, Any] = {"tf32": True} if on_gpu else {}
    if workers:
        more |= {"dataloader_persistent_workers": True, "dataloader_prefetch_factor": 4}
    return {
        "bf16": compute.dtype == torch.bfloat16,
        "torch_compile": flags.compiled,
        "train_sampling_strategy": "group_by_length" if flags.grouped else "random",
        "dataloader_num_workers": workers,
        "dataloader_pin_memory": on_gpu,
        **more,
    }


@contextmanager
def _left_as_it_was() -> Iterator[None]:
    """Undo what Trainer sets for the whole process: the precision of float32 products, and that models are compiled."""
    precision = torch.backends.fp32_precision  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.backends.fp32_precision = precision  # type: ignore[attr-defined]
        for name in [name for name in os.environ if name.startswith(DYNAMO)]:
            del os.environ[name]


class _Windows(Dataset[Features]):
    """Windows by number; the length is there to be grouped by."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self._windows = windows

    def __len__(self) -> int:
        return len(self._windows)

    def __getitem__(self, number: int) -> Features:
        return {"number": number, "input_ids": self._windows[number].ids}


class _Collator:
    """Pads with our own code, which is faster than a tokenizer's `pad`: in Trainer's favour."""

    def __init__(self, windows: Sequence[Window], encoder: Encoder, width: int | None) -> None:
        self._windows, self._width = windows, width
        self._pad_id, self._takes_segments = encoder.tokenizer.pad_token_id, encoder.takes_segments

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        rows = np.array([each["number"] for each in features])
        batch = collate(self._windows, rows, self._pad_id, self._width)
        types = {"token_type_ids": batch.segments} if self._takes_segments else {}
        return {
            "input_ids": batch.ids,
            "attention_mask": batch.mask.long(),
            "start_positions": batch.starts,
            "end_positions": batch.ends,
            **types,
        }


class _OnStep(TrainerCallback):
    """Passes on that a step was taken."""

    def __init__(self, on_step: Callable[[int], None], windows: int) -> None:
        self._on_step, self._windows = on_step, windows

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:  # noqa: ANN401 (Trainer's own)
        """Say so."""
        self._on_step(self._windows)
