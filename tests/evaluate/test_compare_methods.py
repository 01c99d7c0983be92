from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.data.split import write_squad
from bertvision.errors import DataError, FolderError
from bertvision.evaluate.compare import BEST_COLUMNS, Differences, compare_folder
from bertvision.files import read_json, write_json
from bertvision.records import (
    DIFFERENCES_FILE,
    DataFile,
    Parameters,
    Provenance,
    RunRecord,
    Seconds,
    located_records,
    read_differences,
    write_record,
)
from bertvision.scoring.bootstrap import draw_counts
from bertvision.scoring.metrics import entities

PLACE = Provenance(commit=None, dirty=None, device="cpu", precision="float32", python="3.11", versions={})
DEV = DataFile(name="the_dev.json", sha256=None, examples=8, dropped=0, windows=8)


def make_row(out, variant, seed, answers, /, held_out=50.0, **changes):
    """Write a variant's record and its answers as a run does; `changes` replace fields of the record."""
    record = RunRecord(
        experiment="study",
        variant=variant,
        method=variant.partition("-lr")[0],
        task="squad2",
        model="encoder",
        kind="encoder",
        fraction=1.0,
        seed=seed,
        scores={"f1": 0.0, "held_out_f1": held_out},
        epoch_scores=[],
        parameters=Parameters(total=2, trainable=2, encoder=1),
        seconds=Seconds(finetune=1.0, heads=None, predict=1.0),
        schedule_horizon=None,
        data={"dev": DEV},
        encoder_fingerprint="",
        config={"variant": variant, "seeds": [1, 2]},
        provenance=PLACE,
    )
    write_record(out / variant / "records", record.model_copy(update=changes))
    write_json(predictions_of(out, variant, seed) / "predictions.json", answers)


def predictions_of(out, variant, seed):
    root = out / variant if seed == 1 else out / variant / "seeds" / str(seed)
    return root / "predictions" / "1" / "encoder"


def add_sweeps(out, golds):
    """Write the best spans, all right but that of the one unanswerable question, and null odds that order them."""
    spans = {question: text or "stone" for question, text in golds.items()}
    for (variant, seed), last in LAST.items():
        odds = {question: float(question in last) + 0.5 * (text == "") for question, text in golds.items()}
        write_json(predictions_of(out, variant, seed) / "best_spans.json", spans)
        write_json(predictions_of(out, variant, seed) / "null_odds.json", odds)


# By variant and seed, the questions whose odds are above those of the unanswerable one, `q2`.
LAST = {
    ("full", 1): ("q0", "q1", "q3"),
    ("full", 2): ("q4", "q5"),
    ("lora-lr0.1", 1): (),
    ("lora-lr0.1", 2): ("q0",),
}


@pytest.fixture
def golds(questions):
    return {each.id: each.answers[0].text if each.answers else "" for each in questions}


@pytest.fixture
def out(tmp_path, golds):
    """A run folder where `full` answers nothing, and `lora` all in one seed and all but two in the other."""
    nothing = dict.fromkeys(golds, "")
    most = {**golds, "q0": "", "q1": ""}
    for seed, answers in ((1, golds), (2, most)):
        make_row(tmp_path / "out", "full", seed, nothing)
        make_row(tmp_path / "out", "lora-lr0.1", seed, answers, held_out=60.0)
        make_row(tmp_path / "out", "lora-lr0.2", seed, nothing, held_out=40.0)
    return tmp_path / "out"


def test_rows_that_a_report_shows_are_compared_question_by_question(out, squad_file):
    (found,) = compare_folder(out, str(squad_file()), "full").differences
    assert (found.experiment, found.model, found.fraction, found.against) == ("study", "lora", 1.0, "full")
    assert found.seeds == (1, 2)
    # Of eight questions one has no answer, which both get right; two others are right in one seed of two.
    assert found.difference == pytest.approx(100 * (5 + 2 * 0.5) / 8)
    assert 0 < found.low < found.difference < found.high <= 100
    assert found.p_value < 0.01
    assert read_differences(out) == [found]


def test_every_seed_is_told_by_itself(out, squad_file):
    (found,) = compare_folder(out, str(squad_file()), "full").differences
    assert found.by_seed == pytest.approx((100 * 7 / 8, 100 * 5 / 8))


def test_comparisons_with_another_row_stay_in_the_file_and_those_with_the_same_are_made_anew(out, squad_file):
    for against in ("full", "lora", "full"):
        compare_folder(out, str(squad_file()), against)
    assert [(each.model, each.against) for each in read_differences(out)] == [("full", "lora"), ("lora", "full")]


