"""Which of a run folder's results are models, and which is the best of them."""

import pytest

from bertvision.model_config import best_model, better_than_models
from bertvision.records import write_record


@pytest.fixture
def folder(make_record, tmp_path):
    """A run folder with one model."""
    (tmp_path / "heads" / "given" / "mix4").mkdir(parents=True)
    (tmp_path / "heads" / "given" / "mix4" / "model.json").touch()
    write_record(tmp_path / "records", record_of(make_record, "mix4", "head", 60.0))
    return tmp_path


def record_of(make_record, row, kind, f1):
    return make_record(model=row, kind=kind, fraction=None, scores={"f1": f1})


@pytest.mark.parametrize(
    ("row", "kind", "f1", "is_better"),
    [
        ("encoder", "encoder", 70.0, True),
        ("encoder+mix4", "ensemble", 70.0, True),
        ("encoder", "encoder", 60.0, False),
        ("majority", "baseline", 70.0, False),
    ],
)
def test_what_beats_every_model_of_a_run_is_named_unless_it_is_a_baseline(
    folder, make_record, row, kind, f1, is_better
):
    other = record_of(make_record, row, kind, f1)
    found = better_than_models(folder, [record_of(make_record, "mix4", "head", 60.0), other])
    assert found == (other if is_better else None)
    assert best_model(folder) == folder / "heads" / "given" / "mix4"
