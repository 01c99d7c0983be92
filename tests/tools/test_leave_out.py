import json
import runpy
from pathlib import Path

import pytest

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "leave_out.py"))


def test_articles_of_a_source_are_left_out_and_all_else_stays(tmp_path):
    articles = [{"title": name, "source": source, "paragraphs": []} for name, source in ("ax", "by", "cx")]
    (tmp_path / "all.json").write_text(json.dumps({"version": "v2.0", "data": articles}))
    assert TOOL["leave_out"](tmp_path / "all.json", tmp_path / "some.json", ["x"]) == 2
    assert json.loads((tmp_path / "some.json").read_text()) == {"version": "v2.0", "data": [articles[1]]}
    with pytest.raises(SystemExit, match="no article has the source z"):
        TOOL["leave_out"](tmp_path / "all.json", tmp_path / "some.json", ["z"])
