"""The encoder that a model was trained from -> its hub id, and the licence and language that its own card names."""

from pathlib import Path
from typing import Any, NamedTuple

from bertvision.encoder.load import BASE_MODEL, DEFAULT_MODEL, pypi_encoder
from bertvision.encoder.pypi import ENCODERS
from bertvision.errors import EncoderError, SettingsError
from bertvision.hub import CARD, HUB_ID, downloaded_card, front_matter
from bertvision.model_folder import ModelConfig
from bertvision.records import RunRecord
from bertvision.settings import BASE, DEFAULT, Settings, parse_yaml

LIBRARY = "bertvision"
TAKEN = ("license", "license_name", "license_link", "language")


class BaseModel(NamedTuple):
    """What is known of it; what is not is absent."""

    hub_id: str | None = None
    said: Settings = {}  # of its own card's head: licence and language


NOT_KNOWN = BaseModel()


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
    """Return the hub id of a folder in the hub's cache: models--OWNER--NAME/snapshots/COMMIT."""
    place = folder.resolve()
    kind, *names = place.parent.parent.name.split("--")
    return "/".join(names) if (kind, place.parent.name, len(names)) == ("models", "snapshots", 2) else None
