"""Every kind of task, by name."""

from bertvision.kinds.answerable import ANSWERABLE
from bertvision.kinds.choices import CHOICES
from bertvision.kinds.classes import CLASSES
from bertvision.kinds.kind import Kind
from bertvision.kinds.labels import LABELS
from bertvision.kinds.numbers import NUMBERS
from bertvision.kinds.spans import SQUAD2
from bertvision.kinds.tags import TAGS

KINDS: dict[str, Kind] = {kind.name: kind for kind in (SQUAD2, ANSWERABLE, CLASSES, LABELS, NUMBERS, CHOICES, TAGS)}
