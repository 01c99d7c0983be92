"""The whole line on a tiny BERT, for every kind of task but spans."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import nn
from transformers import BertModel

from bertvision.encoder.load import load_encoder
from bertvision.errors import FolderError, SettingsError
from bertvision.experiment import build_experiment
from bertvision.model_folder import load_model, read_model_config
from bertvision.records import read_mistakes, read_records
from bertvision.report.page import write_report
from bertvision.serving.onnx_export import export_onnx
from bertvision.serving.predict import predict_file
from bertvision.stages.heads import keep_epoch
from bertvision.stages.run import run
from bertvision.tasks import TASKS

pytestmark = pytest.mark.flow
PLACES, ACTS = ("river", "weir", "stone"), ("the {} was built", "hannah was in the {}", "by the {}, coyle")
TEXTS = [(act.format(place), place) for act in ACTS for place in PLACES]
TUNED = "30"  # times through the examples, and the name of the folder
OPTIM = {"schedule": "constant", "warmup": 0.0}
FILES = {"predictions.json", "probabilities.json"}


class Written(NamedTuple):
    """Files of one task, and what a perfect model would write for the labelled one."""

    data: dict[str, Any]  # settings
    unlabelled: str
    golds: dict[str, Any]  # by id


class Case(NamedTuple):
    """A task on a few examples, which can be learned by heart."""

    task: str
    write: Callable[[Path], Written]
    scores: set[str]
    right: Callable[[Any, Any], float]  # the first score, from golds and predictions
    baseline: Callable[[list[Any]], Any]  # what needs no model, from the golds
    files: set[str] = FILES
    settings: dict[str, Any] = {}


def write_table(path: Path, rows: list[list[str]], separator: str = ",") -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=separator, lineterminator="\n").writerows(rows)
    return str(path)


def write_classes(folder: Path) -> Written:
    """Texts and classes with a header, in an order that is not the classes' own."""
    rows = [["label", "text"], *([place, text] for text, place in TEXTS)]
    data = write_table(folder / "rows.csv", rows)
    unlabelled = write_table(folder / "unlabelled.csv", [row[1:] for row in rows])
    return Written({"train": data, "dev": data}, unlabelled, {str(n): place for n, (_, place) in enumerate(TEXTS)})


def write_pairs(folder: Path) -> Written:
    """Pairs of texts by column numbers; the file to predict has words where the labels would be."""
    rows = [[str(int(other == "stone")), f"who built the {one}?", f"the {other}"] for one in PLACES for other in PLACES]
    data = write_table(folder / "pairs.tsv", rows, "\t")
    unlabelled = write_table(folder / "unlabelled.tsv", [["1", *row[1:]] for row in rows], "\t")
    columns = {"text": [1, 2], "label": 0}
    return Written(
        {"train": data, "dev": data, "columns": columns}, unlabelled, {str(n): r[0] for n, r in enumerate(rows)}
    )


def write_label_sets(folder: Path) -> Written:
    sets = [[place, "built"] if "built" in text else [place] for text, place in TEXTS]
    rows = [["text", "label"], *([text, ";".join(names)] for (text, _), names in zip(TEXTS, sets, strict=True))]
    data = write_table(folder / "sets.csv", rows)
    unlabelled = write_table(folder / "unlabelled.csv", [row[:1] for row in rows])
    golds = {str(place): sorted(names) for place, names in enumerate(sets)}
    return Written({"train": data, "dev": data, "label_separator": ";"}, unlabelled, golds)


