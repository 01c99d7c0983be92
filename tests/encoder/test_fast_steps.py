import numpy as np
import pytest
import torch
from torch import nn

from bertvision.encoder.finetune import finetune_encoder
from bertvision.encoder.finetune_plan import FinetuneConfig
from bertvision.encoder.load import load_encoder
from bertvision.encoder.packed import MIN_STEPS_TO_COMPILE, choose_step, compiled
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import start_tuning
from bertvision.errors import SettingsError
from bertvision.heads.config import HeadConfig
from bertvision.heads.training import build_heads
from bertvision.progress import SILENT
from bertvision.settings import validate
from bertvision.training.device import Compute, StepGraphs, choose_compute
from bertvision.windows.window import WindowConfig, cut_windows

GPU = Compute(torch.device("cuda"), torch.bfloat16)


def chosen(encoder, compute, asked="auto", *, reads_last=True):
    return choose_step(asked, encoder, compute, reads_last=reads_last)


def test_a_gpu_packs_what_it_can_and_replays_what_it_may(encoder, cpu):
    assert chosen(encoder, GPU) == "packed"
    assert chosen(encoder, GPU, reads_last=False) == "bucketed"
    assert chosen(encoder, GPU._replace(dtype=torch.float32)) == "bucketed"
    assert chosen(encoder, cpu) == "eager"


def test_an_encoder_of_another_kind_is_padded(encoder):
    encoder.model.config.model_type = "mpnet"
    assert chosen(encoder, GPU) == "bucketed"
    with pytest.raises(SettingsError, match=r"packed is not possible .* use auto, bucketed or eager"):
        chosen(encoder, GPU, "packed")


def test_what_is_asked_for_is_done(encoder, cpu):
    assert chosen(encoder, cpu, "packed") == "packed"
    assert chosen(encoder, GPU, "eager") == "eager"


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # torch's own compiler calls it
def test_blocks_are_compiled_for_long_trainings_on_a_gpu_alone_and_never_for_good(encoder, cpu):
    def is_compiled():
        return [block._compiled_call_impl is not None for block in encoder.model.encoder.layer]

    for compute, kind, num_steps, expected in [
        (GPU, "packed", MIN_STEPS_TO_COMPILE, True),
        (GPU, "bucketed", MIN_STEPS_TO_COMPILE, True),
        (GPU, "packed", MIN_STEPS_TO_COMPILE - 1, False),
        (GPU, "eager", MIN_STEPS_TO_COMPILE, False),
        (cpu, "packed", MIN_STEPS_TO_COMPILE, False),
    ]:
        with compiled(encoder, kind, num_steps, compute, SILENT):
            assert is_compiled() == [expected] * len(is_compiled())
        assert not any(is_compiled())


@pytest.fixture
def windows(encoder, questions):
    return cut_windows(questions, encoder.tokenizer, WindowConfig())


def tune(folder, windows, compute, tmp_path=None, stop_at=None, setting=None, **more):
    """Tune a fresh copy of the encoder for ten epochs; gives all weights."""
    config = {"fractions": [5, 10], "batch": {"windows": 4}, "lr": 1e-3, "save_every": 1e-9, **more}
    encoder = load_encoder(str(folder))
    start_tuning(encoder.model, setting, seed=1)
    output = build_heads([HeadConfig.model_validate("last_linear")], encoder.shape, seed=1)["last_linear"]
    tuned = nn.ModuleList([encoder.model, output])
    checkpoints = finetune_encoder(
        encoder, output, windows, validate(FinetuneConfig, config, "test"), seed=1, compute=compute, saved=tmp_path
    )
    for checkpoint in checkpoints:
        if checkpoint.fraction == stop_at:
            checkpoints.close()
            break
    return {name: tensor.detach().cpu().clone() for name, tensor in tuned.named_parameters()}


