"""What is installed: the package's metadata, and what works without torch."""

import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import bertvision
from bertvision.records import write_record

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
QUESTION, CONTEXT = "who built the weir?", "the weir was built in 1887 by hannah coyle"
EXTRA = ("torch", "transformers", "jaxtyping", "matplotlib", "huggingface_hub")
WITHOUT_TORCH = f"import sys; sys.modules |= dict.fromkeys({EXTRA}); "  # as if they were not installed
SAMPLES = ("--set", "data.train=sample:train", "--set", "data.dev=sample:dev")


def python(code):
    return subprocess.run([sys.executable, "-c", WITHOUT_TORCH + code], capture_output=True, text=True, check=False)


def call(*arguments):
    return python(f"from bertvision.cli import app; app({[str(each) for each in arguments]!r})")


def test_the_metadata_name_authors_address_and_kind():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert [author["name"] for author in PROJECT["authors"]] == [author["name"] for author in cited["authors"]]
    assert PROJECT["urls"]
    assert PROJECT["classifiers"]


def test_what_trains_comes_with_the_extras_that_need_it_alone():
    named = {re.match(r"[\w-]+", each)[0] for each in PROJECT["dependencies"]}
    assert named == {"numpy", "onnxruntime", "tokenizers", "safetensors", "pydantic", "PyYAML", "typer", "rich"}
    extras = PROJECT["optional-dependencies"]
    assert {"torch", "transformers", "jaxtyping", "matplotlib"} <= {re.match(r"[\w-]+", e)[0] for e in extras["train"]}
    assert [name for name, needed in extras.items() if "bertvision[train]" in needed] == [
        *("accelerate", "base", "onnx", "peft", "ray", "search")
    ]


def test_scores_and_help_need_no_torch(tmp_path):
    (tmp_path / "gold.csv").write_text("id,text,label\n0,the weir,wet\n1,the stone,dry\n")
    (tmp_path / "found.json").write_text('{"0": "wet", "1": "wet"}')
    done = call("score", "classification", "--gold", tmp_path / "gold.csv", "--predictions", tmp_path / "found.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["accuracy"] == 50
    assert call("run", "--help").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "package"),
    [
        (("run", "squad2/minilm", *SAMPLES), "torch"),
        (("ask", "--model", "base", "--question", QUESTION, "--context", CONTEXT), "torch"),
        (("show", "heads"), "torch"),
    ],
)
def test_what_needs_torch_says_so_in_one_line(arguments, package):
    done = call(*arguments)
    told = f"error: this needs the package {package}: pip install 'bertvision[train]'\n"
    assert (done.returncode, done.stderr) == (2, told)


def test_settings_and_data_are_checked_without_torch(tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\ngood bread,good\nbad soup,bad\n")
    settings = {"task": "classification", "data": {"train": "rows.csv", "dev": "rows.csv"}}
    (tmp_path / "rows.yaml").write_text(yaml.safe_dump(settings))
    stages = (("run",), ("run", "--until", "encoder"), ("run", "--until", "heads"))
    missing, review = ("--set", "data.train=none.csv"), ("--set", "data.columns.text=review")
    told = {
        **{(*verb, "rows.yaml", "--set", "colour=blue"): "rows.yaml: unknown key `colour`" for verb in stages},
        ("search", "rows.yaml", "--set", "search.colour=blue"): "rows.yaml: unknown key `search.colour`",
        ("pretrain", "rows.yaml"): "rows.yaml: `task` belongs to an experiment",
        **{(*verb, "rows.yaml", *missing): "none.csv: cannot be read" for verb in stages},
        ("run", "rows.yaml", "--set", "data.dev=none.csv"): "none.csv: cannot be read",
        ("run", "rows.yaml", *review): "rows.csv: no column `review`",
        ("show", "data", "none.csv", "--task", "classification"): "none.csv: cannot be read",
        ("show", "data", "rows.csv", "--task", "classification", *review): "rows.csv: no column `review`",
        ("calibrate", "nowhere", "--data", "x.json"): "nowhere: no such folder",
    }
    code = f"""
from typer.testing import CliRunner
from bertvision.cli import app
for arguments in {list(told)}:
    print(CliRunner().invoke(app, arguments).stderr, end="")
"""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    for said, line in zip(told.values(), done.stdout.splitlines(), strict=True):
        assert line.startswith(f"error: {said}")


def test_a_report_without_matplotlib_has_its_tables_and_names_the_extra(tmp_path, make_record):
    write_record(tmp_path / "records", make_record())
    done = call("report", tmp_path, "--out", tmp_path / "page")
    assert done.returncode == 0, done.stderr
    page, summary = ((tmp_path / "page" / f"report.{kind}").read_text() for kind in ("html", "md"))
    for text in (page, summary):
        assert "pip install" in text
        assert "bertvision[train]" in text
        assert "<svg" not in text
    assert "<table" in page
    assert not (tmp_path / "page" / "figures").exists()


def test_heads_are_counted_without_transformers():
    code = "import sys; sys.modules['transformers'] = None; from bertvision.cli import app; app(['show', 'heads'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "learned_pooling" in done.stdout


def test_python_is_told_the_same(tmp_path):
    (tmp_path / "model.json").write_text("{}")
    for code in ("bertvision.train", f"bertvision.load({str(tmp_path)!r})"):
        done = python(f"import bertvision; {code}")
        assert done.stderr.splitlines()[-1].endswith(
            "MissingExtraError: this needs the package torch: pip install 'bertvision[train]'"
        )


def paths_in(function):
    """Return the types of a function's arguments that may be paths."""
    given = [each.annotation for each in inspect.signature(function).parameters.values()]
    return [each for each in given if "Path" in str(each)]


def test_every_path_that_a_public_function_takes_may_be_a_text():
    functions = [getattr(bertvision, name) for name in bertvision.__all__ if name.islower()]
    paths = [each for function in functions if inspect.isfunction(function) for each in paths_in(function)]
    assert len(paths) > 15
    assert [each for each in paths if "str" not in str(each)] == []


def test_a_wheel_holds_the_package_and_nothing_that_lies_beside_it(tmp_path):
    code = f"""
from setuptools import Distribution
from setuptools.config.pyprojecttoml import apply_configuration
dist = apply_configuration(Distribution({{"script_name": "setup.py"}}), "pyproject.toml")
dist.include_package_data = False  # what a manifest adds lies in the package too, and making one writes into the tree
built = dist.get_command_obj("build_py")
built.build_lib = {str(tmp_path)!r}
built.ensure_finalized()
print("\\n".join(built.get_outputs(include_bytecode=False)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    held = [Path(line).relative_to(tmp_path) for line in done.stdout.splitlines() if line.startswith(str(tmp_path))]
    assert len(held) > 200
    assert {path.parts[0] for path in held} == {"bertvision"}
    assert not {"studies", "benchmarks", "papers"} & {part for path in held for part in path.parts}
    assert {path for path in held if path.suffix == ".yaml"}  # shipped experiments are found


def test_everything_that_is_no_python_is_named_as_package_data():
    package = ROOT / "src" / "bertvision"
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["bertvision"]
    packed = {path for pattern in patterns for path in package.glob(pattern) if path.is_file()}
    there = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert [path for path in there if path.suffix == ".yaml" and path.parent.parent.name == "configs"]
    assert packed == there
