"""The model that ships with the package."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import bertvision
from bertvision.cli import app
from bertvision.encoder.load import load_encoder
from bertvision.errors import FolderError, SettingsError
from bertvision.evaluate.score import read_questions
from bertvision.files import sha256_of
from bertvision.model_config import SHIPPED
from bertvision.serving.onnx_model import OnnxEngine
from bertvision.serving.reader import Reader
from bertvision.serving.torch_model import open_model
from bertvision.serving.xray import xray
from bertvision.training.device import choose_compute

RESULTS = Path(__file__).parents[2] / "results" / "default_model"
DEFAULT_FOLDER = SHIPPED["default"]
CONTEXT = (
    "The weir at Coyle was built in 1887 by the engineer Hannah Coyle, who had studied in Edinburgh. It is 40 metres "
    "long and holds back the river Ennet for the paper mill. In 1931 a flood carried off its wooden crest, which was "
    "replaced by one of concrete."
)


@pytest.fixture(scope="module")
def reader():
    return bertvision.load("default", device="cpu")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Who built the weir?", "Hannah Coyle"),
        ("When was the weir built?", "1887"),
        ("How long is the weir?", "40 metres"),
        ("Which river does the weir hold back?", "Ennet"),
    ],
)
def test_it_answers_plain_questions_about_a_text(reader, question, answer):
    found = reader(question, CONTEXT)
    assert answer in found.text
    assert len(found.text) <= len(answer) + 20
    assert found.text == CONTEXT[found.start : found.end]


def test_it_declines_where_the_text_speaks_of_something_else(reader):
    assert reader("What is the capital of Australia?", CONTEXT).text == ""


def test_onnxruntime_gives_torchs_logits(reader):
    asked = reader.served.answering(read_questions("sample:dev").questions[:20])
    by_torch = open_model(Path("default"), choose_compute("cpu", "float32"))
    found, expected = reader.served.logits(asked.windows), by_torch.logits(asked.windows)
    assert isinstance(reader.served.engine, OnnxEngine)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_the_first_answer_needs_neither_torch_nor_transformers(tmp_path):
    (tmp_path / "weir.txt").write_text(CONTEXT)
    given = ["ask", "--question", "Who built the weir?", "--file", str(tmp_path / "weir.txt")]
    code = f"""
import sys
sys.modules |= dict.fromkeys(("torch", "jaxtyping", "transformers", "huggingface_hub", "matplotlib", "scipy"))
from bertvision.cli import app
app({given!r}, standalone_mode=False)
app([*{given!r}, "--layers"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[0] == "Hannah Coyle"
    assert done.stderr == "error: this needs the package torch: pip install 'bertvision[train]'\n"
    assert done.returncode == 2


def test_a_saved_one_is_calibrated_without_torch_and_used_by_either(tmp_path, squad_file):
    code = f"""
import sys
sys.modules |= dict.fromkeys(("torch", "jaxtyping", "transformers", "huggingface_hub", "matplotlib"))
import bertvision
bertvision.load("default").save_pretrained("mine")
bertvision.calibrate("mine", {str(squad_file())!r}, write=True)
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    fitted = json.loads((tmp_path / "mine" / "calibration.json").read_text())
    before = bertvision.load("default").served.calibration
    by_torch = open_model(tmp_path / "mine", choose_compute("cpu", "float32"))
    for served in (bertvision.load(tmp_path / "mine").served, by_torch):
        assert served.calibration.model_dump() == fitted
        assert served.calibration.threshold != before.threshold
    assert f"| null threshold | {fitted['threshold']:.4f} |" in (tmp_path / "mine" / "README.md").read_text()


def test_its_xray_is_torchs(reader):
    by_torch = Reader(open_model(Path("default"), choose_compute("cpu", "float32")))
    found, expected = (xray(each, "Who built the weir?", CONTEXT) for each in (reader, by_torch))
    assert found.as_dict() == expected.as_dict()
    assert [token.text for token in found.tokens][:3] == ["[CLS]", "Who", "built"]


def test_layers_add_up_to_the_score(reader):
    found = reader("Who built the weir?", CONTEXT, layers=True)
    assert sum(part.score for part in found.layers) == pytest.approx(found.score, abs=1e-3)


@pytest.mark.parametrize(("name", "most"), [("default", 25_000_000), ("base", 10_000_000)])
def test_it_is_small_whole_and_part_of_the_wheel(name, most):
    folder = SHIPPED[name]
    files = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert sum(files.values()) <= most
    hashes = json.loads((folder / "sha256.json").read_text())["sha256"]
    free = {"default": {"README.md", "sha256.json"}, "base": {"README.md", "model.json", "sha256.json"}}[name]
    assert hashes.keys() == files.keys() - free
    assert {file: sha256_of(folder / file) for file in hashes} == hashes
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert f"{name}_model/*" in project["tool"]["setuptools"]["package-data"]["bertvision"]


@pytest.mark.parametrize(
    "name", sorted({path.name for path in DEFAULT_FOLDER.iterdir()} - {"README.md", "sha256.json", "model.onnx"})
)
def test_a_byte_that_changed_is_told_whoever_reads_it(tmp_path, name):
    folder = tmp_path / "copy"
    shutil.copytree(DEFAULT_FOLDER, folder)
    content = bytearray((folder / name).read_bytes())
    place = content.rindex(b"0" if name.endswith(".json") else content[-1:])
    content[place] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(FolderError, match=rf"{name}: damaged|head\.safetensors: weights of another"):
        bertvision.load(folder)
    with pytest.raises(FolderError, match=rf"{name}: damaged"):
        load_encoder(str(folder))


@pytest.mark.parametrize("name", SHIPPED)
def test_its_card_names_data_licences_limits_and_the_command_that_made_it(name):
    card = (SHIPPED[name] / "README.md").read_text()
    for part in (
        "CC BY-SA 4.0",
        "CC BY 4.0",
        "Apache-2.0",
        "cannot do",
        {"default": "python tools/translated_teacher.py", "base": "bertvision run default_model/"}[name],
        "| best_f1 |",
    ):
        assert part in card


@pytest.mark.parametrize("name", SHIPPED)
def test_its_card_tells_the_hub_what_it_scores_at_its_own_threshold(name):
    measured = json.loads((RESULTS / f"probabilities-{name}.json").read_text())
    front = yaml.safe_load((SHIPPED[name] / "README.md").read_text().split("---\n")[1])
    at = f"at null threshold {measured['threshold']:.2f}"
    assert {each["name"]: each["value"] for each in front["model-index"][0]["results"][0]["metrics"]} == {
        f"f1 {at}": measured["scores"]["f1"],
        f"exact {at}": measured["scores"]["exact"],
    }


def test_without_models_it_is_served(monkeypatch):
    served = {}

    def build_app(models, config):
        served.update(models)
        raise SettingsError("enough")

    monkeypatch.setattr("bertvision.serving.http.app.build_app", build_app)
    assert CliRunner().invoke(app, ["serve", "--device", "cpu", "--port", "0"]).exit_code == 2
    assert {name: model.served.folder for name, model in served.items()} == {"default": DEFAULT_FOLDER}
