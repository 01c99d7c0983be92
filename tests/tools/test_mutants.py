import mutants as tool
import pytest


def mutants_of(tmp_path, source):
    path = tmp_path / "src" / "bertvision" / "metrics" / "one.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    made = []
    for each in tool.find_mutants(path, tmp_path):
        content = path.read_bytes()
        made.append((content[: each.start] + each.new.encode() + content[each.stop :]).decode().strip())
    return made


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b <= c", ["a <= b <= c", "a < b < c"]),
        ("a - b", ["a + b"]),
        ("a and not b", ["(a) or (not b)", "a and (b)"]),
        ("x if a else y", ["x if not (a) else y"]),
        ("f(1, True)", ["f(2, True)", "f(1, False)"]),
        ("np.max(a)", ["np.min(a)"]),
        ("'ä', 1", ["'ä', 2"]),
        ("raise E(f'{1 + 2}', 3)", []),
        ("def f(a: 'x' = 1) -> int: return a", ["def f(a: 'x' = 2) -> int: return a"]),
    ],
)
def test_a_mutant_changes_one_place(tmp_path, source, expected):
    assert mutants_of(tmp_path, source) == expected


def test_the_same_seed_draws_the_same_mutants_and_another_one_others(tmp_path):
    mutants_of(tmp_path, "\n".join(f"a{n} < {n}" for n in range(50)))
    drawn = [[each.name for each in tool.draw_mutants(tmp_path, 10, seed, ["metrics"])] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 10


def test_a_mutant_that_no_test_of_its_area_fails_on_is_told_and_lowers_the_share(capsys):
    rows = [{"mutant": f"m{n}", "area": "metrics", "status": status} for n, status in enumerate((1, 0, 1, None))]
    tool.report(rows)
    assert capsys.readouterr().out.splitlines() == [
        "not caught: m1",
        "metrics         3 of    4 caught, 75.0%",
        "all             3 of    4 caught, 75.0%",
    ]


def test_results_of_a_command_that_was_killed_while_it_wrote_are_read(tmp_path):
    (tmp_path / "out.jsonl").write_text('{"mutant": "a", "status": 1}\n{"mutant": "b", "sta')
    assert tool.read_results(tmp_path / "out.jsonl").keys() == {"a"}
