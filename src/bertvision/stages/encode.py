"""Texts, or a task's file of data -> a folder of an encoder's states, which heads train from and any program reads."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bertvision.data.documents import read_documents
from bertvision.encoder.encode import freeze
from bertvision.encoder.load import load_encoder
from bertvision.errors import DataError
from bertvision.experiment import build_experiment
from bertvision.kinds.kind import Cutting
from bertvision.model_config import Pooling
from bertvision.progress import SILENT, Progress
from bertvision.settings import Settings, merge
from bertvision.stages.context import check_length
from bertvision.states.folder import DTYPE, settings_of, write_states
from bertvision.states.memory import StateRequest
from bertvision.tables import counted, in_units
from bertvision.tasks import TASKS, read_labelled, task_name
from bertvision.training.checkpoint import fingerprint
from bertvision.training.device import choose_compute
from bertvision.windows.cut import cut_texts
from bertvision.windows.plan import lengths_of


class EncodedStates(NamedTuple):
    """What a folder of extracted states holds."""

    folder: Path
    examples: int
    windows: int
    tokens: int
    num_bytes: int

    @property
    def sentence(self) -> str:
        """Say how much it is."""
        held = f"{counted(self.examples, 'example')}, {counted(self.windows, 'window')}, {self.tokens:,} tokens"
        return f"{self.folder}: {held}, {in_units(self.num_bytes)}"


def encode(
    texts: str | Path | Sequence[str],
    out: str | Path,
    *,
    encoder: str = "default",
    task: str | None = None,
    layers: Sequence[int] | None = None,
    pooling: Pooling | None = None,
    settings: Settings | None = None,
    progress: Progress = SILENT,
) -> EncodedStates:
    """Extract an encoder's states of all texts into the folder `out`, or those that it lacks after a kill.

    `texts` is a list, or files as `pretrain` reads them: a text file is one text, and so are a line of JSONL and a row
    of a table, under `text`. With a `task` it is a file of that task's examples, which heads of an experiment on it can
    then train from (`states.folder`). Without `layers` all are kept, and without `pooling` every token's states.
    `settings` are those of an experiment, such as {"windows": {"max_length": 128}}.
    """
    if task is None and isinstance(texts, (str, Path)):
        texts = list(read_documents([str(texts)]))
    if not texts:
        raise DataError("there is no text to encode; give at least one")
    own: Settings = {"task": "squad2" if task is None else task_name(task), "encoder": encoder}
    own |= {"heads": {"train": []}, "states": {"layers": "all" if layers is None else list(layers)}}
    experiment = build_experiment(merge(own, settings or {}), origin="encode")
    loaded = load_encoder(experiment.encoder)
    check_length(loaded, experiment.windows)
    if isinstance(texts, (str, Path)):
        split, labels = read_labelled(experiment.task, str(texts), experiment.data, hub_split="train", need="optional")
        how = Cutting(loaded.tokenizer, experiment.windows, labelled=False, progress=progress)
        windows = TASKS[experiment.task].kind.cut(split.examples, labels, how)
        num_examples = len(split.examples)
        data = split.sha256 or split.name
    else:
        windows = cut_texts(texts, loaded.tokenizer, experiment.windows, progress)
        num_examples = len(texts)
        data = hashlib.sha256("".join(f"{len(text)}:{text}" for text in texts).encode()).hexdigest()
    weights = fingerprint(loaded.model)
    compute = choose_compute(experiment.device, experiment.precision)
    chosen = experiment.states.chosen_layers
    request = StateRequest(freeze(loaded, compute), windows, compute, chosen, pooling)
    tokens = int(lengths_of(windows).sum())
    found = EncodedStates(Path(out), num_examples, len(windows), tokens, request.num_bytes(DTYPE))
    progress.say(found.sentence)
    write_states(request, found.folder, settings_of(request, weights, experiment.windows, data), progress)
    return found
