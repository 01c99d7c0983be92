"""What docs/howto/tuning_python.md promises to those who work from Python."""

import re
from importlib import import_module
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "tuning_python.md").read_text(encoding="utf-8")


def test_all_that_the_page_on_tuning_documents_is_where_it_says():
    documented = re.findall(r"^\.\. auto\w+:: (\S+)\.(\w+)$", PAGE, flags=re.MULTILINE)
    assert {"TuneConfig", "ParasiteConfig", "first_trained_block", "count_trainable"} <= {
        name for _, name in documented
    }
    for module, name in documented:
        assert hasattr(import_module(module), name)


def test_the_example_of_parasites_runs_as_it_is(capsys):
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    exec(example, {})
    assert "parasites" in capsys.readouterr().out
