import ast
from pathlib import Path

from bertvision import records


def test_type_checkers_take_all_that_the_records_door_imports_for_public():
    """The package says that it is typed (py.typed): a plain import is private to mypy --strict of who uses it."""
    statements = ast.parse(Path(records.__file__).read_text()).body
    names = [name.name for each in statements if isinstance(each, ast.ImportFrom) for name in each.names]
    assert len(names) > 50
    assert sorted(records.__all__) == sorted(names)
