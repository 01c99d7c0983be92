import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.mark.flow
def test_the_adapters_of_the_docs_work_where_they_are_loaded(capsys):
    runpy.run_path(str(DOCS / "examples" / "adapters_in_python.py"))
    printed = [line for line in capsys.readouterr().out.splitlines() if "right" in line]
    assert [line.split(",")[0] for line in printed] == ["mood: 8 of 8 right", "topic: 8 of 8 right"]
