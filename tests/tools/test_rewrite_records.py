import json
import runpy
from pathlib import Path

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "rewrite_records.py"))


def test_a_record_gets_what_it_lacks_once_and_the_others_keep_their_bytes(tmp_path):
    records = tmp_path / "squad2" / "minilm" / "records"
    records.mkdir(parents=True)
    old, new = records / "old.json", records / "new.json"
    old.write_text(json.dumps({"config": {"heads": {"epochs": 1}}}))
    new.write_text('{"config":   {"heads": {"data_fraction": 0.5}, "answers": {"null_threshold": 1.0}}}')
    before = new.read_bytes()
    assert TOOL["rewrite"](tmp_path) == 1
    assert json.loads(old.read_text())["config"] == {
        "heads": {"epochs": 1, "data_fraction": 1.0},
        "answers": {"null_threshold": 0.0},
    }
    assert new.read_bytes() == before
    assert TOOL["rewrite"](tmp_path) == 0


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
