"""Models that torch runs, any number of times, and what each layer adds to their logits."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from bertvision.encoder.encode import freeze
from bertvision.files import write_json, write_text
from bertvision.heads.head import layer_contributions, refuse_unless_sum
from bertvision.heads.logits import logits_of
from bertvision.hub import CARD
from bertvision.manifest import write_manifest
from bertvision.model_config import CALIBRATION, Calibration
from bertvision.model_folder import Model, ModelConfig, find_model, load_model, save_encoder
from bertvision.predictions.logits import Logits
from bertvision.progress import SILENT, Progress
from bertvision.records import RunRecord
from bertvision.serving.card import LIBRARY, find_base, model_card, read_front
from bertvision.serving.model import Engine, ServedModel, WindowParts, find_record, read_calibration, split_logits
from bertvision.settings import Settings
from bertvision.states.live import states_in_order_of_length
from bertvision.training.checkpoint import fingerprint
from bertvision.training.device import Compute
from bertvision.windows.window import Window


@dataclass(frozen=True, eq=False)
class TorchEngine(Engine):
    """An encoder with its head on their device, and where they came from."""

    folder: Path
    model: Model
    compute: Compute
    own_pooler: nn.Module | None = None
    allow_outside: bool = False

    def logits(self, windows: Sequence[Window], tokens: int, progress: Progress = SILENT) -> list[Logits]:
        """Run encoder and head over windows, in batches of like lengths."""
        heads, per = {"model": self.model.head}, self.model.config.objective.per
        logits = logits_of(self.model.encoder, heads, windows, per, self.compute, progress, tokens)["model"]
        return split_logits(logits, windows, is_per_token=per == "token")

    def parts(self, windows: Sequence[Window], tokens: int, progress: Progress = SILENT) -> list[WindowParts]:
        """Take the logits of all tokens of windows apart by layers; a pass of the encoder of its own."""
        found: dict[int, WindowParts] = {}
        with progress.bar("layers", len(windows)) as bar:
            for batch in states_in_order_of_length(self.model.encoder, windows, tokens, self.compute):
                with torch.no_grad():
                    names, parts = layer_contributions(self.model.head, *batch.seen)
                of_rows = parts.float().cpu().numpy()
                for row, window in enumerate(batch.windows.rows.tolist()):
                    found[window] = WindowParts(names, of_rows[row, :, : len(windows[window])])
                bar.advance(batch.size)
        return [found[window] for window in range(len(windows))]

    def check_parts(self) -> None:
        """Refuse a head that is no sum over layers."""
        refuse_unless_sum(self.model.head)

    @property
    def settings_fingerprint(self) -> Settings:
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

    def write(self, folder: Path, calibration: Calibration, records: Sequence[RunRecord] | None) -> None:
        """Write encoder, head, settings, calibration and model card."""
        # Once more from its folder: on a GPU the weights in memory may be rounded to bf16.
        model = load_model(self.folder, self.own_pooler, allow_outside=self.allow_outside)
        save_encoder(folder, model.encoder, model.head, saved_config(model.config, calibration))
        write_json(folder / CALIBRATION, calibration.model_dump(mode="json"))
        write_text(folder / CARD, self.card(calibration, records))
        write_manifest(folder)

    def card(self, calibration: Calibration, records: Sequence[RunRecord] | None = None) -> str:
        """Write the model card; where no records are given, with that of the run that the model lies in.

        A saved model, which lies in no run, keeps the card that it has.
        """
        config = self.model.config
        own = find_record(self.folder, config)
        card = self.folder / CARD
        if records is None and own is None and read_front(card).get("library_name") == LIBRARY:
            return card.read_text(encoding="utf-8")
        shown = records if records is not None else [] if own is None else [own]
        base = find_base(self.folder, config, own or next(iter(shown), None))
        return model_card(config, calibration, shown, base=base)


def open_model(
    folder: Path, compute: Compute, pooler: nn.Module | None = None, *, allow_outside: bool = False
) -> ServedModel:
    """Load a MODEL_DIR, or the one called `default`, for good: no gradients, no dropout."""
    folder = find_model(folder)  # its calibration lies there too
    model = load_model(folder, pooler, allow_outside=allow_outside)
    freeze(model.encoder, compute)
    engine = TorchEngine(folder, model, compute, pooler, allow_outside)
    calibration = read_calibration(folder, model.config)
    return ServedModel(folder, model.config, model.encoder.tokenizer, calibration, engine)


def torch_engine(served: ServedModel) -> TorchEngine:
    """Return what runs a model that was opened by `open_model`."""
    assert isinstance(served.engine, TorchEngine)
    return served.engine


def saved_config(config: ModelConfig, calibration: Calibration) -> ModelConfig:
    """Return the settings of a model that lies with its encoder in one folder."""
    # Where no calibration lies beside it, `predict` abstains by the settings of answers.
    answers = config.answers.model_copy(update={"null_threshold": calibration.null_threshold})
    return config.model_copy(update={"encoder": ".", "encoder_is_path": True, "answers": answers})
