"""The tool that measures readers on long documents, with a tiny one."""

import json
from pathlib import Path

import pytest

import bertvision
from bertvision.data.squad import read_squad_file
from bertvision.files import read_json
from bertvision.model_config import SHIPPED
from tools import long_documents as tool

SENTENCES = [
    "the weir was built in 1887 by hannah coyle .",
    "the river was by the stone .",
    "hannah coyle was by the river in 1887 .",
]


def paragraph(title, number):
    context = " ".join(SENTENCES[(number + place) % 3] for place in range(3)) + f" {title} {number}"
    answer = {"text": "hannah coyle", "answer_start": context.index("hannah coyle")}
    questions = [("who built the weir?", [answer]), ("when was the stone built?", [])]
    return {
        "context": context,
        "qas": [
            {"id": f"{title}{number}{place}", "question": text, "answers": golds, "is_impossible": not golds}
            for place, (text, golds) in enumerate(questions)
        ],
    }


@pytest.fixture
def data(tmp_path):
    articles = [
        {"title": title, "paragraphs": [paragraph(title, number) for number in range(3)]} for title in ("a", "b", "c")
    ]
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"version": "v2.0", "data": articles}))
    return path


@pytest.fixture
def few_words(monkeypatch):
    monkeypatch.setattr(tool, "WORDS", 60)


@pytest.fixture
def measure(make_folder, data, tmp_path, few_words):
    folder, out = make_folder(), tmp_path / "out" / "long.json"

    def run(*more):
        tool.main([str(folder), str(data), str(out), "--device", "cpu", "--questions", "5", "--pages", "0", "2", *more])
        return json.loads(out.read_text()), out.with_suffix(".jsonl").read_text().splitlines(), folder

    return run


def test_a_document_holds_the_own_paragraph_once_among_those_of_other_titles(data, few_words):
    questions = read_squad_file(data).examples
    starts = set()
    for seed in range(20):
        document = tool.build_document(questions[0], questions, 2, seed, None)
        assert document.text[document.start : document.end] == questions[0].context
        others = {document.text[: document.start], document.text[document.end :]}
        assert not any(f" a {number}" in text for text in others for number in range(3))
        assert 120 <= len(document.text.split()) < 120 + 30
        starts.add(document.start)
    assert min(starts) == 0
    assert len(starts) > 2
    assert tool.build_document(questions[0], questions, 0, 1, None) == (
        questions[0].context,
        0,
        len(questions[0].context),
    )


def test_an_article_is_read_in_its_order(data):
    questions = read_squad_file(data).examples
    contexts = list(dict.fromkeys(each.context for each in questions))
    document = tool.build_document(questions[2], questions, tool.ARTICLE, 1, None)
    assert document.text == "\n\n".join(contexts[:3])
    assert document.text[document.start : document.end] == questions[2].context == contexts[1]
    assert tool.build_document(questions[2], questions, tool.ARTICLE, 1, apart=1).text == document.text


def test_paragraphs_around_the_own_are_left_out_where_titles_say_nothing(data, few_words):
    questions = read_squad_file(data).examples
    document = tool.build_document(questions[0], questions, 2, 1, apart=4)
    assert not any(name in document.text[document.end :] for name in ("a 1", "a 2", "b 0", "b 1"))


def test_answers_are_those_of_the_reader_and_a_second_call_goes_on(measure, data):
    record, lines, folder = measure()
    assert len(lines) == 1 + 2 * 5
    reader, questions = bertvision.load(folder, device="cpu"), read_squad_file(data).examples
    for line in map(json.loads, lines[1:]):
        (asked,) = (each for each in questions if each.id == line["id"])
        document = tool.build_document(asked, questions, line["pages"], 1, None)
        answer = reader(asked.text, document.text, null_threshold=float("inf"))
        assert line["text"] == answer.text
        assert line["is_own"] == (document.start <= answer.start < document.end)
        assert line["probability"] == pytest.approx(answer.probability, rel=1e-4)
        assert line["null_probability"] == pytest.approx(answer.no_answer_probability, rel=1e-4)
    path = data.parent / "out" / "long.jsonl"
    path.write_text("\n".join(lines)[:-9])  # a kill in the middle of the last line
    again, lines_again, _ = measure()
    assert [json.loads(line)["id"] for line in lines_again[1:]] == [json.loads(line)["id"] for line in lines[1:]]
    assert [row["f1"] for row in again["documents"]] == [row["f1"] for row in record["documents"]]
    with pytest.raises(AssertionError, match="was begun with"):
        measure("--seed", "2")


def test_the_section_is_of_the_model_that_ships_with_its_sample_and_machine(measure):
    record, _, _ = measure()
    gpu = {
        **record,
        "calibration": {**record["calibration"], "threshold": -9.0},
        "documents": [{**row, "seconds": 0.25, "device_mb": 1234.0} for row in record["documents"]],
        "provenance": {**record["provenance"], "device": "an H200"},
    }
    small = {**record, "settings": {**record["settings"], "questions": 2}, "documents": record["documents"][:1]}
    told = tool.section([gpu, small, record], record["calibration"])
    assert "5 questions of" in told
    assert f"on {record['provenance']['device']} in float32" in told
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in told.splitlines() if line.startswith("|")]
    low, high = record["documents"][1]["f1_interval"]
    assert rows[-1][:5] == ["2", "17", "5", f"{record['documents'][1]['f1']:.1f}", f"{low:.1f} to {high:.1f}"]
    assert rows[0][-1] == "MB of memory"
    assert "before this one took 0.25 seconds and 1,234 MB for 2 pages on\nan H200." in told
    assert "Its article" not in told
    assert tool.section([gpu], record["calibration"]) == ""


@pytest.mark.parametrize("name", ["default", "base"])
def test_the_cards_of_both_models_have_their_own_numbers(name):
    calibration = json.loads((SHIPPED[name] / "calibration.json").read_text())
    paths = (Path(__file__).parents[2] / "results/default_model").glob(f"long-{name}*.json")
    own = [each for each in map(read_json, paths) if each["calibration"] == calibration]
    card = (SHIPPED[name] / "README.md").read_text()
    assert len(own) == 1
    for row in own[0]["documents"]:
        assert f"{row['f1']:.1f} | {row['f1_interval'][0]:.1f} to {row['f1_interval'][1]:.1f} |" in card
    assert own[0]["provenance"]["device"] in card
