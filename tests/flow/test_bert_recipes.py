"""Every recipe of BERT's paper runs through, on a tiny encoder and a few examples in its task's own files."""

import json
from pathlib import Path

import pytest

from bertvision.experiment import read_experiments
from bertvision.steps.run import run

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
    return [f"data.{part}={folder / 'words.conll'}" for part in ("train", "dev", "also.test")]


RECIPES = {
    "glue": (write_pairs, ("variant=rte-lr5e-05",), "accuracy"),
    "squad1": (write_questions, (), "f1"),
    "squad2": (write_questions, ("data.held_out=0.4",), "tuned_f1"),
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
