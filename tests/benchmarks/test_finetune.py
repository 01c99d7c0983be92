"""Benchmarks of fine-tuning run on small work here; what they measure is not asserted."""

import os

import pytest
import torch

from benchmarks.finetune import (
    FinetuneWork,
    Run,
    Watch,
    compiling,
    cut_parts,
    last_quarter,
    measure,
    new_output,
    training_flops,
)
from benchmarks.measuring import (
    Clock,
    Timing,
    cudnn_attention,
    subject,
    windows_like_squad,
)
from benchmarks.run import run_bench
from benchmarks.trainer import Flags, _left_as_it_was, question_model, train_with_trainer
from bertvision.encoder import packed
from bertvision.encoder.encode import encode
from bertvision.errors import SettingsError, TrainingError
from bertvision.progress import SILENT
from bertvision.training.accounting import Meter, peak_bytes
from bertvision.windows.batches import collate

CPU = torch.device("cpu")


def test_our_steps_and_trainer_are_measured_on_the_same_windows(encoder_folder):
    sides = "eager,trainer_grouped,run_qa"
    settings = [f"encoder={encoder_folder}", "windows=48", "tokens=1500", "rounds=2", f"sides={sides}"]
    record = run_bench("finetune", settings)
    assert [side.name for side in record.sides] == sides.split(",")
    assert all(len(side.seconds) == 2 for side in record.sides)
    losses = [record.figures[f"{side.name}: loss of the last quarter"] for side in record.sides]
    assert losses == pytest.approx([10.4] * 3, rel=0.25)  # two choices among 170 tokens each: 2 x ln(170)
    assert record.figures["our fastest / Trainer's fastest as it comes"] > 0
    assert record.settings["windows"] == 48


def test_a_side_that_fails_is_left_out_and_said_so(encoder, cpu):
    class Work(FinetuneWork):
        def run(self, name, windows, seed):
            if name == "packed":
                raise RuntimeError("no such kernel")
            return Run(Timing(2.0, len(windows), 0.0, 0, None), 5.0)

    parts = cut_parts(windows_like_squad(90, 50), 40, 2)
    runs, left_out = measure(Work(encoder, 1024, 1e-4, 0, cpu), ["packed", "eager"], parts, SILENT)
    assert ({name: len(each) for name, each in runs.items()}, left_out) == ({"eager": 2}, {"packed": "no such kernel"})
    with pytest.raises(SettingsError, match="no such kernel"):
        measure(Work(encoder, 1024, 1e-4, 0, cpu), ["packed"], parts, SILENT)


def test_a_training_that_diverged_has_no_speed():
    with pytest.raises(TrainingError, match="diverged"):
        last_quarter([3.0, float("nan")])


@pytest.mark.parametrize("sides", ["eager,tomorrow", "[eager, tomorrow]"])
def test_unknown_sides_are_refused(sides):
    with pytest.raises(SettingsError, match="no side 'tomorrow'"):
        run_bench("finetune", [f"sides={sides}"])


def test_rounds_have_windows_of_their_own():
    windows = windows_like_squad(100, 50)
    warm_up, *rounds = cut_parts(windows, 30, 2)
    assert [len(warm_up), *map(len, rounds)] == [8, 30, 30]  # a quarter, rounded up to even
    seen = [id(window) for part in (warm_up, *rounds) for window in part]
    assert len(seen) == len(set(seen))


def test_a_clock_knows_the_peak_of_a_training_whose_own_meter_forgets_it():
    clock = Clock(CPU, skipped=1)
    start = peak_bytes(CPU)
    held = torch.ones(64, 2**20)
    clock.step(1)
    del held
    Meter(CPU).go()
    assert clock.stop().peak_bytes > start + 200 * 2**20


def test_the_first_steps_are_not_timed():
    clock = Clock(CPU, skipped=2)
    for windows in (100, 100, 7, 8):
        clock.step(windows)
    assert clock.stop().windows == 15
    short = Clock(CPU, skipped=2)
    short.step(5)
    assert short.stop().windows == 5


def test_losses_are_asked_for_at_the_end():
    asked = []
    watch = Watch(Clock(CPU, skipped=0))
    with watch.bar("fine-tune", 8) as bar:
        bar.advance(0)  # what an earlier call did
        for loss in range(8):
            bar.advance(1, lambda loss=loss: asked.append(loss) or f"loss {loss}.50")
        assert not asked
    assert watch.losses() == [number + 0.5 for number in range(8)]
    assert last_quarter(watch.losses()) == 7.0  # of 6.5 and 7.5


def test_operations_are_those_of_the_products(encoder):
    (window,) = windows_like_squad(1, 50)
    layer = 4 * (32 * 32 + 32) + 2 * (32 * 64) + 64 + 32 + 4 * 32  # attention, both linear layers, two norms
    length = len(window)
    assert training_flops(encoder, [window]) == 6 * 2 * layer * length + 12 * 2 * 32 * length**2


def test_trainer_starts_from_our_weights(encoder, cpu):
    windows, output = windows_like_squad(12, 50), new_output(encoder, 1)
    model = question_model(encoder, output)
    batch = collate(windows, torch.arange(4).numpy(), 0)
    ours = output(encode(encoder, batch), batch.mask, batch.segments)
    theirs = model.eval()(input_ids=batch.ids, attention_mask=batch.mask.long(), token_type_ids=batch.segments)
    # float32: the same products in the same order
    torch.testing.assert_close(ours[..., 0][batch.mask], theirs.start_logits[batch.mask], rtol=1e-4, atol=1e-4)
    losses = train_with_trainer(
        model, encoder, windows, Flags(windows=4), lr=1e-2, seed=1, step_windows=4, workers=0, compute=cpu
    )
    assert len(losses) == 3


def test_the_attention_of_cudnn_is_left_as_it_was():
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with cudnn_attention(not before):
        assert torch.backends.cuda.cudnn_sdp_enabled() is not before
    assert torch.backends.cuda.cudnn_sdp_enabled() is before


def test_what_trainer_sets_for_the_whole_process_is_undone(monkeypatch):
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "inductor")
    before = torch.backends.fp32_precision
    with _left_as_it_was():
        torch.backends.fp32_precision = "tf32"
    assert torch.backends.fp32_precision == before
    assert "ACCELERATE_DYNAMO_BACKEND" not in os.environ


def test_blocks_are_compiled_at_once_or_never():
    usual = packed.MIN_STEPS_TO_COMPILE
    with compiling(at_once=True):
        assert packed.MIN_STEPS_TO_COMPILE == 0
    with compiling(at_once=False):
        assert packed.MIN_STEPS_TO_COMPILE > 10**9
    assert usual == packed.MIN_STEPS_TO_COMPILE


def test_random_weights_read_the_tokens_of_another_encoder(saved_encoder, tokenizer):
    assert subject("mpnet-base", str(saved_encoder)).tokenizer.get_vocab() == tokenizer.get_vocab()
