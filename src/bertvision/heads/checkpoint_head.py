"""A checkpoint that transformers fine-tuned: its output layer as a head on the last state, its task and its labels."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor
from transformers import PreTrainedConfig

from bertvision.data.example import TaskName
from bertvision.encoder.encode import has_pooler
from bertvision.encoder.folder import CONFIG, purpose_of, read_tensors
from bertvision.encoder.load import Encoder
from bertvision.errors import EncoderError, told_as
from bertvision.files import read_json
from bertvision.heads.config import HeadConfig
from bertvision.heads.poolers.config import LastDenseConfig, LastStateConfig, Norm
from bertvision.heads.poolers.layers import ACTIVATIONS
from bertvision.hub import CARD, front_matter
from bertvision.model_config import Pooling
from bertvision.predictions.prediction import AnswerConfig
from bertvision.windows.window import WindowConfig

NEVER = 1000.0  # a null threshold that no null odds exceed
READ_AT_ONCE = 384  # tokens of question and context, as in the pipeline and in run_qa
PROBLEMS: dict[str, TaskName] = {
    "regression": "regression",
    "single_label_classification": "classification",
    "multi_label_classification": "multilabel",
}


class Layers(NamedTuple):
    """What the layers behind the last state are called in a checkpoint."""

    linear: str
    dense: str | None = None  # None: the linear layer reads the last state or, of a whole text, the encoder's pooler
    activation: str = "tanh"  # that follows the dense layer, or the setting of config.json that names it
    norm: str | None = None  # that follows the activation


SPANS, TAGS = Layers("qa_outputs"), Layers("classifier")
POOLED = Layers("classifier")
ROBERTA = Layers("classifier.out_proj", "classifier.dense")
DEBERTA = Layers("classifier", "pooler.dense", "pooler_hidden_act")
MODERN = Layers("classifier", "head.dense", "classifier_activation", "head.norm")
# By `model_type`; of whole texts, because span and tag layers are the same in all but ModernBERT.
CLASSES: dict[str, Layers] = {
    "albert": POOLED,
    "bert": POOLED,
    "camembert": ROBERTA,
    "deberta": DEBERTA,
    "deberta-v2": DEBERTA,
    "distilbert": Layers("classifier", "pre_classifier", "relu"),
    "electra": ROBERTA._replace(activation="gelu"),
    "ernie": POOLED,
    "megatron-bert": POOLED,
    "modernbert": MODERN,
    "mpnet": ROBERTA,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
}


class CheckpointHead(NamedTuple):
    """A checkpoint's head: what it is for, how it is built, and its weights by their names in our head."""

    task: TaskName
    labels: tuple[str, ...]
    head: HeadConfig
    pooling: Pooling
    state_layers: tuple[int, ...] | None
    weights: dict[str, Tensor]


def has_output_layer(folder: Path) -> bool:
    """Return whether a folder is a checkpoint of a kind that answers questions or classifies texts or tokens."""
    return purpose_of(folder) is not None


def read_output_layer(folder: Path, encoder: Encoder) -> CheckpointHead:
    """Read the output layer of a checkpoint; refuse one whose layers are not known."""
    with told_as(EncoderError, f"{folder}: its output layer cannot be read"):
        content, purpose = read_json(folder / CONFIG), purpose_of(folder)
        layers = _layers(purpose, encoder.model.config.model_type)
        names = _names(layers, encoder.model.config)
        found = read_tensors(folder, list(names.values()))
        weights = {own: found[name] for own, name in names.items()}
        task, labels = _meaning(content, purpose, len(weights["readout.linear.weight"]))
        reads_pooler = purpose == "SequenceClassification" and layers.dense is None
        if reads_pooler and not has_pooler(encoder):
            raise EncoderError("its weights lack the encoder's pooler, which it reads; get it again")
        return CheckpointHead(
            task,
            labels,
            HeadConfig(name=content["architectures"][0], pooler=_pooler(layers, encoder.model.config), kind="control"),
            "mean" if getattr(encoder.model.config, "classifier_pooling", "cls") == "mean" else "first",
            (0,) if reads_pooler else None,
            weights,
        )


