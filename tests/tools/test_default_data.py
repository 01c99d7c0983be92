"""The data of the models that ship."""

import gzip
import importlib
import json

import pytest

CONTEXT = (
    "The weir at Coyle was built in 1887. Hannah Coyle, an engineer from Edinburgh, planned it. Floods came in 1931."
)


@pytest.fixture
def parted(tmp_path, monkeypatch):
    """Parts an article of 40 questions, every one of which is drawn for a short passage."""
    tool = importlib.import_module("default_data")
    monkeypatch.setattr(tool, "SHORT", 256)
    asked = [
        ("When was the weir at Coyle built?", "1887"),
        ("Which engineer from Edinburgh planned it?", "Hannah Coyle"),
    ]
    questions = [
        {
            "id": f"{number}",
            "question": question,
            "answers": [{"text": answer, "answer_start": CONTEXT.index(answer)}],
            "is_impossible": False,
        }
        for number, (question, answer) in enumerate(asked * 20)
    ]
    article = {"title": "Coyle", "source": "other", "paragraphs": [{"context": CONTEXT, "qas": questions}]}
    with gzip.open(tmp_path / "open.json.gz", "wt") as file:
        json.dump({"version": "v2.0", "data": [article]}, file)
    tool.main(tmp_path / "open.json.gz", tmp_path / "out")
    return json.loads((tmp_path / "out" / "train.json").read_text())["data"][0]["paragraphs"]


def test_a_short_passage_is_the_sentence_that_answers(parted):
    whole, *short = parted
    assert whole["context"] == CONTEXT
    assert {passage["context"] for passage in short} == {
        "The weir at Coyle was built in 1887.",
        "Hannah Coyle, an engineer from Edinburgh, planned it.",
    }
    for passage in short:
        (answer,) = passage["qas"][0]["answers"]
        assert passage["context"][answer["answer_start"] :].startswith(answer["text"])


def test_every_second_short_passage_has_a_question_that_the_rest_answers(parted):
    others = [question for passage in parted[1:] for question in passage["qas"][1:]]
    assert 5 <= len(others) <= 35  # one in two of 40, drawn by a hash
    assert all(question["is_impossible"] and not question["answers"] for question in others)
    assert all(
        ("1887" in passage["context"]) == ("planned" in other["question"])
        for passage in parted[1:]
        for other in passage["qas"][1:]
    )


def test_ids_are_unique(parted):
    ids = [question["id"] for passage in parted for question in passage["qas"]]
    assert len(ids) == len(set(ids))
