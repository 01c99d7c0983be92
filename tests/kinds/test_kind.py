import ast
from pathlib import Path

import bertvision
from bertvision.tasks import KINDS, TASKS

SOURCE = Path(bertvision.__file__).parent
LOSS = SOURCE / "training" / "objective.py"  # the one choice that is not a kind's own, because kinds know no torch


def is_kind(node):
    """Return whether an expression is a kind or its name."""
    if isinstance(node, ast.Attribute) and node.attr == "name":
        node = node.value
    return (isinstance(node, ast.Name) and node.id == "kind") or (
        isinstance(node, ast.Attribute) and node.attr == "kind"
    )


def names_in(node):
    """Return the names of kinds that stand in an expression or a pattern as texts."""
    return {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and each.value in KINDS}


def questions_in(path):
    """Return the lines that ask which kind something is."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare) and any(map(is_kind, [node.left, *node.comparators])):
            found = names_in(node)
        elif isinstance(node, ast.Match) and is_kind(node.subject):
            found = set().union(*(names_in(case.pattern) for case in node.cases))
        else:
            continue
        if found:
            yield f"{path.relative_to(SOURCE)}:{node.lineno}"


def test_nothing_outside_kinds_asks_for_the_kind_of_a_task_but_the_choice_of_a_loss():
    paths = [path for path in SOURCE.rglob("*.py") if SOURCE / "kinds" not in path.parents]
    asking = [line for path in paths for line in questions_in(path) if path != LOSS]
    assert asking == []
    assert list(questions_in(LOSS))


def test_every_kind_has_a_task_and_every_task_a_kind():
    assert {info.kind.name for info in TASKS.values()} == set(KINDS)
    assert all(info.kind == KINDS[info.kind.name] for info in TASKS.values())


def test_squad_differs_from_one_version_to_the_next_in_no_answer_alone():
    one, two = TASKS["squad1"].kind, TASKS["squad2"].kind
    assert (one.has_null, two.has_null) == (False, True)
    assert one == two  # the same models, which may teach each other
