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
