"""A model's card, and what it says of the encoder that the model was trained from: hub id, licence and language."""

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import yaml

from bertvision.data.sources import parse_hub_id
from bertvision.encoder.folder import purpose_of_class
from bertvision.encoder.load import BASE_MODEL, DEFAULT_MODEL, ENCODERS, pypi_encoder
from bertvision.errors import EncoderError, SettingsError
from bertvision.hub import CARD, HUB_ID, downloaded_card, front_matter, parse_snapshot
from bertvision.model_config import Calibration
from bertvision.model_folder import ModelConfig
from bertvision.records import RunRecord, tuned_for
from bertvision.serving.card_tables import card_table, settings_table
from bertvision.serving.model import PLACE
from bertvision.settings import BASE, DEFAULT, Settings, parse_yaml
from bertvision.tables import counted, figure
from bertvision.tasks import TASKS, task_name
from bertvision.version import VERSION

HUB = "https://huggingface.co"
# Our names of scores -> the hub's.
HUB_METRICS = {
    "exact": "exact_match",
    "macro_f1": "f1",
    "micro_f1": "f1",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}
# Beside a task's own scores, those that say how far the answers can be trusted.
MORE_SCORES = ("tuned_f1", "best_f1", "HasAns_f1", "NoAns_f1", "ece", "ece_calibrated", "risk_coverage_area")
LIBRARY = "bertvision"
TAKEN = ("license", "license_name", "license_link", "language")


class About(NamedTuple):
    """What a card says beside settings and records."""

    title: str | None = None
    name: str = PLACE  # what `bertvision.load` takes
    text: str = ""  # in Markdown: what it was trained on, under which licences, and what it cannot do


class BaseModel(NamedTuple):
    """What is known of the encoder that a model was trained from; what is not is absent."""

    hub_id: str | None = None
    said: Settings = {}  # of its own card's head: licence and language


NOT_KNOWN = BaseModel()


def model_card(
    config: ModelConfig,
    calibration: Calibration,
    records: Sequence[RunRecord],
    about: About | None = None,
    base: BaseModel = NOT_KNOWN,
) -> str:
    """Write a Hugging Face model card that says what settings and records say, and what its author adds."""
    about = about or About()
    title = about.title or f"{config.head.name} for {config.task}"
    return "\n".join(
        [
            *_front(config, calibration, records, title, base),
            f"# {title}",
            "",
            *_origin(config),
            *_licence(base),
            "",
            "## How to use it",
            "",
            "```python",
            "import bertvision",
            "",
            f'model = bertvision.load("{about.name}")',
            TASKS[config.task].kind.usage,
            "```",
            "",
            *([about.text.strip(), ""] if about.text else []),
            *settings_table(config, calibration),
            *(line for record in records for line in _scores(record)),
            *([] if about.text else _limits(config, records)),
        ]
    )


def _origin(config: ModelConfig) -> list[str]:
    if purpose_of_class(config.head.name) is not None:
        return [f"A checkpoint of transformers, `{config.head.name}`, saved by bertvision {VERSION}."]
    return [
        f"An encoder with the head `{config.head.name}` ({config.head.pooler.kind}) on its layers' states, trained",
        f"for `{config.task}` by bertvision {VERSION}.",
    ]


def _front(
    config: ModelConfig, calibration: Calibration, records: Sequence[RunRecord], title: str, base: BaseModel
) -> list[str]:
    """Return the card's head, which the hub reads; what is not known is absent."""
    trained_on = [hub_id for record in records for hub_id in _hub_ids(record)]
    results = [result for record in records for result in _results(record, calibration)]
    metrics = [metric["type"] for result in results for metric in result["metrics"]]
    content = {
        **base.said,
        "library_name": LIBRARY,
        "pipeline_tag": TASKS[config.task].kind.pipeline,
        "tags": [LIBRARY],
        "base_model": base.hub_id,
        "datasets": sorted(set(trained_on)),
        "metrics": list(dict.fromkeys(metrics)),
        "model-index": [{"name": title, "results": results}] if results else [],
    }
    known = {key: value for key, value in content.items() if value}
    return ["---", yaml.safe_dump(known, sort_keys=False, allow_unicode=True).strip(), "---", ""]


def _licence(base: BaseModel) -> list[str]:
    """Say what is known of the licence: the encoder's own card is asked, and nothing else."""
    name = "Its encoder" if base.hub_id is None else f"Its encoder, [{base.hub_id}]({HUB}/{base.hub_id}),"
    licence = base.said.get("license_name") or base.said.get("license")
    if licence is None:
        return [
            f"{name} has a licence that is not known here; see its own card, and the terms of",
            "the training data.",
        ]
    return [f"{name} is under the licence {licence}; the training", "data may have terms of their own."]


def _hub_ids(record: RunRecord) -> list[str]:
    """Return the data sets of the hub that a model learned from; files are their owner's affair."""
    ids = [parse_hub_id(file.name) for split, file in record.data.items() if split == "train" and file.sha256 is None]
    return [each.dataset for each in ids if each is not None]


