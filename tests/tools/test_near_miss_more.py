from bertvision.data.example import GoldAnswer, Question
from bertvision.data.squad import read_squad_file
from tools.near_miss_more import SCORES, table_of, write_squad


def runs(side, *bests):
    scores = dict.fromkeys(SCORES.values(), 50.0)
    return [{"side": side, "seed": seed, "scores": {**scores, "best_f1": best}} for seed, best in enumerate(bests, 1)]


def test_a_sides_gain_is_paired_by_seed_with_students_interval():
    table = table_of([*runs("five", 60.0, 64.0), *runs("borrowed", 61.0, 67.0)])
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert (rows["five"]["best F1"], rows["borrowed"]["best F1"]) == ("62.0", "64.0")
    # Gains of 1 and 3: mean 2, and Student's t of one degree of freedom, 12.706, times a standard error of 1.
    assert rows["borrowed"]["best F1, gain"] == "+2.0 (-10.7 to +14.7)"
    assert rows["five"]["best F1, gain"] == ""


def test_questions_are_written_as_they_are_read(tmp_path):
    asked = [
        Question("a", "Who?", "Hannah did.", (GoldAnswer("Hannah", 0),), ""),
        Question("b", "Where?", "Hannah did.", (), ""),
    ]
    write_squad(tmp_path / "side.json", asked)
    assert list(read_squad_file(tmp_path / "side.json").examples) == asked
