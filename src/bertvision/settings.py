"""`Config`, the frozen and strict base of every config, and how YAML and `--set` become one."""

import difflib
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from bertvision.errors import SettingsError

Settings = dict[str, Any]
Precision = Literal["auto", "float32", "bf16"]
DEFAULT = "default"  # the name of what comes with the package: an encoder, and a model on it
BASE = "base"  # the same with a larger encoder

NAME = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$"  # of what gets a folder of its own: no path leads out of OUT

PACKAGE = Path(__file__).parent
CONFIGS = PACKAGE / "configs"  # experiments that come with the package

MOST_VALUES = 100_000  # of a YAML file with its aliases written out; nested ones grow like 9 ** n

# These mappings hold a choice (`{tokens: n}` or `{windows: n}`), so a later one replaces an earlier one whole.
REPLACED_WHOLE = ("batch",)


class Config(BaseModel):
    """A value object: no unknown keys, no silent conversion, no change after it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


ConfigType = TypeVar("ConfigType", bound=Config)


class VariantSettings(NamedTuple):
    """One of a file's variants: a method at one learning rate."""

    name: str  # of its folder
    method: str  # as the file calls it
    settings: Settings
    has_own_rate: bool  # the method is tried with several


def validate(kind: type[ConfigType], settings: Settings, origin: str) -> ConfigType:
    """Turn plain settings into a config, or say in one line which key is wrong and what was expected."""
    try:
        # Through JSON, because strict mode takes a list for a tuple only there.
        return kind.model_validate_json(json.dumps(settings))
    except ValidationError as error:
        raise SettingsError(f"{origin}: {_one_line(kind, error)}") from None
    except TypeError as error:
        raise SettingsError(f"{origin}: {error}; YAML dates and sets have no place in settings") from None
    except (ValueError, RecursionError) as error:  # an alias to a mapping that it stands in
        raise SettingsError(f"{origin}: {error}; write the settings out") from None


def shipped_configs() -> dict[str, Path]:
    """Return the experiments that come with the package, by names such as squad2/minilm."""
    paths = sorted(CONFIGS.rglob("*.yaml"))
    return {path.relative_to(CONFIGS).with_suffix("").as_posix(): path for path in paths}


def find_config(path: Path) -> Path:
    """Return the file of an experiment; where there is none, the shipped one that is called so, if any."""
    if path.exists():
        return path
    return shipped_configs().get(path.with_suffix("").as_posix().removeprefix("configs/"), path)


def named_after(path: Path) -> str:
    """Return the name of what a file describes: the file's, with what is no plain letter, digit or sign replaced."""
    if re.match(NAME, path.stem):
        return path.stem
    plain = unicodedata.normalize("NFKD", path.stem).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_.]+", "-", plain).strip("-.") or "experiment"


def read_yaml(path: Path) -> Settings:
    """Read a YAML file that holds one mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"{path}: cannot be read ({error.strerror}); give the path of an experiment's YAML, or a name that "
            "`bertvision show experiments` lists"
        ) from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: is not UTF-8 text; give the path of an experiment's YAML") from None
    settings = parse_yaml(text, str(path))
    if not isinstance(settings, dict):
        got = type(settings).__name__
        raise SettingsError(f"{path}: expected `key: value` lines, got {got}; give an experiment's YAML")
    return settings


def parse_yaml(text: str, origin: str) -> Any:  # noqa: ANN401 (YAML holds anything)
    """Parse YAML where `1e-5` is a number and a key given twice is an error."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except RecursionError:
        raise SettingsError(f"{origin}: not valid YAML: nested too deeply") from None
    except (
        yaml.YAMLError,
        ValueError,
        OverflowError,
    ) as error:  # the latter two: what looks like a date or number and is none
        raise SettingsError(f"{origin}: not valid YAML: {_told_briefly(error)}") from None


def _told_briefly(error: Exception) -> str:
    """Return what is wrong with YAML and where, without the text around it."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem is not None and error.problem_mark is not None:
        problem, mark = error.problem.replace("'<stream end>'", "its end"), error.problem_mark
        return f"{problem} (line {mark.line + 1}, column {mark.column + 1})"
    return " ".join(str(error).split())


def with_overrides(settings: Settings, overrides: Iterable[str]) -> Settings:
    """Apply `a.b=value` overrides, each value read as YAML."""
    for override in overrides:
        path, equals, value = override.partition("=")
        if not equals or not all(path.split(".")):
            raise SettingsError(f"setting {override!r}: expected key=value, such as `heads.epochs=3`")
        nested: Any = parse_yaml(value, f"setting {override}")
        for key in reversed(path.strip().split(".")):
            nested = {key: nested}
        settings = merge(settings, nested)
    return settings


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Settings:
    """Lay one mapping over another, key by key."""
    merged = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict) and key not in REPLACED_WHOLE:
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def expand_variants(given: Any, origin: str) -> list[VariantSettings]:  # noqa: ANN401 (what the YAML holds)
    """Return a file's `variants`; one whose `finetune.lr` is a list stands for one with each rate."""
    if given is None:
        return []
    if not isinstance(given, dict) or not all(own is None or isinstance(own, dict) for own in given.values()):
        raise SettingsError(f"{origin}: `variants` is to map names to settings, such as top_6: {{tune: {{...}}}}")
    return [variant for method, own in given.items() for variant in _with_each_rate(str(method), own or {})]


