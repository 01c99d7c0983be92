"""JSON that means one thing: no key twice in an object."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any


def parse_json(text: str) -> Any:  # noqa: ANN401 (the caller checks what it is)
    """Parse JSON; whatever is wrong with it is a ValueError."""
    try:
        return json.loads(text, object_pairs_hook=_without_twins)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _without_twins(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twin, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twin[:80]!r} stands twice in one object; give it once")
    return found