def test_a_seed_that_one_side_lacks_does_not_count(out, squad_file):
    (out / "full" / "seeds" / "2" / "predictions" / "1" / "encoder" / "predictions.json").unlink()
    (found,) = compare_folder(out, str(squad_file()), "full").differences
    assert found.seeds == (1,)
    assert found.difference == pytest.approx(100 * 7 / 8)


def test_a_folder_that_is_not_there_or_holds_no_record_is_refused(tmp_path):
    with pytest.raises(
        FolderError, match=r"gone: no such folder; give the run folder of an experiment with `variants`"
    ):
        compare_folder(tmp_path / "gone", "unread.json", "full")
    with pytest.raises(FolderError, match=r"no records \(\*-seed\*.json\) below it; give the run folder"):
        compare_folder(tmp_path, "unread.json", "full")


def test_records_that_are_no_variants_are_left_to_compare(tmp_path):
    make_row(tmp_path, "full", 1, {}, experiment="plain", variant=None, method=None, config={"seeds": [1]})
    with pytest.raises(
        FolderError, match=r"no record of a variant among its 1, such as plain, expected .*`bertvision com"
    ):
        compare_folder(tmp_path, "unread.json", "full")


def weights_of_seeds(resamples):
    """How often each of two seeds is drawn, as a share; drawn as `draw_seeds` does."""
    return np.random.default_rng((1, 2)).multinomial(2, [0.5, 0.5], size=resamples) / 2


@pytest.mark.parametrize("titles", [("a", "b", "c", "d"), ("weir",)])
def test_articles_and_seeds_are_resampled_together(out, golds, questions, tmp_path, titles):
    path = tmp_path / "articles.json"
    write_squad(path, [replace(each, title=titles[n % len(titles)]) for n, each in enumerate(questions)])
    (found,) = compare_folder(out, str(path), "full").differences
    # By seed: what `lora` has right and `full` has not.
    gains = np.array(
        [[100.0 * (each != "q2" and not (seed == 2 and each in ("q0", "q1"))) for each in golds] for seed in (1, 2)]
    )
    units = np.arange(8) % 4 if len(titles) > 1 else np.arange(8)
    assert found.resampled == ("article" if len(titles) > 1 else "question", "seed")
    rng = np.random.default_rng(7)
    drawn = rng.multinomial(max(units) + 1, np.full(max(units) + 1, 1 / (max(units) + 1)), size=100_000)[:, units]
    shares = rng.multinomial(2, [0.5, 0.5], size=100_000) / 2
    expected = np.einsum("rs,sq,rq->r", shares, gains, drawn) / drawn.sum(axis=1)
    # Quantiles of 10,000 resamples of few values lie within a step of those of others: one question in one seed.
    assert (found.low, found.high) == pytest.approx(np.percentile(expected, (2.5, 97.5)), abs=100 / 16 + 1e-9)
    assert found.difference == pytest.approx(gains.mean())


def test_one_seed_alone_is_not_resampled(out, squad_file):
    (out / "full" / "seeds" / "2" / "predictions" / "1" / "encoder" / "predictions.json").unlink()
    (found,) = compare_folder(out, str(squad_file()), "full").differences
    assert found.resampled == ("question",)


LABELS = ["entailment", "not_entailment"]


@pytest.fixture
def rte(tmp_path):
    """A run folder of pairs where `full` says the same of all rows, and `lora` is right in all but one a seed."""
    gold = tmp_path / "dev.tsv"
    rows = [f"{n}\tone {n}\tother {n}\t{LABELS[n % 2]}" for n in range(10)]
    gold.write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n")
    for seed in (1, 2):
        right = {str(n): LABELS[n % 2] for n in range(10)}
        for variant, said in (("full", dict.fromkeys(right, LABELS[0])), ("lora-lr0.1", {**right, "0": LABELS[1]})):
            make_row(
                tmp_path / "rte", variant, seed, said, task="rte", scores={"accuracy": 0.0, "held_out_accuracy": 1.0}
            )
    return tmp_path / "rte", gold


def test_rows_are_compared_by_their_main_score(rte):
    (found,) = compare_folder(rte[0], str(rte[1]), "full").differences
    assert (found.metric, found.example, found.resampled) == ("accuracy", "row", ("row", "seed"))
    assert found.difference == pytest.approx(90.0 - 50.0)
    assert found.by_seed == pytest.approx((40.0, 40.0))
    assert -10 < found.low < 40 < found.high < 90
    assert found.best is None


