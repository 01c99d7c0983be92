import ast
import json

import mutants as tool
import pytest


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b <= c", ["a <= b <= c", "a < b < c"]),
        ("a - b", ["a + b"]),
        ("a and not b", ["a or not b", "a and (not not b)"]),
        ("x if a else y", ["x if not a else y"]),
        ("f(1, True)", ["f(2, True)", "f(1, False)"]),
        ("np.max(a)", ["np.min(a)"]),
        ("raise E(f'{1 + 2}', 3)", []),
        ("def f(a: 'x'=1) -> int:\n    return a", ["def f(a: 'x'=2) -> int:\n    return a"]),
    ],
)
def test_a_mutant_changes_one_place(source, expected):
    count = len(list(tool.changes_below(ast.parse(source))))
    assert [tool.make_mutant(source, number) for number in range(count)] == expected
    assert tool.make_mutant(source, tool.NONE) == ast.unparse(ast.parse(source))


def test_the_same_seed_draws_the_same_mutants_and_another_one_others(tmp_path):
    path = tmp_path / "src" / "bertvision" / "metrics" / "one.py"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(f"a{n} < {n}" for n in range(50)))
    drawn = [[each.shown for each in tool.draw_mutants(tmp_path, 10, seed, ["metrics"])] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 10


def test_a_mutant_that_no_test_of_its_area_fails_on_is_told_and_lowers_the_share(capsys):
    rows = [
        {"file": "one.py", "shown": f"{n}: a -> b", "area": "metrics", "status": status}
        for n, status in enumerate((1, 0, 1, None))
    ]
    tool.report(rows)
    assert capsys.readouterr().out.splitlines() == [
        "not caught: one.py:1: a -> b",
        "metrics         3 of    4 caught, 75.0%",
        "all             3 of    4 caught, 75.0%",
    ]


def test_results_of_a_command_that_was_killed_while_it_wrote_are_read(tmp_path):
    whole = {"area": "metrics", "file": "one.py", "number": 3, "shown": "1: a -> b", "status": 1, "by": ""}
    (tmp_path / "out.jsonl").write_text(f'{json.dumps(whole)}\n{{"area": "metrics", "fil')
    assert tool.read_results(tmp_path / "out.jsonl") == {tool.Mutant("metrics", "one.py", 3, "1: a -> b"): whole}
