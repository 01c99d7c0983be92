"""Every recipe of BERT's paper runs through, on a tiny encoder and a few examples in its task's own files."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.experiment import read_experiments
from bertvision.records import read_records
from bertvision.stages.run import run

TINY = ("windows.max_length=24", "windows.stride=8", "seeds=[1]", "device=cpu", "precision=float32")
BILSTM = "{name: %s, head: %s, readout_width: 8}"


def write_questions(folder: Path) -> list[str]:
    context = "the weir was built in 1887"
    articles = [
        {
            "title": f"weir {number}",
            "paragraphs": [
                {
                    "context": f"{context} by the river {number}",
                    "qas": [
                        {"id": f"{number}a", "question": "when?", "answers": [{"text": "1887", "answer_start": 22}]},
                        {"id": f"{number}b", "question": "who?", "answers": [{"text": "weir", "answer_start": 4}]},
                    ],
                }
            ],
        }
        for number in range(6)
    ]
    (folder / "questions.json").write_text(json.dumps({"version": "v2.0", "data": articles}))
    return [f"data.{part}={folder / 'questions.json'}" for part in ("train", "dev")]


def write_pairs(folder: Path) -> list[str]:
    rows = [f"{n}\tthe stone weir {n}\tthe river {n}\t{'entailment' if n % 2 else 'not_entailment'}" for n in range(40)]
    (folder / "rte.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n")
    return [f"data.{part}={folder / 'rte.tsv'}" for part in ("train", "dev")]


def write_choices(folder: Path) -> list[str]:
    endings = ["river", "weir", "stone", "coyle"]
    rows = [{"ind": n, "ctx": f"who built the {n}", "endings": endings, "label": n % 4} for n in range(8)]
    (folder / "choices.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [f"data.{part}={folder / 'choices.jsonl'}" for part in ("train", "dev")]


def write_sentences(folder: Path) -> list[str]:
    sentence = "hannah B-PER\ncoyle I-PER\nbuilt O\nthe O\nweir O\n\n"
    (folder / "words.conll").write_text(("-DOCSTART- O\n\n" + sentence * 3) * 3)
    return [f"data.{part}={folder / 'words.conll'}" for part in ("train", "dev", "extra_dev_sets.test")]


RECIPES = {
    "glue": (write_pairs, ("variant=rte-lr5e-05",), "accuracy"),
    "squad1": (write_questions, (), "f1"),
    "squad2": (write_questions, ("data.held_out=0.4",), "best_f1"),
    "swag": (write_choices, (), "accuracy"),
    "ner": (write_sentences, (), "test_f1"),
    "ner_features": (
        write_sentences,
        (f"heads.train=[{BILSTM % ('one', 'bilstm_sum_all')}, {BILSTM % ('other', 'bilstm_last')}]",),
        "f1",
    ),
}


@pytest.mark.flow
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_of_berts_paper_runs_through(name, saved_encoder, tmp_path):
    write, more, score = RECIPES[name]
    overrides = [*TINY, f"encoder={saved_encoder}", *write(tmp_path), *more]
    (experiment,) = read_experiments(Path("bert") / name, overrides)
    records = run(experiment, tmp_path / "out")
    assert any(score in record.scores for record in records if record.kind != "baseline")


def test_there_is_a_run_of_every_recipe():
    from bertvision.settings import CONFIGS

    assert set(RECIPES) == {path.stem for path in (CONFIGS / "bert").glob("*.yaml")}


def test_a_step_of_swag_has_16_beginnings_as_in_the_paper():
    (experiment,) = read_experiments(Path("bert/swag"))
    assert experiment.finetune.batch.windows == 16 * 4  # a window for each of four endings


def called(*arguments):
    shown = CliRunner().invoke(app, [*map(str, arguments)])
    assert shown.exit_code == 0, shown.output
    return shown


def set_all(settings):
    return [part for setting in settings for part in ("--set", setting)]


@pytest.mark.flow
def test_seven_members_are_tuned_on_from_another_set_of_questions_and_combined(saved_encoder, tmp_path):
    """As the first lines of bert/squad1 say."""
    first, seven, data = tmp_path / "first", tmp_path / "seven", write_questions(tmp_path)
    shared = set_all([*TINY, *data, "finetune.batch.windows=8"])
    called("run", "bert/squad1", *shared, "--set", f"encoder={saved_encoder}", "--out", first, "-q")
    members = set_all([f"encoder={first / 'encoder' / '3'}", "seeds=[1, 2, 3, 4, 5, 6, 7]"])
    called("run", "bert/squad1", *shared, *members, "--out", seven, "-q")
    records = read_records(seven)
    assert [record.seed for record in records if record.model == "encoder"] == [1, 2, 3, 4, 5, 6, 7]
    folders = sorted(path.parent for path in seven.rglob("predictions.json"))
    assert len(folders) == 7
    questions = tmp_path / "questions.json"
    called("ensemble", *folders, "--data", questions, "--task", "squad1", "--out", tmp_path / "both")
    assert json.loads((tmp_path / "both" / "predictions.json").read_text()).keys() == {
        f"{number}{part}" for number in range(6) for part in "ab"
    }


@pytest.mark.flow
@pytest.mark.parametrize(
    ("task", "write", "more"),
    [("rte", write_pairs, ""), ("swag", write_choices, ""), ("ner", write_sentences, ", stride: 8")],
)
def test_rates_of_rows_choices_and_tags_are_chosen_on_held_out_examples(task, write, more, saved_encoder, tmp_path):
    path, out = tmp_path / "mine.yaml", tmp_path / "out"
    path.write_text(
        f"task: {task}\nencoder: {saved_encoder}\ndevice: cpu\nwindows: {{max_length: 24{more}}}\n"
        "data: {held_out: 0.3}\nfinetune: {fractions: [1]}\nheads: {train: []}\n"
        "variants: {all: {finetune: {lr: [1e-2, 1e-9]}}}\n"
    )
    called("run", path, *set_all(write(tmp_path)), "--out", out, "-q")
    records = [record for record in read_records(out) if record.model == "encoder"]
    assert {record.config["finetune"]["lr"] for record in records} == {1e-2, 1e-9}
    assert "Learning rates, chosen on held-out examples" in (out / "report.md").read_text()