def distance(one, other, start):
    """How far apart two trainings ended, as a share of how far they went."""
    apart = sum((one[name] - other[name]).square().sum() for name in one)
    went = sum((one[name] - start[name]).square().sum() for name in one)
    return float((apart / went).sqrt())


@pytest.mark.gpu
@pytest.mark.parametrize("step", ["packed", "bucketed"])
def test_replayed_steps_end_where_eager_ones_do(step, windows, encoder_folder):
    compute = choose_compute("cuda")
    start = tune(encoder_folder, windows, compute, fractions=[0, 1e-9], lr=1e-30, dropout=0)
    eager = tune(encoder_folder, windows, compute, step="eager", dropout=0)
    replayed = tune(encoder_folder, windows, compute, step=step, dropout=0)
    assert distance(eager, replayed, start) < 0.1  # bf16 rounds to 3 digits, and Adam takes full steps on small ones


@pytest.mark.gpu
@pytest.mark.parametrize("step", ["packed", "bucketed"])
def test_single_weights_stay_frozen_in_replayed_steps(step, windows, encoder_folder):
    half, name = TuneConfig(frozen_fraction=0.5), "0.encoder.layer.0.output.dense.weight"
    before = load_encoder(str(encoder_folder)).model.state_dict()[name.removeprefix("0.")]
    moved = [
        (tune(encoder_folder, windows, choose_compute("cuda"), setting=half, step=each, dropout=0)[name] != before)
        for each in ("eager", step)
    ]
    assert 0.4 < moved[0].float().mean() < 0.6
    assert (moved[0] == moved[1]).float().mean() > 0.999  # hardly any number comes back to where it began


@pytest.mark.gpu
def test_dropout_acts_in_replayed_steps(windows, encoder_folder):
    compute, name = choose_compute("cuda"), "0.encoder.layer.0.output.dense.weight"
    plain, dropped = (tune(encoder_folder, windows, compute, step="packed", dropout=share)[name] for share in (0, 0.4))
    assert not torch.allclose(plain, dropped, rtol=1e-2)


@pytest.mark.gpu
def test_a_training_that_was_cut_short_goes_on_to_the_same_weights(windows, encoder_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as torch asks for it below
    compute = choose_compute("cuda")
    torch.use_deterministic_algorithms(True)
    try:
        tune(encoder_folder, windows, compute, tmp_path / "saved", stop_at=5, step="packed", dropout=0.2)
        resumed = tune(encoder_folder, windows, compute, tmp_path / "saved", step="packed", dropout=0.2)
        whole = tune(encoder_folder, windows, compute, step="packed", dropout=0.2)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


class Numbers:
    shape = "one"

    def __init__(self, *values):
        self.values = torch.tensor(values, device="cuda")

    def tensors(self):
        return [self.values]

    def clone(self):
        return Numbers(*self.values.tolist())


@pytest.mark.gpu
def test_a_step_that_makes_the_host_wait_is_taken_as_it_is():
    def waits(batches):
        total = batches[0].values.sum() + torch.rand((), device="cuda") * 0
        return total * (2 if total.item() > 0 else 1)

    graphs = StepGraphs(torch.device("cuda"))
    found = [float(graphs.run(waits, [Numbers(1.0, 2.0, float(step))])) for step in range(8)]
    assert found == [6.0 + 2 * step for step in range(8)]
    assert graphs.problem is not None
    assert torch.rand(3, device="cuda").shape == (3,)  # the generator is as it was


@pytest.mark.gpu
def test_a_step_is_replayed_on_what_it_is_given():
    graphs, total = StepGraphs(torch.device("cuda")), torch.zeros((), device="cuda")

    def add(batches):
        total.add_(batches[0].values.sum())
        return total * 1

    found = [float(graphs.run(add, [Numbers(float(step), 1.0)])) for step in range(8)]
    assert found == list(np.cumsum([step + 1.0 for step in range(8)]))
    assert graphs.problem is None
