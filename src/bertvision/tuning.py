"""Fine-tune an encoder, all of it or adapters, parasites and single blocks alone, in your own training loop too."""

from bertvision.encoder.encode import freeze
from bertvision.encoder.finetune import finetune_encoder
from bertvision.encoder.finetune_plan import FinetuneConfig
from bertvision.encoder.load import load_encoder
from bertvision.encoder.tuning.adapter_file import load_adapters, save_adapters
from bertvision.encoder.tuning.config import ParasiteConfig, TuneConfig
from bertvision.encoder.tuning.tune import merge_tuning, remove_tuning, tune

__all__ = [
    "FinetuneConfig",
    "ParasiteConfig",
    "TuneConfig",
    "finetune_encoder",
    "freeze",
    "load_adapters",
    "load_encoder",
    "merge_tuning",
    "remove_tuning",
    "save_adapters",
    "tune",
]