def test_the_command_compares_rows_too(rte):
    shown = CliRunner().invoke(app, ["compare", str(rte[0]), "--variants", "--gold", str(rte[1])])
    assert shown.exit_code == 0, shown.output
    assert "accuracy" in shown.output
    assert "+40.00" in shown.output


def test_tags_are_compared_over_whole_documents(tmp_path):
    sentences = [["B-PER", "O"], ["O", "B-LOC"], ["B-ORG", "I-ORG"]]
    gold = tmp_path / "dev.conll"
    lines = ["".join(f"word {tag}\n" for tag in tags) + "\n" for tags in sentences]
    gold.write_text("-DOCSTART- O\n\n" + lines[0] + lines[1] + "-DOCSTART- O\n\n" + lines[2])
    nothing = {str(n): ["O"] * 2 for n in range(3)}
    for variant, said in (("full", nothing), ("lora", {**nothing, "0": sentences[0]})):
        make_row(tmp_path / "ner", variant, 1, said, task="ner")
    (found,) = compare_folder(tmp_path / "ner", str(gold), "full").differences
    assert found.resampled == ("document",)
    # One of three entities is found: precision 1, recall 1/3. Of the documents it may be in none, one or both.
    assert entities(sentences[0])
    assert found.difference == pytest.approx(50.0)
    assert (found.low, found.high) == pytest.approx((0.0, 200 * 2 / 6))


def test_a_row_of_two_tasks_is_refused(out):
    make_row(out, "full", 1, {}, task="mrpc", experiment="other", fraction=0.5)
    with pytest.raises(FolderError, match=r"'full' is a row of mrpc and squad2; give the folder of one of them"):
        compare_folder(out, "unread.json", "full")


def test_variants_of_another_task_do_not_stand_in_the_way_of_those_with_answers(out, squad_file):
    make_row(out, "frozen", 1, {"0": "equivalent"}, task="mrpc")
    assert [each.model for each in compare_folder(out, str(squad_file()), "full").differences] == ["lora"]


def test_the_first_predictions_that_are_missing_are_named(out):
    for path in out.rglob("predictions.json"):
        path.unlink()
    missing = predictions_of(out, "full", 1) / "predictions.json"
    with pytest.raises(FolderError, match=rf"records but no predictions beside them, expected {missing}; give the"):
        compare_folder(out, "unread.json", "full")


def test_a_row_without_predictions_is_told_from_one_that_is_unknown(out):
    make_row(out, "top_0", 1, {})
    for seed in (1, 2):
        (predictions_of(out, "lora-lr0.1", seed) / "predictions.json").unlink()
    with pytest.raises(
        FolderError, match=r"no predictions of 'lora', expected .*lora-lr0.1.*json; rows that have them"
    ):
        compare_folder(out, "unread.json", "lora")


def test_one_method_alone_is_nothing_to_compare(tmp_path):
    make_row(tmp_path, "full", 1, {})
    with pytest.raises(
        FolderError, match=r"only one row with predictions, full, expected two or more; run more variants"
    ):
        compare_folder(tmp_path, "unread.json", "all")


@pytest.mark.parametrize(
    ("against", "told"),
    [
        ("all", r"no row 'all'; its rows are full, lora; choose one with `against`"),
        ("lora-lr0.1", r"no row 'lora-lr0.1'; its rows are .*; that variant's row is called lora: `against=lora`$"),
    ],
)
def test_a_row_that_is_not_there_is_named_beside_those_that_are(out, against, told):
    with pytest.raises(FolderError, match=told):
        compare_folder(out, "unread.json", against)


def test_rows_without_a_seed_in_common_are_told(tmp_path, golds, squad_file):
    make_row(tmp_path, "full", 1, golds)
    make_row(tmp_path, "lora", 2, golds)
    with pytest.raises(FolderError, match=r"no row shares an experiment, a fraction and a seed with 'full'; run"):
        compare_folder(tmp_path, str(squad_file()), "full")


@pytest.mark.parametrize("lacking", ["gold", "prediction"])
def test_predictions_for_another_file_name_the_one_that_was_scored(out, golds, questions, squad_file, lacking):
    if lacking == "prediction":
        write_json(predictions_of(out, "full", 1) / "predictions.json", dict(list(golds.items())[1:]))
    gold = squad_file("other.json", questions[1:] if lacking == "gold" else questions)
    with pytest.raises(DataError, match=r"answers are not to the . questions of .*other.json.*`gold=the_dev.json`"):
        compare_folder(out, str(gold), "full")