def _with_each_rate(method: str, own: Settings) -> list[VariantSettings]:
    finetune = own.get("finetune")
    rates = finetune.get("lr") if isinstance(finetune, dict) else None
    if not isinstance(rates, list):
        return [VariantSettings(method, method, own, has_own_rate=False)]
    if wrong := [rate for rate in rates if isinstance(rate, bool) or not isinstance(rate, int | float)]:
        raise SettingsError(f"variant {method}: `finetune.lr` lists numbers, got {wrong[0]!r}")
    settings = {rate: merge(own, {"finetune": {"lr": rate}}) for rate in rates}
    return [VariantSettings(f"{method}-lr{rate}", method, each, has_own_rate=True) for rate, each in settings.items()]


def suggest(name: str, known: Iterable[str]) -> str:
    """Return what was perhaps meant by a name that is none of those that are known, or nothing."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def check_precision(given: str) -> None:
    """Refuse a precision that there is none of."""
    if given not in (known := get_args(Precision)):
        raise SettingsError(f"precision {given!r} is unknown; choose {', '.join(known)}")


def first_difference(one: Any, other: Any, path: str = "") -> str | None:  # noqa: ANN401 (JSON values)
    """Name the first key at which two JSON values differ, with both values, or None where they are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            found = first_difference(one.get(key), other.get(key), f"{path}.{key}" if path else key)
            if found is not None:
                return found
        return None
    if one == other or (
        isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=1e-12)
    ):
        return None
    return f"{path} was {json.dumps(one)} and is now {json.dumps(other)}"


def _one_line(kind: type[Config], error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key `{place}`{_did_you_mean(kind, problem['loc'])}"
    message = problem["msg"].removeprefix("Value error, ")
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if problem["type"] == "literal_error" and isinstance(problem["input"], str):
        more += suggest(problem["input"], re.findall("'([^']+)'", problem["ctx"]["expected"]))
    if problem["loc"][-1:] == ("lr",) and isinstance(problem["input"], list):
        more += "; a list of rates stands in `finetune.lr` of a variant, and heads of a rate each in `heads.train`"
    got = (
        ""
        if problem["type"] in ("missing", "value_error")
        else f", got {json.dumps(problem['input'], default=str)[:80]}"
    )
    return f"`{place}`: {message}{got}{more}" if place else f"{message}{more}"


def _did_you_mean(kind: type[BaseModel], location: tuple[int | str, ...]) -> str:
    known = list(kind.model_fields)
    for part in location[:-1]:
        field = kind.model_fields.get(str(part))
        held = [] if field is None else _configs_in(field.annotation)
        if len(held) != 1:
            return ""
        kind = held[0]
        known = list(kind.model_fields)
    return suggest(str(location[-1]), known) or f"; known keys: {', '.join(known)}"


def _configs_in(annotation: Any) -> list[type[BaseModel]]:  # noqa: ANN401 (a class, or a union such as `Config | None`)
    kinds = get_args(annotation) or (annotation,)
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]


class _Loader(yaml.SafeLoader):
    """YAML 1.2 numbers (1e-5 is one), no duplicate keys, and no aliases that stand for more than a file could hold."""

    def get_single_node(self) -> yaml.Node | None:
        """Return the document, once it is known how large it is with every alias written out."""
        node = super().get_single_node()
        if node is not None and _written_out(node, {}) > MOST_VALUES:
            raise yaml.YAMLError(f"its aliases stand for more than {MOST_VALUES:,} values; write fewer of them")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        counts = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        for key, count in counts.items():
            if count > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key `{key}` is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _written_out(node: yaml.Node, known: dict[int, int]) -> int:
    """Count a node's values with every alias written out; a node that stands in itself is counted there as one."""
    if id(node) not in known:
        known[id(node)] = 1
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        within = [each for pair in pairs for each in pair] if pairs else node.value
        if not isinstance(node, yaml.ScalarNode):
            known[id(node)] = 1 + sum(_written_out(each, known) for each in within)
    return known[id(node)]


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)$"),
    list("-+0123456789."),
)
