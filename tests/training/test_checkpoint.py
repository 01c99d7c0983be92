import pytest
import torch
from torch import nn

from bertvision.errors import FolderError
from bertvision.training.checkpoint import BestWeights, best_of, fingerprint, load_weights, save_weights


def test_weights_of_another_model_are_refused(tmp_path):
    save_weights(tmp_path / "w.safetensors", nn.Linear(2, 3))
    with pytest.raises(FolderError, match="weights of another model") as caught:
        load_weights(tmp_path / "w.safetensors", nn.Linear(2, 4))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"not weights"])
def test_missing_or_damaged_weights_are_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(FolderError, match="missing or damaged"):
        load_weights(tmp_path / "w.safetensors", nn.Linear(2, 3))


def test_a_fingerprint_tells_weights_apart_and_not_where_they_lie():
    torch.manual_seed(0)
    one, same, other = nn.Linear(2, 3), nn.Linear(2, 3), nn.Linear(2, 3)
    same.load_state_dict(one.state_dict())
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)


def test_others_may_read_weights_as_they_may_any_new_file(tmp_path):
    (tmp_path / "usual").touch()
    save_weights(tmp_path / "w.safetensors", nn.Linear(2, 3))
    assert (tmp_path / "w.safetensors").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize(
    ("scores", "best"), [([1.0, 3.0, 3.0, 2.0], 1), ([None, 1.0, None], 1), ([None, None], 1), ([5.0], 0)]
)
def test_the_first_of_the_best_scores_counts_and_the_last_place_without_any(scores, best):
    assert best_of(scores) == best


def test_the_best_weights_are_kept_and_put_in_place_for_a_while():
    model = nn.Linear(1, 1, bias=False)
    best = BestWeights(model, is_asked=True)
    for step, score in enumerate([50.0, 70.0, 60.0, 70.0], start=1):
        nn.init.constant_(model.weight, float(step))
        best.offer(step, score)
    assert (best.step, best.is_over(2), best.is_over(3), best.is_over(None)) == (2, True, False, False)
    with best.in_place():
        assert model.weight.item() == 2
    assert model.weight.item() == 4