def windows_for(task: TaskName, encoder: Encoder) -> WindowConfig:
    """Return how texts are cut for a checkpoint, which does not say it: as transformers' pipelines did."""
    length = encoder.max_length if task != "squad2" else min(READ_AT_ONCE, encoder.max_length)
    return WindowConfig.model_validate({"max_length": length, "max_question_length": min(64, max(length // 3, 1))})


def answers_for(folder: Path, task: TaskName) -> AnswerConfig:
    """Return how a checkpoint's logits become answers: one whose card names SQuAD 1.1 alone never abstains."""
    return AnswerConfig(null_threshold=NEVER if task == "squad2" and _names_squad1_alone(folder) else 0.0)


def _names_squad1_alone(folder: Path) -> bool:
    """Look for the datasets in the front matter of a checkpoint's model card, where transformers puts them."""
    front = front_matter(folder / CARD)
    return re.search(r"\bsquad\b", front) is not None and re.search(r"squad[ _-]?v?2", front, re.IGNORECASE) is None


def _layers(purpose: str | None, kind: str) -> Layers:
    if kind not in CLASSES:
        raise EncoderError(
            f"it is known for {', '.join(CLASSES)} and not for {kind!r}; train heads on its encoder instead"
        )
    if purpose == "SequenceClassification" or CLASSES[kind] is MODERN:
        return CLASSES[kind]
    return SPANS if purpose == "QuestionAnswering" else TAGS


def _names(layers: Layers, config: PreTrainedConfig) -> dict[str, str]:
    """Return what the weights of our head are called in the checkpoint."""
    parts = {"readout.linear.weight": f"{layers.linear}.weight", "readout.linear.bias": f"{layers.linear}.bias"}
    if layers.dense is not None:
        parts["pooler.dense.weight"] = f"{layers.dense}.weight"
        if layers.norm is None or getattr(config, "classifier_bias", True):
            parts["pooler.dense.bias"] = f"{layers.dense}.bias"
    if layers.norm is not None:
        parts["pooler.norm.weight"] = f"{layers.norm}.weight"
        if getattr(config, "norm_bias", True):
            parts["pooler.norm.bias"] = f"{layers.norm}.bias"
    return parts


def _pooler(layers: Layers, config: PreTrainedConfig) -> LastStateConfig | LastDenseConfig:
    if layers.dense is None:
        return LastStateConfig()
    activation = getattr(config, layers.activation, layers.activation)
    if activation not in ACTIVATIONS:
        raise EncoderError(f"its activation is {str(activation)[:80]!r}; known: {', '.join(ACTIVATIONS)}")
    if layers.norm is None:
        return LastDenseConfig(activation=activation)
    norm: Norm = "weight and bias" if config.norm_bias else "weight"
    return LastDenseConfig(activation=activation, bias=config.classifier_bias, norm=norm, norm_eps=config.norm_eps)


def _meaning(content: Mapping[str, Any], purpose: str | None, rows: int) -> tuple[TaskName, tuple[str, ...]]:
    """Return a checkpoint's task and the names of its labels."""
    if purpose == "QuestionAnswering":
        if rows != 2:
            raise EncoderError(f"it gives {rows} logits a token; those of questions are start and end")
        return "squad2", ()
    if purpose == "TokenClassification":
        return "ner", _labels(content, rows)
    problem = content.get("problem_type") or ("regression" if rows == 1 else "single_label_classification")
    if problem not in PROBLEMS:
        raise EncoderError(f"its `problem_type` is {str(problem)[:80]!r}; known: {', '.join(PROBLEMS)}")
    if problem != "regression":
        return PROBLEMS[problem], _labels(content, rows)
    if rows != 1:
        raise EncoderError(f"it gives {rows} numbers for a text, and only models of one number are known here")
    return "regression", ()


def _labels(content: Mapping[str, Any], rows: int) -> tuple[str, ...]:
    """Return the names of labels by number; transformers leaves them out where they are its own."""
    given = content.get("id2label") or {str(number): f"LABEL_{number}" for number in range(rows)}
    listed = [given.get(str(number)) for number in range(rows)] if isinstance(given, dict) else []
    names = tuple(name for name in listed if isinstance(name, str) and name)
    if len(names) != rows or len(given) != rows:
        raise EncoderError(f"its `id2label` does not name each of its {rows} labels; fix config.json")
    if len(set(names)) < rows:
        raise EncoderError("two labels of its `id2label` have the same name; fix config.json")
    return names
