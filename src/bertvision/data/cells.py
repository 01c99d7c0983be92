"""One cell of a table -> a text, a number, a label or several; what is wrong names the column."""

import json
import math
from typing import Any

from bertvision.data.collect import BadExampleError
from bertvision.data.example import Column
from bertvision.data.source import is_unicode

RawLabel = str | float | tuple[str, ...] | None  # names are not numbers yet


def place_of(column: Column) -> str:
    """Write a column as errors name it."""
    return f"column `{column}`" if isinstance(column, str) else f"column {column}"


def plain_text(value: Any, column: Column) -> str:  # noqa: ANN401 (checked here)
    """Take a cell for a text."""
    if _is_missing(value) or (isinstance(value, str) and not value.strip()):
        raise BadExampleError(f"{place_of(column)} is empty; give a text")
    if not isinstance(value, str):
        raise BadExampleError(f"{place_of(column)} has type {type(value).__name__}; give it as text")
    return _checked(value, column)


def class_name(value: Any, column: Column) -> str:  # noqa: ANN401 (checked here)
    """Take a cell for the name of a class; 1, 1.0 and "1" are the same one."""
    if _is_missing(value) or (isinstance(value, str) and not value.strip()):
        raise BadExampleError(f"{place_of(column)} is empty; give a label")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(int(value) if isinstance(value, float) and value.is_integer() else value)
    if not isinstance(value, str):
        raise BadExampleError(f"{place_of(column)} has type {type(value).__name__}; give a text or a number")
    return _checked(value.strip(), column)


def label_names(value: Any, column: Column, separator: str) -> tuple[str, ...]:  # noqa: ANN401 (checked here)
    """Take a cell for any number of labels: a list, a JSON list, or names with a separator between them."""
    if _is_missing(value):
        raise BadExampleError(f"{place_of(column)} is missing; give labels, or an empty list")
    listed = value
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            listed = json.loads(value)
        except ValueError:
            raise BadExampleError(f"{place_of(column)} is no JSON list: {value[:80]!r}; mend it") from None
    elif isinstance(value, str):
        listed = [name for name in value.split(separator) if name.strip()]
    if not isinstance(listed, (list, tuple)):
        listed = [listed]
    return tuple(class_name(name, column) for name in listed)


def number(value: Any, column: Column) -> float:  # noqa: ANN401 (checked here)
    """Take a cell for a finite number."""
    if _is_missing(value) or value == "":
        raise BadExampleError(f"{place_of(column)} is empty; give a number")
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise BadExampleError(f"{place_of(column)} is {value!r:.80}; give a number")
    return found


def switched(value: Any, column: Column) -> bool:  # noqa: ANN401 (checked here)
    """Take a cell for 0 or 1."""
    name = class_name(value, column)
    if name not in ("0", "1", "true", "false"):
        raise BadExampleError(f"{place_of(column)} is {value!r:.80}; give 0 or 1")
    return name in ("1", "true")


def _checked(text: str, column: Column) -> str:
    if not is_unicode(text):
        raise BadExampleError(f"{place_of(column)} is not UTF-8 text; save the file as UTF-8")
    return text


def _is_missing(value: Any) -> bool:  # noqa: ANN401 (anything)
    return value is None or (isinstance(value, float) and math.isnan(value))