def _results(record: RunRecord, calibration: Calibration) -> list[Settings]:
    """Return a record's scores on dev as the hub's model-index has them: those at the model's own threshold."""
    if "dev" not in record.data:
        return []
    info, dev = TASKS[task_name(record.task)], record.data["dev"]
    hub_id = parse_hub_id(dev.name) if dev.sha256 is None else None
    name = PurePath(dev.name).name
    source = {"name": name, "type": name} if hub_id is None else {"name": hub_id.dataset, "type": hub_id.dataset}
    more = {} if hub_id is None else {"config": hub_id.config, "split": hub_id.split}
    tuned, threshold = _scored_as(record, calibration)
    at = f" at null threshold {threshold:.2f}" if info.kind.has_null else ""
    metrics = [
        {"type": HUB_METRICS.get(score, score), "value": round(record.scores[f"{tuned}{score}"], 4), "name": score + at}
        for score in info.scores
        if f"{tuned}{score}" in record.scores
    ]
    dataset = source | {key: value for key, value in more.items() if value is not None}
    return [{"task": {"type": info.kind.pipeline, "name": record.task}, "dataset": dataset, "metrics": metrics}]


def _scored_as(record: RunRecord, calibration: Calibration) -> tuple[str, float]:
    """Return what the names of those scores begin with that are at the model's own null threshold, and a threshold.

    A model that was calibrated again has no such scores in its record; the threshold then is that of those it has.
    """
    own = {"reader_tuned_": calibration.threshold, "tuned_": calibration.null_threshold}
    for tuned, threshold in own.items():
        if record.scores.get(f"{tuned}threshold") == threshold:
            return tuned, threshold
    return "", record.config.get("answers", {}).get("null_threshold", 0.0)


def _limits(config: ModelConfig, records: Sequence[RunRecord]) -> list[str]:
    """Say what every model of its kind cannot do."""
    kind, length = TASKS[config.task].kind, config.windows.max_length
    cut = "loses its end" if kind.loses_ends else "is read in parts that overlap, each by itself"
    return [
        "## What it cannot do",
        "",
        f"- A text longer than {length} tokens {cut}.",
        *(
            ["- It names one of its labels for any text, also for one that has nothing to do with them."]
            * TASKS[config.task].kind.needs_two_labels
        ),
        *(["- The scores are of one file; chosen by them among several models, they flatter it."] * bool(records)),
        "- On texts unlike those that it learned from it is worse, and its probabilities can be far off.",
        "- It has what prejudice its encoder and its data have.",
        "",
    ]


def _scores(record: RunRecord) -> list[str]:
    data = [
        # The folder is the author's own affair.
        (name, f"`{PurePath(file.name).name}`, {counted(file.examples, 'example')}{_sha(file.sha256)}")
        for name, file in record.data.items()
    ]
    made = record.provenance
    commit = "an unknown commit" if made.commit is None else f"commit {made.commit}{' (changed)' if made.dirty else ''}"
    tuned = f"tuned for {tuned_for(record.fraction)}" if record.fraction else "used as given"
    return [
        f"## Scores of {record.run}: {record.model}, seed {record.seed}",
        "",
        *_score_table(record),
        *card_table(("data", "file"), data),
        f"The encoder was {tuned}. Made by {commit} on {made.device} in {made.precision}.",
        "",
    ]


def _score_table(record: RunRecord) -> list[str]:
    """Return the scores on dev, with their intervals where the run kept any."""
    names = dict.fromkeys([*TASKS[task_name(record.task)].scores, *MORE_SCORES])
    rows = [(name, figure(record.scores[name])) for name in names if name in record.scores]
    if not record.intervals:
        return card_table(("score on dev", "value"), rows)
    bounds = {name: f"{figure(low)} to {figure(high)}" for name, (low, high) in record.intervals.items()}
    return [
        *card_table(("score on dev", "value", "95% interval"), [(*row, bounds.get(row[0], "")) for row in rows]),
        "Intervals: 95%; exact for shares of right examples, else from resamples of dev.",
        "",
    ]


def _sha(digest: str | None) -> str:
    return "" if digest is None else f", sha256 {digest[:12]}"


def find_base(folder: Path, config: ModelConfig, record: RunRecord | None) -> BaseModel:
    """Return what a model was trained from: its run's encoder, the one that it names, or where its folder is from."""
    named = record.config.get("encoder") if record is not None else None
    name = named or (None if config.encoder_is_path else config.encoder)
    if not isinstance(name, str):
        return BaseModel(_hub_id_of(folder), _said_by(folder / CARD))
    if (plain := {DEFAULT_MODEL: DEFAULT, BASE_MODEL: BASE}.get(name, name)) in ENCODERS:
        return BaseModel(ENCODERS[plain].hub_id, _said_by(_pypi_card(plain)))
    if Path(name).is_dir():
        return BaseModel(_hub_id_of(Path(name)), _said_by(Path(name) / CARD))
    return BaseModel(name, _said_by(downloaded_card(name))) if HUB_ID.fullmatch(name) else NOT_KNOWN


def read_front(card: Path | None) -> Settings:
    """Return what the front matter of a model card says; nothing where it has none."""
    try:
        content = {} if card is None else parse_yaml(front_matter(card), str(card))
    except SettingsError:
        return {}
    return content if isinstance(content, dict) else {}


def _said_by(card: Path | None) -> Settings:
    return {key: value for key, value in read_front(card).items() if key in TAKEN and _is_plain(value)}


def _is_plain(value: Any) -> bool:  # noqa: ANN401 (of somebody's YAML)
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, str) for each in value))


def _pypi_card(name: str) -> Path | None:
    try:
        place = pypi_encoder(name)
    except EncoderError:  # it is not as it should be, which whoever loads it says
        return None
    return downloaded_card(place) if place == ENCODERS[name].hub_id else Path(place) / CARD


def _hub_id_of(folder: Path) -> str | None:
    snapshot = parse_snapshot(folder.resolve())
    return None if snapshot is None else snapshot.hub_id
