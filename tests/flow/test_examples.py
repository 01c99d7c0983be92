import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.mark.flow
def test_the_example_of_the_docs_runs_and_learns(capsys):
    runpy.run_path(str(DOCS / "examples" / "heads_in_python.py"))
    printed = capsys.readouterr().out
    best_spans = {line.split()[0]: float(line.split()[-1]) for line in printed.splitlines() if "best span" in line}
    assert best_spans.keys() == {"encoder", "learned_pooling", "adapter_386_shared_skip", "all"}
    assert max(best_spans.values()) > 15  # an untrained output layer finds hardly anything


@pytest.mark.flow
def test_the_example_of_a_pooler_of_ones_own_trains_saves_and_loads_it(capsys):
    runpy.run_path(str(DOCS / "examples" / "own_pooler.py"))
    scores, said = capsys.readouterr().out.splitlines()
    assert "accuracy" in scores
    assert said.startswith("Classification(label='")