def write_numbers(folder: Path, unit: float = 1.0) -> Written:
    golds = {str(n): unit * (1.5 * PLACES.index(place) - 1) for n, (_, place) in enumerate(TEXTS)}
    lines = [{"text": text, "label": golds[str(n)]} for n, (text, _) in enumerate(TEXTS)]
    (folder / "numbers.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "unlabelled.jsonl").write_text("".join(f"{json.dumps({'text': text})}\n" for text, _ in TEXTS))
    data = str(folder / "numbers.jsonl")
    return Written({"train": data, "dev": data}, str(folder / "unlabelled.jsonl"), golds)


def write_choices(folder: Path) -> Written:
    turned = [[*PLACES[turn:], *PLACES[:turn]] for turn in (0, 1, 2, 0, 1)]
    golds = {str(n): each.index("stone") for n, each in enumerate(turned)}
    header = ["sent1", "sent2", "ending0", "ending1", "ending2", "label"]
    rows = [["hannah coyle", "built the", *each, str(golds[str(n)])] for n, each in enumerate(turned)]
    data = write_table(folder / "choices.csv", [header, *rows])
    unlabelled = write_table(folder / "unlabelled.csv", [row[:-1] for row in [header, *rows]])
    return Written({"train": data, "dev": data}, unlabelled, golds)


def write_sentences(folder: Path) -> Written:
    """Sentences in two folds, each of which has all of them: three twice, once in each of two documents."""
    tags = {"hannah": "B-PER", "coyle": "I-PER", "river": "B-LOC", "1887": "B-DAT"}
    sentences = [
        "hannah coyle built the weir",
        "in 1887 the river was by the stone weir",
        "when hannah was in the river",
    ]
    words = [[(word, tags.get(word, "O")) for word in sentence.split()] for sentence in sentences]
    document = "".join("".join(f"{word} {tag}\n" for word, tag in each) + "\n" for each in words)
    (folder / "words.conll").write_text(f"-DOCSTART- O\n\n{document}-DOCSTART- O\n\n{document}")
    (folder / "unlabelled.conll").write_text("".join("\n".join(each.split()) + "\n\n" for each in sentences))
    golds = [[tag for _, tag in each] for each in words]
    data = {"train": str(folder / "words.conll"), "folds": 2, "fold": 2}
    return Written(data, str(folder / "unlabelled.conll"), {str(n): each for n, each in enumerate(golds + golds)})


def write_questions(folder: Path) -> Written:
    """Questions on contexts of several windows, of which one has the answer, if there is any."""
    contexts = [f"{'the stone was in the river ' * n}the weir was built by the stone" for n in range(4)]
    asked = [("who built the weir?", context, False) for context in contexts]
    asked += [("hannah coyle?", context, True) for context in contexts]

    def write(name: str, *, labelled: bool) -> str:
        paragraphs = [
            {"context": context, "qas": [{"id": f"q{n}", "question": text, **_answers(context, none, labelled)}]}
            for n, (text, context, none) in enumerate(asked)
        ]
        (folder / name).write_text(json.dumps({"data": [{"title": "weir", "paragraphs": paragraphs}]}))
        return str(folder / name)

    data = write("questions.json", labelled=True)
    golds = {f"q{n}": "no answer" if none else "answer" for n, (_, _, none) in enumerate(asked)}
    return Written({"train": data, "dev": data}, write("unlabelled.json", labelled=False), golds)


def _answers(context: str, is_impossible: bool, labelled: bool) -> dict[str, Any]:
    if not labelled:
        return {}
    answers = [] if is_impossible else [{"text": "weir", "answer_start": context.index("weir")}]
    return {"is_impossible": is_impossible, "answers": answers}


def write_mnli(folder: Path) -> Written:
    """GLUE's columns, among others, and ids that are not the rows' numbers; the second dev set has two rows of it."""
    names = ("entailment", "neutral", "contradiction")
    header = ["index", "promptID", "sentence1", "sentence2", "label1", "gold_label"]
    rows = [
        [str(100 + n), "x", text, f"the {place}", "-", names[PLACES.index(place)]]
        for n, (text, place) in enumerate(TEXTS)
    ]
    data = write_table(folder / "dev_matched.tsv", [header, *rows], "\t")
    also = write_table(folder / "dev_mismatched.tsv", [header, rows[4], rows[0]], "\t")
    unlabelled = write_table(folder / "test.tsv", [row[:4] for row in [header, *rows]], "\t")
    golds = {row[0]: row[-1] for row in rows}
    return Written({"train": data, "dev": data, "extra_dev_sets": {"mismatched": also}}, unlabelled, golds)


def percent_equal(golds: list[Any], found: list[Any]) -> float:
    return 100 * sum(one == other for one, other in zip(golds, found, strict=True)) / len(golds)


def micro_f1(golds: list[list[str]], found: list[list[str]]) -> float:
    both = sum(len({*one} & {*other}) for one, other in zip(golds, found, strict=True))
    return 200 * both / (sum(map(len, golds)) + sum(map(len, found)))


def correlation(golds: list[float], found: list[float]) -> float:
    return 100 * float(np.corrcoef(golds, found)[0, 1]) if len(set(found)) > 1 else float("nan")


def entity_f1(golds: list[list[str]], found: list[list[str]]) -> float:
    """All entities here are one or two words long and never touch, so that each begins with a B or after an O."""

    def spans(tags: list[str]) -> set[tuple[int, int, str]]:
        places = [place for place, tag in enumerate(tags) if tag != "O"]
        starts = [p for p in places if tags[p][0] == "B" or p == 0 or tags[p - 1][1:] != tags[p][1:]]
        ends = [next((p for p in range(s + 1, len(tags)) if p in starts or tags[p] == "O"), len(tags)) for s in starts]
        return {(start, end, tags[start][2:]) for start, end in zip(starts, ends, strict=True)}

    sides = [[spans(tags) for tags in side] for side in (golds, found)]
    total = sum(len(each) for side in sides for each in side)
    return 200 * sum(len(one & other) for one, other in zip(*sides, strict=True)) / total if total else 0.0


def commonest(golds: list[Any]) -> Any:  # noqa: ANN401 (a label)
    """The classes of some cases are equally common: the first in order counts then."""
    counts = Counter(golds)
    return min(counts, key=lambda each: (-counts[each], each))


def common_labels(golds: list[list[str]]) -> list[str]:
    counts = Counter(name for names in golds for name in names)
    return [name for name, count in counts.items() if 2 * count > len(golds)]


ROW_HEADS = ["learned_pooling", "ap_glue", "last_linear"]
BILSTM = {"name": "small_bilstm", "head": "bilstm_sum_all", "readout_width": 8}
TAG_HEADS = {"heads": {"train": ["learned_pooling", BILSTM, "last_linear"]}}
PAPER = {"accuracy", "f1", "paper_v1_accuracy", "paper_v1_f1"}
NUMBERS = {"pearson", "spearman", "rmse", "mae"}
CASES = {
    "class": Case("classification", write_classes, {"accuracy", "macro_f1"}, percent_equal, commonest),
    "pairs": Case("classification", write_pairs, {"accuracy", "macro_f1"}, percent_equal, commonest),
    "labels": Case("multilabel", write_label_sets, {"micro_f1", "macro_f1", "exact"}, micro_f1, common_labels),
    "number": Case("regression", write_numbers, NUMBERS, correlation, np.mean, {"predictions.json"}),
    "choice": Case("swag", write_choices, {"accuracy"}, percent_equal, commonest),
    "tags": Case(
        "ner",
        write_sentences,
        {"f1", "precision", "recall", "accuracy"},
        entity_f1,
        lambda golds: [],
        {"predictions.json", "predictions.conll"},
        TAG_HEADS,
    ),
    "answerability": Case(
        "answerability",
        write_questions,
        PAPER,
        percent_equal,
        commonest,
        FILES | {"paper_v1_predictions.json"},
        {"windows": {"max_length": 16, "stride": 4}},
    ),
    "mnli": Case(
        "mnli",
        write_mnli,
        {"accuracy", "mismatched_accuracy"},
        percent_equal,
        lambda golds: "entailment",
        FILES | {"MNLI-m.tsv", "mismatched"},
    ),
}


class Made(NamedTuple):
    """A finished run of a case."""

    case: Case
    written: Written
    settings: dict[str, Any]
    out: Path
    records: list[Any]

    def answers(self, row: str) -> dict[str, Any]:
        return json.loads((self.out / "predictions" / TUNED / row / "predictions.json").read_text())


def settings_of(case: Case, written: Written, encoder: Path) -> dict[str, Any]:
    heads = {"train": ROW_HEADS, "baseline": False, "epochs": 3, "batch": {"windows": 6}, "lr": 0.01}
    return {
        "name": "tiny",
        "task": case.task,
        "data": written.data,
        "encoder": str(encoder),
        "windows": case.settings.get("windows", {"max_length": 24, "stride": 4}),
        "finetune": {
            "fractions": [int(TUNED)],
            "batch": {"windows": 16},
            "lr": 0.005,
            "initial_bias": "zero",
            "dropout": 0.0,
            "optim": OPTIM,
        },
        "states": {"source": "live", "pooling": "first"},
        "heads": {**heads, **case.settings.get("heads", {})},
        "ensembles": [{"models": ["encoder", "learned_pooling"], "method": "mean"}],
        "device": "cpu",
    }


@pytest.fixture(scope="module", params=CASES)
def made(request, saved_encoder, tmp_path_factory) -> Made:
    """One run of each case for all tests, which leave it as it is."""
    case, folder = CASES[request.param], tmp_path_factory.mktemp(request.param)
    written = case.write(folder)
    settings = settings_of(case, written, saved_encoder)
    return Made(case, written, settings, folder / "out", run(build_experiment(settings), folder / "out"))


# Heads on the first token beside heads on all; rows that stay together; tokens; several windows of an example.
DIFFERENT = pytest.mark.parametrize("made", ["class", "choice", "tags", "answerability"], indirect=True)


@pytest.fixture
def classes(saved_encoder, tmp_path) -> dict[str, Any]:
    """The settings of the case with classes, for runs that differ in something."""
    return settings_of(CASES["class"], write_classes(tmp_path), saved_encoder)


def run_with(settings, out, *overrides):
    return run(build_experiment(settings, overrides), out)


def rows_of(made: Made) -> list[str]:
    heads = [each if isinstance(each, str) else each["name"] for each in made.settings["heads"]["train"]]
    return ["majority", "encoder", *heads, "encoder+learned_pooling-mean"]


def test_a_run_leaves_a_record_of_the_baseline_and_of_every_row_with_the_tasks_scores(made):
    assert [record.model for record in made.records] == rows_of(made)
    assert read_records(made.out / "records") == made.records
    for record in made.records:
        undefined = {"pearson", "spearman"} if record.model == "majority" else set()  # a constant has none
        assert record.scores.keys() == made.case.scores - undefined
        assert len(record.epoch_scores) == (3 if record.kind in ("head", "control") else 0)
    assert made.records[0].kind == "baseline"
    assert made.records[0].parameters.total == 0


def test_an_encoder_learns_a_few_examples_by_heart(made):
    """So labels stay with their windows, columns with their labels, and the saved output layer is the tuned one."""
    encoder = next(record for record in made.records if record.model == "encoder")
    assert encoder.scores[first_score(made)] > 95


def first_score(made: Made) -> str:
    return {"labels": "micro_f1", "number": "pearson", "tags": "f1"}.get(kind_of(made), "accuracy")


def kind_of(made: Made) -> str:
    return next(name for name, case in CASES.items() if case is made.case)


def test_scores_are_those_of_the_prediction_files(made):
    for record in made.records[1:]:
        found = made.answers(record.model)
        golds = [made.written.golds[each] for each in found]
        assert record.scores[first_score(made)] == pytest.approx(made.case.right(golds, list(found.values())))


def test_the_baseline_is_the_commonest_answer(made):
    golds = [made.written.golds[each] for each in made.answers("encoder")]
    guess = made.case.baseline(list(made.written.golds.values()))
    if made.case.task == "regression":
        assert made.records[0].scores["rmse"] == pytest.approx(np.std(golds))
        return
    expected = made.case.right(golds, [["O"] * len(each) if made.case.task == "ner" else guess for each in golds])
    assert made.records[0].scores[first_score(made)] == pytest.approx(expected)


def test_a_prediction_folder_holds_the_tasks_files(made):
    for row in rows_of(made)[1:]:
        folder = made.out / "predictions" / TUNED / row
        assert {path.name for path in folder.iterdir()} == made.case.files | {"mistakes.json", "sha256.json"}
        if "mismatched" in made.case.files:
            assert {path.name for path in (folder / "mismatched").iterdir()} == {*FILES, "MNLI-mm.tsv", "sha256.json"}
            assert list(json.loads((folder / "mismatched" / "predictions.json").read_text())) == ["104", "100"]
    assert not (made.out / "predictions" / TUNED / "majority").exists()


def test_shares_of_few_examples_have_exact_intervals_and_other_scores_none(made):
    for record in made.records:
        golds = [made.written.golds[each] for each in made.answers("encoder")]
        name = {"accuracy": "accuracy", "matthews": None}.get(first_score(made), "exact")
        if kind_of(made) == "tags" or name not in record.scores:
            assert record.intervals == {}
            continue
        right = round(record.scores[name] * len(golds) / 100)
        expected = binomtest(right, len(golds)).proportion_ci()
        assert record.intervals[name] == pytest.approx((100 * expected.low, 100 * expected.high))
        assert "f1" not in record.intervals


def test_mistakes_are_the_examples_whose_prediction_is_not_the_gold(made, tmp_path):
    mistakes = {each.model: each for each in read_mistakes(made.out)}
    assert list(mistakes) == sorted(rows_of(made)[1:])
    for row, found in mistakes.items():
        answers = made.answers(row)
        wrong = {key for key, answer in answers.items() if answer != made.written.golds[key]}
        assert found.examples == len(answers)
        assert {each.id for each in found.errors} == wrong
        assert all(each.gold != each.predicted and all(each.texts.values()) for each in found.errors)
        assert found.wrong == (None if kind_of(made) in ("number", "tags") else len(wrong))
    page = write_report(made.records, tmp_path, mistakes=list(mistakes.values())).read_text(encoding="utf-8")
    best = page.partition("<b>")[2].partition(" at fraction")[0]
    assert (f"Errors of {best} to read" in page) == bool(mistakes[best].errors)


@pytest.mark.parametrize("made", ["class", "labels", "number", "choice"], indirect=True)
def test_a_regression_on_an_encoder_as_given_is_fitted_to_fewer_rows_and_judges_rows_that_it_has_not_seen(
    made, tmp_path
):
    heads = {**made.settings["heads"], "train": ["regression"]}
    settings = {**made.settings, "finetune": {"fractions": []}, "heads": heads, "ensembles": []}
    record = run(build_experiment(settings), tmp_path / "out")[-1]
    rows = record.data["train"].examples
    assert [each.rows for each in record.fewer_rows] == [
        round(rows * share) for share in (0.25, 0.5) if rows * share > 3.5
    ]
    assert all(each.scores.keys() <= made.case.scores for each in record.fewer_rows)
    (mistakes,) = read_mistakes(tmp_path / "out")
    assert mistakes.checked["train"] == rows
    assert run(build_experiment(settings), tmp_path / "out")[-1] == record
    assert not [each for each in made.records if each.fewer_rows]  # a tuned encoder has seen all rows


@pytest.mark.parametrize("row", ["encoder", "learned_pooling", "ap_glue"])
def test_a_model_folder_answers_labelled_and_unlabelled_files_as_the_run_did(made, tmp_path, row):
    row = row if row in rows_of(made) else BILSTM["name"]
    model = made.out / (f"encoder/{TUNED}" if row == "encoder" else f"heads/{TUNED}/{row}")
    record = next(record for record in made.records if record.model == row)
    answers = made.answers(row)
    if made.case.task == "ner":  # the run's dev is a part of the file
        labelled = predict_file(model, made.written.data["train"], tmp_path / "labelled")
        assert {
            each: json.loads((tmp_path / "labelled" / "predictions.json").read_text())[each] for each in answers
        } == answers
    else:
        labelled = predict_file(model, made.written.data["dev"], tmp_path / "labelled")
        assert json.loads((tmp_path / "labelled" / "predictions.json").read_text()) == answers
        assert labelled.scores == {name: score for name, score in record.scores.items() if "mismatched" not in name}
    unlabelled = predict_file(model, made.written.unlabelled, tmp_path / "unlabelled")
    written = json.loads((tmp_path / "unlabelled" / "predictions.json").read_text())
    assert list(written.values()) == list(answers.values())[: len(written)]
    assert (unlabelled.scores is None) == (made.case.write is not write_pairs)  # it takes any 0 or 1 for a label


def test_a_finished_run_is_not_done_again(made):
    before = {path: path.stat().st_mtime_ns for path in made.out.rglob("*") if path.suffix in (".safetensors", ".json")}
    assert run_with(made.settings, made.out) == made.records
    after = {path: path.stat().st_mtime_ns for path in before}
    changed = {path.relative_to(made.out).as_posix() for path, time in before.items() if after[path] != time}
    assert changed <= {"experiment.json"}  # it is written at the end of every run


@DIFFERENT
def test_a_run_that_was_stopped_among_its_heads_comes_to_the_same_scores(made, tmp_path, monkeypatch):
    seen = []

    def stop_at_the_third_epoch(*arguments):
        seen.append(arguments)
        if len(seen) == 3:
            raise KeyboardInterrupt
        keep_epoch(*arguments)

    settings = {**made.settings, "heads": {**made.settings["heads"], "save_every": 1e-9}}
    settings["encoder"], settings["finetune"] = str(made.out / "encoder" / TUNED), {"fractions": []}
    monkeypatch.setattr("bertvision.stages.heads.keep_epoch", stop_at_the_third_epoch)
    with pytest.raises(KeyboardInterrupt):
        run_with(settings, tmp_path / "out")
    monkeypatch.undo()
    again = run_with(settings, tmp_path / "out")
    assert [record.scores for record in again] == [record.scores for record in made.records]
    assert not (tmp_path / "out" / "unfinished").exists()


@DIFFERENT
def test_kept_states_give_the_scores_of_live_ones(made, tmp_path):
    settings = {**made.settings, "encoder": str(made.out / "encoder" / TUNED), "finetune": {"fractions": []}}
    kept = run_with(settings, tmp_path / "out", "states=memory")
    assert [record.scores for record in kept] == [pytest.approx(record.scores, rel=1e-2) for record in made.records]
    heads = [record for record in kept if record.kind in ("head", "control")]
    assert {record.states for record in heads} <= {"memory, float32", "memory, bf16"}


def test_the_encoders_output_layer_goes_on_where_it_is_tuned_further(made, tmp_path):
    settings = {**made.settings, "encoder": str(made.out / "encoder" / TUNED)}
    first = run_with(settings, tmp_path / "more", "finetune.fractions=[0]", "heads.train=[]", "ensembles=[]")
    assert [record.scores for record in first] == [record.scores for record in made.records[:2]]


def test_other_labels_of_a_checkpoint_begin_a_new_output_layer(classes, tmp_path):
    first = run_with(classes, tmp_path / "out", "heads.train=[]", "ensembles=[]")
    pairs = {**classes, "data": write_pairs(tmp_path).data, "encoder": str(tmp_path / "out" / "encoder" / TUNED)}
    given = run_with(pairs, tmp_path / "given", "finetune.fractions=[]", "heads.train=[last_linear]", "ensembles=[]")
    assert [record.model for record in first] == ["majority", "encoder"]
    assert [record.model for record in given] == ["majority", "last_linear"]


@pytest.mark.parametrize("made", ["class"], indirect=True)
def test_first_token_heads_read_the_pooled_state_and_others_do_not(made):
    heads = made.out / "heads" / TUNED
    layers = {name: read_model_config(heads / name).layers for name in ROW_HEADS}
    assert layers == {"learned_pooling": 1 + 3, "ap_glue": 3, "last_linear": 1 + 3}
    assert [load_model(heads / name).head.pooling for name in ROW_HEADS] == ["first", None, "first"]


@pytest.mark.parametrize("pooler", [True, False])
def test_heads_read_the_chosen_layers_with_and_without_a_pooler(classes, tmp_path, pooler):
    encoder = load_encoder(classes["encoder"])
    if not pooler:
        encoder.model.pooler = None
    encoder.model.save_pretrained(tmp_path / "own")
    encoder.tokenizer.save_pretrained(tmp_path / "own")
    settings, layers = {**classes, "encoder": str(tmp_path / "own")}, "states.layers=[0, 2]"
    records = run_with(settings, tmp_path / "out", layers, f"heads.train={ROW_HEADS[:2]}", "finetune.fractions=[1]")
    learned = next(record for record in records if record.model == "learned_pooling")
    assert learned.weighted_states == [*(["pooled"] if pooler else []), 0, 2]
    assert len(learned.layer_weights) == 2 + pooler
    for name, is_cls in (("learned_pooling", True), ("ap_glue", False)):
        model, pooled = load_model(tmp_path / "out" / "heads" / "1" / name), int(is_cls and pooler)
        states = torch.randn(2, 3 + pooled, 1 if is_cls else 8, 32)
        read = [place for place in range(3 + pooled) if is_read(model.head, states, place)]
        assert read == [*range(pooled), pooled, pooled + 2]
        again = predict_file(tmp_path / "out" / "heads" / "1" / name, classes["data"]["dev"], tmp_path / "answers")
        assert again.scores == next(record for record in records if record.model == name).scores


def is_read(head, states, place):
    """Return whether a head's logits depend on one of the states."""
    seen = torch.ones(states.shape[0], states.shape[2], dtype=torch.bool), torch.zeros(2, states.shape[2], dtype=int)
    changed = states.clone()
    changed[:, place] += 1
    head.eval()
    with torch.no_grad():
        return not torch.equal(head(states, *seen), head(changed, *seen))


def test_one_more_head_of_either_sort_is_trained_alone_and_equals_one_trained_with_the_others(classes, tmp_path):
    once = ("finetune.fractions=[1]", "heads.epochs=1")
    run_with(classes, tmp_path / "out", *once, "heads.train=[last_linear]", "ensembles=[]")
    kept = (tmp_path / "out" / "heads" / "1" / "last_linear" / "head.safetensors").stat().st_mtime_ns
    later = run_with(classes, tmp_path / "out", *once)
    together = run_with(classes, tmp_path / "together", *once)
    assert (tmp_path / "out" / "heads" / "1" / "last_linear" / "head.safetensors").stat().st_mtime_ns == kept
    assert [record.scores for record in later] == [pytest.approx(record.scores, rel=1e-4) for record in together]


@pytest.mark.parametrize("made", ["class"], indirect=True)
def test_the_mean_of_two_models_is_that_of_their_probabilities(made):
    names = ("encoder", "learned_pooling", "encoder+learned_pooling-mean")
    folder = made.out / "predictions" / TUNED
    one, other, both = (json.loads((folder / name / "probabilities.json").read_text()) for name in names)
    for identity, shares in both.items():
        for label, share in shares.items():
            assert share == pytest.approx((one[identity][label] + other[identity][label]) / 2, abs=1e-5)


@pytest.mark.parametrize("made", ["answerability"], indirect=True)
def test_a_question_has_no_answer_only_if_none_of_its_windows_has_one(made):
    record = made.records[1]
    assert record.data["dev"].windows > record.data["dev"].examples
    paper = json.loads((made.out / "predictions" / TUNED / "encoder" / "paper_v1_predictions.json").read_text())
    # One window of a question with an answer may hold none of it, and decides by the paper's rule.
    assert percent_equal(list(made.written.golds.values()), list(paper.values())) == record.scores["paper_v1_accuracy"]
    assert record.scores["paper_v1_accuracy"] < record.scores["accuracy"]


def test_columns_that_are_read_otherwise_are_other_data(classes, tmp_path):
    run_with(classes, tmp_path / "out", "heads.train=[]", "ensembles=[]")
    swapped = {"text": "label", "label": "text"}
    with pytest.raises(FolderError, match=r"train\.columns"):
        run_with(
            {**classes, "data": {**classes["data"], "columns": swapped}},
            tmp_path / "out",
            "heads.train=[]",
            "ensembles=[]",
        )


@pytest.mark.parametrize("made", ["choice"], indirect=True)
def test_a_share_of_the_examples_and_several_seeds_keep_the_rows_of_a_choice_together(made, tmp_path):
    settings = {**made.settings, "encoder": str(made.out / "encoder" / TUNED), "finetune": {"fractions": []}}
    records = run_with(settings, tmp_path / "out", "heads.data_fraction=0.5", "seeds=[1, 2]", "heads.epochs=1")
    assert [(record.seed, record.model) for record in records] == [(s, row) for s in (1, 2) for row in rows_of(made)]


@pytest.mark.parametrize("fractions", ["[]", "[2]"])
@pytest.mark.parametrize("pooling", ["mean", "first_mean_max", "pair_difference"])
def test_a_head_on_pooled_states_predicts_from_its_folder_what_it_did_in_the_run(
    pooling, fractions, saved_encoder, tmp_path
):
    settings = settings_of(CASES["pairs"], written := write_pairs(tmp_path), saved_encoder)
    heads = "heads.train=[regression, learned_pooling]"
    overrides = (f"states.pooling={pooling}", f"finetune.fractions={fractions}", heads, "ensembles=[]")
    records = {record.model: record for record in run_with(settings, tmp_path / "out", *overrides)}
    assert records.keys() == {"majority", "regression", "learned_pooling"} | (
        {"encoder"} if fractions == "[2]" else set()
    )
    place = tmp_path / "out" / "heads" / ("2" if fractions == "[2]" else "given")
    for name in ("regression", "learned_pooling"):
        # An encoder that is used as given lies outside of the run.
        again = predict_file(place / name, written.data["dev"], tmp_path / f"again-{name}", allow_outside=True)
        assert again.scores == records[name].scores
    assert records["regression"].lr is None
    if (pooling, fractions) == (
        "pair_difference",
        "[]",
    ):  # it is compared with torch on rows of many lengths before it is written
        assert export_onnx(place / "regression", tmp_path / "onnx", allow_outside=True).float32.largest < 1e-4
    if fractions == "[2]":
        again = predict_file(tmp_path / "out" / "encoder" / "2", written.data["dev"], tmp_path / "again-encoder")
        assert again.scores == records["encoder"].scores


@pytest.mark.parametrize("unit", [2.0**17, 2.0**-10])
def test_numbers_are_learned_alike_in_any_unit(unit, saved_encoder, tmp_path):
    heads = [*ROW_HEADS, "regression", {"name": "small_bilstm", "head": "bilstm_last", "readout_width": 8}]
    found = {}
    for each in (1.0, unit):
        (place := tmp_path / str(each)).mkdir()
        settings = settings_of(CASES["number"], write_numbers(place, each), saved_encoder)
        settings |= {"heads": settings["heads"] | {"train": heads}, "ensembles": []}
        tuned = {"fractions": [2, 4], "head": "ap_glue"}
        settings["finetune"] = settings["finetune"] | tuned
        run_with(settings, place / "out")
        for fraction in ("2", "4"):
            for row in (place / "out" / "predictions" / fraction).iterdir():
                numbers = json.loads((row / "predictions.json").read_text()).values()
                found[each, fraction, row.name] = np.array([*numbers]) / each
        # A checkpoint whose output layer goes on learning
        going_on = settings | {"encoder": str(place / "out" / "encoder" / "4"), "heads": {"train": []}}
        run_with(going_on, place / "on")
        numbers = json.loads((place / "on" / "predictions" / "4" / "encoder" / "predictions.json").read_text()).values()
        found[each, "4", "on"] = np.array([*numbers]) / each
    assert len(found) == 2 * (2 * (len(heads) + 1) + 1)
    for (_, *which), numbers in found.items():
        np.testing.assert_array_equal(numbers, found[1.0, *which], str(which))


def test_compared_texts_need_two_in_every_row(classes, tmp_path):
    with pytest.raises(SettingsError, match=r"states\.pooling: pair_difference needs two texts.*use mean"):
        run_with(classes, tmp_path / "out", "states.pooling= pair_difference")


def test_more_epochs_of_heads_run_the_encoder_no_more_often(classes, tmp_path):
    frozen = ("finetune.fractions=[]", "heads.train=[last_linear]", "ensembles=[]", "states.source=memory")

    def encoder_runs(epochs):
        runs = []
        with nn.modules.module.register_module_forward_hook(
            lambda module, given, output: runs.append(1) if isinstance(module, BertModel) else None
        ):
            run_with(classes, tmp_path / str(epochs), *frozen, f"heads.epochs={epochs}")
        return len(runs)

    assert encoder_runs(9) == encoder_runs(2) > 0


@pytest.mark.parametrize("write", [write_classes, write_label_sets])
def test_contrastive_tuning_gives_an_encoder_with_a_regression_and_heads_on_all_its_layers(
    write, encoder_folder, tmp_path
):
    written = write(tmp_path)
    settings = {
        "task": {write_classes: "classification", write_label_sets: "multilabel"}[write],
        "data": written.data,
        "encoder": str(encoder_folder),
        "device": "cpu",
        "windows": {"max_length": 16},
        "finetune": {"objective": "contrastive", "fractions": [0, 1], "pairs_per_epoch": 400, "lr": 1e-3},
        "heads": {"train": ["regression"]},
    }
    records = run(build_experiment(settings), tmp_path / "out")
    scores = {(record.fraction, record.model): record.scores for record in records}
    assert {fraction for fraction, _ in scores} >= {0, 1}
    # SetFit's own head is the regression on the last state, which stands beside the others as a baseline.
    assert scores[1, "encoder"] == scores[1, "last_regression"]
    first = next(iter(scores[1, "encoder"]))
    assert scores[1, "encoder"][first] == scores[1, "regression"][first] == 100
    again = run(build_experiment(settings), tmp_path / "out")
    assert [record.scores for record in again] == [record.scores for record in records]


def test_regressions_that_tell_what_fewer_rows_give_on_dev_are_refused_on_another_dev(encoder_folder, tmp_path):
    written = write_classes(tmp_path)
    settings = {
        "task": "classification",
        "data": written.data,
        "encoder": str(encoder_folder),
        "device": "cpu",
        "windows": {"max_length": 16},
        "finetune": {"fractions": []},
        "heads": {"train": ["regression"], "epochs": 1},
    }
    assert any(record.fewer_rows for record in run(build_experiment(settings), tmp_path / "out"))
    dev = Path(written.data["dev"])
    shorter = tmp_path / f"shorter{dev.suffix}"
    shorter.write_text("".join(dev.read_text().splitlines(keepends=True)[:-1]))
    settings["data"] = {**written.data, "dev": str(shorter)}
    with pytest.raises(FolderError, match="made by other settings .scored_on.dev was"):
        run(build_experiment(settings), tmp_path / "out")


def test_contrastive_tuning_on_numbers_needs_two_texts(encoder_folder, tmp_path):
    settings = {
        "task": "regression",
        "data": write_numbers(tmp_path).data,
        "encoder": str(encoder_folder),
        "device": "cpu",
        "finetune": {"objective": "contrastive"},
    }
    with pytest.raises(SettingsError, match="give two columns of text, or use objective: task"):
        run(build_experiment(settings), tmp_path / "out")


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_task_keeps_its_best_weights(name, saved_encoder, tmp_path):
    case = CASES[name]
    settings = settings_of(case, case.write(tmp_path), saved_encoder)
    settings["heads"]["epochs"] = 2
    is_one_text = name in ("choice", "answerability")  # of which nothing can be held out: dev chooses
    share, part = (0.0, "") if is_one_text else (0.4, "held_out_")
    best = (f"data.held_out={share}", "finetune.fractions=[4]", "finetune.keep_best=true", "heads.keep_best=true")
    for record in run_with(settings, tmp_path / "out", *best):
        if record.kind in ("encoder", "head", "control"):
            scored = [point.score for point in record.training if point.score is not None]
            # What was scored in training is scored again by who loads the model: other batches, other rounding.
            assert record.scores[part + TASKS[case.task].scores[0]] == pytest.approx(max(scored), rel=1e-4)
            assert any(note.startswith("its weights are those of ") for note in record.notes)
