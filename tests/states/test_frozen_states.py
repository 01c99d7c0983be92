from functools import partial

import numpy as np
import pytest
import torch

from bertvision.encoder.encode import encode, read_output
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import start_tuning
from bertvision.errors import TrainingError
from bertvision.states import keep
from bertvision.states.cached import KeptBottom
from bertvision.states.keep import Wanted, fingerprint_of, keep_in_ram
from bertvision.states.live import bottom_states_of, read_quietly
from bertvision.training.objective import SPANS
from bertvision.windows.batches import collate

FIRST = 2  # of two blocks the upper one learns
pytestmark = pytest.mark.usefixtures("small_shards")


@pytest.fixture
def tuned(encoder):
    start_tuning(encoder.model, TuneConfig(train="top:1", norms=False), seed=1)
    encoder.model.train()  # dropout on
    return encoder


def batch_of(encoder, windows, rows):
    return collate(windows, np.array(rows), encoder.tokenizer.pad_token_id)


def gradients(encoder, read, batch):
    encoder.model.train().zero_grad()
    torch.manual_seed(5)
    seen = read(encoder, batch)
    states = seen.states.squeeze(1)[seen.windows.mask]  # padding plays no part in any loss
    states.pow(2).sum().backward()
    return [states.detach(), *(each.grad.clone() for each in encoder.model.parameters() if each.grad is not None)]


@pytest.mark.parametrize("kind", ["span", "class", "tags", "choice"])
@pytest.mark.parametrize("rows", [[0, 2, 3], [1], [2, 1, 0]])
def test_output_layers_of_all_kinds_see_and_teach_the_same_from_a_kept_bottom(kind, rows, tuned, make_task, cpu):
    windows, objective = make_task(kind)
    read = partial(read_output, objective=objective)
    kept = KeptBottom(keep_in_ram(Wanted(tuned, windows, cpu, "float32", entering=FIRST)), read, FIRST, cpu)
    batch = batch_of(tuned, windows, rows)
    live = gradients(tuned, read_quietly(read, FIRST), batch)
    again = gradients(tuned, kept, batch)
    assert len(live) > 10
    for one, other in zip(live, again, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


def test_a_kept_bottom_never_runs(tuned, windows, cpu):
    read = partial(read_output, objective=SPANS)
    kept = KeptBottom(keep_in_ram(Wanted(tuned, windows, cpu, "float32", entering=FIRST)), read, FIRST, cpu)
    with torch.no_grad():
        for param in (*tuned.model.embeddings.parameters(), *tuned.model.encoder.layer[0].parameters()):
            param.fill_(torch.nan)
        states = kept(tuned, batch_of(tuned, windows, [3, 0, 7])).states
    assert states.isfinite().all()


def test_the_state_that_enters_a_block_is_kept_without_dropout(tuned, windows, cpu):
    rows = np.arange(4)
    sample = bottom_states_of(tuned, windows, rows, cpu, FIRST)
    tuned.model.eval()
    states = encode(tuned, batch_of(tuned, windows, rows))
    torch.testing.assert_close(sample.states[:, 0], states[:, 1])
    assert not sample.states.requires_grad


def test_one_state_of_every_token_is_kept_in_full(tuned, windows, cpu):
    wanted = Wanted(tuned, windows, cpu, "float32", entering=FIRST)
    assert wanted.layout().num_bytes == sum(len(window) for window in windows) * 32 * 4


def test_where_memory_does_not_hold_it_the_setting_is_named(tuned, windows, cpu, monkeypatch):
    monkeypatch.setattr(keep, "free_ram", lambda: 5)
    with pytest.raises(TrainingError, match=r"set finetune\.bottom to disk or live$"):
        keep_in_ram(Wanted(tuned, windows, cpu, "float32", entering=FIRST))


def test_states_of_another_block_have_another_fingerprint(tuned, windows, cpu):
    prints = [fingerprint_of(Wanted(tuned, windows, cpu, entering=first), "0" * 64, {}) for first in (None, 2, 3)]
    assert "entering" not in prints[0]
    assert [each["entering"] for each in prints[1:]] == [2, 3]
