import pytest

from bertvision.records import DataFile, Provenance, SearchRecord, SearchTrial, read_search_record, write_search_record
from bertvision.report.drawing import house_look
from bertvision.report.learning_figures import search_figure, trials_table, write_search_figure

PLACE = Provenance(commit=None, dirty=None, device="cpu", precision="float32", python="3.11", versions={})
DATA = DataFile(name="train.tsv", sha256=None, examples=8, dropped=0, windows=8)


def make_trial(number, score, state="complete", lr=1e-3, note=""):
    scores = [] if score is None else [score]
    return SearchTrial(
        number=number,
        state=state,
        score=score,
        settings={"head": "mix4", "lr": lr, "layers": "all"},
        scores=scores,
        seconds=1.0,
        group=0,
        note=note,
    )


@pytest.fixture
def record():
    return SearchRecord(
        experiment="rte",
        task="rte",
        target="heads",
        metric="accuracy",
        sampler="tpe",
        space={"head": ["mix4"], "lr": {"low": 1e-4, "high": 1e-2}, "layers": ["all", "last:4"]},
        trials=[
            make_trial(0, 60.0),
            make_trial(1, 71.25, lr=0.003),
            make_trial(2, 80.0, "pruned", note="pruned after epoch 1"),
            make_trial(3, None, "pruned", note="diverged"),
            make_trial(4, 65.0),
        ],
        best=1,
        dev_scores={"accuracy": 68.0},
        dev_reads=1,
        importances={"lr": 0.75, "layers": 0.25},
        data={"train": DATA},
        config={},
        provenance=PLACE,
    )


def test_the_best_complete_trials_stand_first_with_what_sets_them_apart(record):
    table = trials_table(record)
    assert table.header == ("trial", "lr", "layers", "held-out accuracy", "note")
    assert table.texts == (
        ("1", "3e-3", "all", "71.25", ""),
        ("4", "1e-3", "all", "65.00", ""),
        ("0", "1e-3", "all", "60.00", ""),
        ("2", "1e-3", "all", "80.00", "pruned after epoch 1"),
    )


def test_the_figure_has_a_bar_for_each_parameter_and_the_best_score_so_far(record):
    with house_look():
        importances, trials = search_figure(record).axes
    assert [label.get_text() for label in importances.get_yticklabels()] == ["layers", "lr"]
    assert [bar.get_width() for bar in importances.patches] == [25.0, 75.0]
    complete, pruned, best = trials.lines
    assert complete.get_xydata().tolist() == [[0.0, 60.0], [1.0, 71.25], [4.0, 65.0]]
    assert pruned.get_xydata().tolist() == [[2.0, 80.0]]
    assert best.get_ydata().tolist() == [60.0, 71.25, 71.25]


def test_a_search_without_importances_has_its_trials_alone(record, tmp_path):
    few = record.model_copy(update={"importances": {}})
    with house_look():
        assert len(search_figure(few).axes) == 1
    assert write_search_figure(tmp_path, few).read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "importance.svg").read_text().startswith("<svg")


def test_a_record_comes_back_from_disk(record, tmp_path):
    write_search_record(tmp_path, record)
    assert read_search_record(tmp_path) == record
    assert record.best_trial.score == 71.25