def test_best_f1_is_compared_at_thresholds_of_every_row_seed_and_resample(out, golds, squad_file):
    add_sweeps(out, golds)
    (found,) = compare_folder(out, str(squad_file()), "full").differences
    names = list(golds)
    drawn = np.concatenate(list(draw_counts(np.ones(8, dtype=np.int64), 10_000, seed=1)))
    counts = [dict(zip(names, each, strict=True)) for each in np.concatenate([np.ones((1, 8)), drawn])]

    def best(count, last):
        """Answer what stands before the unanswerable question, or all."""
        return 100 * max(8 - sum(count[name] for name in last), 8 - count["q2"]) / 8

    bests = {
        variant: np.array([[best(count, LAST[variant, seed]) for count in counts] for seed in (1, 2)])
        for variant in ("full", "lora-lr0.1")
    }
    by_seed = bests["lora-lr0.1"] - bests["full"]
    drawn_seeds = np.einsum("rs,sr->r", weights_of_seeds(10_000), by_seed[:, 1:])
    apart = np.concatenate([[by_seed[:, 0].mean()], drawn_seeds])
    assert found.best.difference == apart[0]
    assert len(found.best.by_seed) == 2
    assert np.mean(found.best.by_seed) == pytest.approx(apart[0])
    assert (found.best.low, found.best.high) == pytest.approx(np.percentile(apart[1:], (2.5, 97.5)))
    assert found.best.p_value == pytest.approx(2 * ((apart[1:] <= 0).sum() + 1) / 10_001)
    assert read_differences(out) == [found]


@pytest.mark.parametrize("lacking", ["best_spans.json", "null_odds.json"])
def test_a_seed_without_best_spans_or_odds_leaves_the_best_threshold_out(out, golds, squad_file, lacking):
    add_sweeps(out, golds)
    (predictions_of(out, "lora-lr0.1", 2) / lacking).unlink()
    (found,) = compare_folder(out, str(squad_file()), "full").differences
    assert found.best is None
    assert found.seeds == (1, 2)


def test_comparisons_of_before_there_were_best_thresholds_are_read(out, squad_file):
    (found,) = compare_folder(out, str(squad_file()), "full").differences
    older = [{key: value for key, value in each.items() if key != "best"} for each in read_json(out / DIFFERENCES_FILE)]
    write_json(out / DIFFERENCES_FILE, older)
    assert read_differences(out) == [found]


def test_the_table_has_best_thresholds_where_a_comparison_has_them(out, golds, squad_file):
    (plain,) = compare_folder(out, str(squad_file()), "full").differences
    add_sweeps(out, golds)
    (found,) = compare_folder(out, str(squad_file()), "full").differences
    columns = ("model", "F1", "95% interval")
    assert Differences([plain], out).as_table().header == columns
    both = Differences([plain, found], out).as_table()
    assert both.header == (*columns, *BEST_COLUMNS)
    heading, without, with_best = both.texts
    assert heading == ("study, fraction 1, seeds 1, 2, less full",)
    assert without == (*with_best[:3], "", "")
    assert with_best[3] == f"{found.best.difference:+.2f}"


def test_the_command_prints_intervals(out, squad_file):
    shown = CliRunner().invoke(
        app, ["compare", str(out), "--variants", "--gold", str(squad_file()), "--against", "lora"]
    )
    assert shown.exit_code == 0, shown.output
    assert "study, fraction 1, seeds 1, 2, less lora" in shown.output
    assert "full" in shown.output.split("less lora")[1]
    assert "-75.00" in shown.output


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--variants", "--metric", "f1"], "beside it give --gold and --against"),
        (["other", "--variants"], "beside it give --gold and --against"),
        ([], "give two models to compare, A and B, or one run folder with --variants"),
    ],
)
def test_two_models_or_the_variants_of_one_run_are_compared(out, given, told):
    shown = CliRunner().invoke(app, ["compare", str(out), *given])
    assert shown.exit_code == 2
    assert told in shown.stderr


def test_without_a_gold_file_variants_are_compared_on_what_their_run_answered(out, squad_file):
    path = str(squad_file())
    data = {"train": path, "dev": path}
    for record, run in located_records(out):
        write_record(run / "records", record.model_copy(update={"config": {**record.config, "data": data}}))
    asked = [CliRunner().invoke(app, ["compare", str(out), "--variants", *more]) for more in ([], ["--gold", path])]
    assert [each.exit_code for each in asked] == [0, 0], asked[0].output
    assert asked[0].stdout == asked[1].stdout
