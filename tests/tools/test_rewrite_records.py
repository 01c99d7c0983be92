import json
import lzma
import runpy
from pathlib import Path

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "rewrite_records.py"))


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def packed(path):
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]


def files_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_an_experiments_records_become_one_file_each_with_what_it_lacked(tmp_path):
    minilm = tmp_path / "squad2" / "minilm"
    write(minilm / "records" / "a-1-seed1.json", {"config": {"heads": {"epochs": 1}}})
    whole = {"config": {"heads": {"data_fraction": 0.5}, "answers": {"null_threshold": 1.0}}}
    write(minilm / "records" / "b-1-seed1.json", whole)
    write(minilm / "records" / "sha256.json", {})
    assert TOOL["rewrite"](tmp_path) == 1
    assert files_in(minilm) == ["records.jsonl.xz"]
    first, second = packed(minilm / "records.jsonl.xz")
    assert first == {"config": {"heads": {"epochs": 1, "data_fraction": 1.0}, "answers": {"null_threshold": 0.0}}}
    assert second == whole


def test_weights_of_ensembles_go_where_none_were_given(tmp_path):
    made = {"config": {"ensembles": [{"of": ["a", "b"], "weights": None}, {"of": ["a", "c"], "weights": [1, 2]}]}}
    write(tmp_path / "records" / "a+b-1-seed1.json", made)
    TOOL["rewrite"](tmp_path)
    (record,) = packed(tmp_path / "records.jsonl.xz")
    assert record["config"]["ensembles"] == [{"models": ["a", "b"]}, {"models": ["a", "c"], "weights": [1, 2]}]


def test_variants_share_the_file_of_their_experiment(tmp_path):
    for variant in ("full", "top_1"):
        write(tmp_path / "study" / variant / "records" / "encoder-1-seed1.json", {"variant": variant, "config": {}})
    TOOL["rewrite"](tmp_path)
    assert files_in(tmp_path / "study") == ["records.jsonl.xz"]
    assert [each["variant"] for each in packed(tmp_path / "study" / "records.jsonl.xz")] == ["full", "top_1"]


def test_what_is_packed_already_keeps_its_bytes(tmp_path):
    write(tmp_path / "study" / "records" / "encoder-1-seed1.json", {"config": {}})
    TOOL["rewrite"](tmp_path)
    before = (tmp_path / "study" / "records.jsonl.xz").read_bytes()
    assert TOOL["rewrite"](tmp_path) == 0
    assert (tmp_path / "study" / "records.jsonl.xz").read_bytes() == before


def test_a_long_course_is_thinned_and_its_ends_and_scores_stay(tmp_path):
    points = [{"step": step, "score": 50.0 if step == 77 else None} for step in range(200)]
    write(tmp_path / "records" / "encoder-1-seed1.json", {"config": {}, "training": points})
    TOOL["rewrite"](tmp_path)
    ((record),) = packed(tmp_path / "records.jsonl.xz")
    steps = [point["step"] for point in record["training"]]
    assert len(steps) == 60
    assert steps == sorted(set(steps))
    assert {0, 77, 199} <= set(steps)
    assert max(later - step for step, later in zip(steps, steps[1:], strict=False)) <= 5


def test_other_large_files_are_packed_beside_their_place(tmp_path):
    write(tmp_path / "few_rows" / "few_rows.jsonl", {"side": "default"})
    assert TOOL["rewrite"](tmp_path) == 1
    assert files_in(tmp_path) == ["few_rows", "few_rows/few_rows.jsonl.xz"]
    assert packed(tmp_path / "few_rows" / "few_rows.jsonl.xz") == [{"side": "default"}]


def test_a_record_of_an_earlier_version_is_said_in_todays_words():
    heads = {"train": [{"name": "mix4-lr0.1", "setting_of": "mix4", "budget_of": None}], "share": 0.2}
    config = {"data": {"also": {"seen": "b.csv"}}, "heads": heads, "ensembles": [{"of": ["a", "b"], "how": "max"}]}
    config |= {"states": {"pooling": "compared"}, "answers": {"tokens": 512, "null_threshold": 0.0}}
    data = {"train": {"questions": 3}, "seen": {"questions": 2}}
    old = {"row": "mix4-lr0.1", "place": 2, "setting_of": "mix4", "epochs": [], "config": config, "data": data}
    new = TOOL["rewrite_record"](old)
    assert old["row"] == "mix4-lr0.1"  # the old one is left alone
    assert new.pop("config") == {
        "data": {"extra_dev_sets": {"seen": "b.csv"}},
        "heads": {
            "train": [{"name": "mix4-lr0.1", "variant_of": "mix4", "same_size_as": None}],
            "data_fraction": 0.2,
        },
        "ensembles": [{"models": ["a", "b"], "method": "max"}],
        "states": {"pooling": "pair_difference"},
        "answers": {"batch_tokens": 512, "null_threshold": 0.0},
    }
    assert new == {
        "model": "mix4-lr0.1",
        "position": 2,
        "variant_of": "mix4",
        "epoch_scores": [],
        "data": {"train": {"examples": 3}, "seen": {"examples": 2}},
    }


def test_differences_are_said_in_todays_words(tmp_path):
    (tmp_path / "differences.json").write_text('[{"row": "lora", "against": "full"}]')
    assert TOOL["rewrite"](tmp_path) == 1
    assert json.loads((tmp_path / "differences.json").read_text()) == [{"model": "lora", "against": "full"}]
    assert TOOL["rewrite"](tmp_path) == 0
