"""A loaded model that torch runs, any number of times, and what each layer adds to its logits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from bertvision.encoder.encode import freeze
from bertvision.files import write_json, write_text
from bertvision.heads.head import layer_contributions
from bertvision.heads.logits import logits_of
from bertvision.hub import CARD
from bertvision.manifest import write_manifest
from bertvision.model_config import CALIBRATION, Calibration
from bertvision.model_folder import Model, ModelConfig, find_model, load_model, save_encoder
from bertvision.predictions.logits import Logits, TokenGrid
from bertvision.progress import SILENT, Progress
from bertvision.records import RunRecord
from bertvision.serving.answers import LayerPart
from bertvision.serving.card import LIBRARY, find_base, model_card, read_front
from bertvision.serving.served import AskedWindows, Served, Steps, find_record, read_calibration
from bertvision.settings import Settings
from bertvision.states.live import states_in_order_of_length
from bertvision.training.checkpoint import fingerprint
from bertvision.training.device import Compute
from bertvision.windows.window import Window

Floats = npt.NDArray[np.float32]
Parts = tuple[LayerPart, ...]


class WindowParts(NamedTuple):
    """What each part of a head adds to the start and end logits of a window's tokens; their sum is the logit."""

    names: tuple[str, ...]
    parts: Floats  # [part, token, start and end]


@dataclass(frozen=True)
class ServedModel(Served):
    """An encoder with its head on their device, where they came from, and how they were calibrated."""

    folder: Path
    model: Model
    compute: Compute
    calibration: Calibration
    own_pooler: nn.Module | None = None
    allow_outside: bool = False

    @property
    def config(self) -> ModelConfig:
        """Return the model's settings."""
        return self.model.config

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Return the encoder's tokenizer."""
        return self.model.encoder.tokenizer

    def logits(self, windows: Sequence[Window], progress: Progress = SILENT) -> Logits:
        """Run encoder and head over windows, in batches of like lengths."""
        heads, per, tokens = {"model": self.model.head}, self.config.objective.per, self.config.answers.tokens
        return logits_of(self.model.encoder, heads, windows, per, self.compute, progress, tokens)["model"]

    def parts_of_each(self, windows: Sequence[Window], progress: Progress = SILENT) -> list[WindowParts]:
        """Take the logits of all tokens of windows apart by layers; a pass of the encoder of its own."""
        found: dict[int, WindowParts] = {}
        tokens = self.config.answers.tokens
        with progress.bar("layers", len(windows)) as bar:
            for batch in states_in_order_of_length(self.model.encoder, windows, tokens, self.compute):
                with torch.no_grad():
                    names, parts = layer_contributions(self.model.head, *batch.seen)
                of_rows = parts.float().cpu().numpy()
                for row, window in enumerate(batch.windows.rows.tolist()):
                    found[window] = WindowParts(names, of_rows[row, :, : len(windows[window])])
                bar.advance(batch.size)
        return [found[window] for window in range(len(windows))]

    def changed(self, **settings: Any) -> "ServedModel":  # noqa: ANN401 (of the config)
        """Return the same weights with some of the model's settings changed."""
        return replace(self, model=replace(self.model, config=self.config.model_copy(update=settings)))

    @property
    def made_by(self) -> Settings:
        """Return the head's fingerprint, and the precision."""
        return {"head": fingerprint(self.model.head), "precision": self.compute.precision}

    @property
    def loaded_with(self) -> Settings:
        """Return device, precision and what else `load` was given."""
        compute, pooler = self.compute, self.own_pooler
        how = {"device": compute.device.type, "precision": compute.precision, "allow_outside": self.allow_outside}
        return how if pooler is None else {**how, "pooler": pooler}

    @property
    def is_on_gpu(self) -> bool:
        """Return whether it lies on a GPU."""
        return self.compute.device.type == "cuda"

    def write(self, folder: Path, records: Sequence[RunRecord] | None) -> None:
        """Write encoder, head, settings, calibration and model card."""
        # Once more from its folder: on a GPU the weights in memory may be rounded to bf16.
        model = load_model(self.folder, self.own_pooler, allow_outside=self.allow_outside)
        save_encoder(folder, model.encoder, model.head, saved_config(model.config, self.calibration))
        write_json(folder / CALIBRATION, self.calibration.model_dump(mode="json"))
        write_text(folder / CARD, self.card(records))
        write_manifest(folder)

    def card(self, records: Sequence[RunRecord] | None = None) -> str:
        """Write the model card; where no records are given, with that of the run that the model lies in.

        A saved model, which lies in no run, keeps the card that it has.
        """
        own = find_record(self.folder, self.config)
        card = self.folder / CARD
        if records is None and own is None and read_front(card).get("library_name") == LIBRARY:
            return card.read_text(encoding="utf-8")
        shown = records if records is not None else [] if own is None else [own]
        base = find_base(self.folder, self.config, own or next(iter(shown), None))
        return model_card(self.config, self.calibration, shown, base=base)


def open_model(
    folder: Path, compute: Compute, pooler: nn.Module | None = None, *, allow_outside: bool = False
) -> ServedModel:
    """Load a MODEL_DIR, or the one called `default`, for good: no gradients, no dropout."""
    folder = find_model(folder)  # its calibration lies there too
    model = load_model(folder, pooler, allow_outside=allow_outside)
    freeze(model.encoder, compute)
    return ServedModel(folder, model, compute, read_calibration(folder, model.config), pooler, allow_outside)


def saved_config(config: ModelConfig, calibration: Calibration) -> ModelConfig:
    """Return the settings of a model that lies with its encoder in one folder."""
    # Where no calibration lies beside it, `predict` abstains by the settings of answers.
    answers = config.answers.model_copy(update={"null_threshold": calibration.null_threshold})
    return config.model_copy(update={"encoder": ".", "encoder_is_path": True, "answers": answers})


def with_states(served: Served) -> ServedModel:
    """Return a model whose layers' states can be read; callers have refused exported ones (`refuse_exported`)."""
    assert isinstance(served, ServedModel)
    return served


def layers_of_spans(
    served: ServedModel, windows: Sequence[Window], grid: TokenGrid, spans: npt.NDArray[np.int64]
) -> Steps[list[Parts]]:
    """Take the scores of spans, [span, first and last token], apart by layers: a second pass over their windows."""
    window_of = np.searchsorted(grid.window_at, spans[:, 0], side="right") - 1
    places = spans - grid.window_at[window_of][:, None]
    wanted, own = np.unique(window_of, return_inverse=True)
    found = yield AskedWindows(served.parts_of_each, [windows[window] for window in wanted])
    return [
        tuple(map(LayerPart, names, parts[:, first, 0].tolist(), parts[:, last, 1].tolist()))
        for (names, parts), (first, last) in zip((found[window] for window in own), places.tolist(), strict=True)
    ]
