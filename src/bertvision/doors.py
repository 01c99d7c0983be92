"""Public names of packages, each imported when it is first used: scoring, reporting and exported models need no torch.

The names stand in a package's `__init__.pyi` alone, where type checkers read them too (Scientific Python's SPEC 1).
"""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from bertvision.errors import needing_torch


def open_door(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of the package whose `__init__.py` is `file`."""
    places = _public_names(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))

    def get(name: str) -> Any:  # noqa: ANN401 (any public name)
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, own_name = places[name]
        with needing_torch():
            return getattr(import_module(module), own_name)

    return get, lambda: [*vars(import_module(package)), *places], list(places)


def _public_names(stub: str) -> dict[str, tuple[str, str]]:
    """Return where each public name comes from: those of `from module import name as name` and of `name = other`."""
    imported: dict[str, tuple[str, str]] = {}
    public: dict[str, tuple[str, str]] = {}
    for node in ast.parse(stub).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                imported[alias.name] = (str(node.module), alias.name)
                if alias.asname == alias.name:
                    public[alias.name] = imported[alias.name]
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            public |= {ast.unparse(target): imported[node.value.id] for target in node.targets}
    return public
