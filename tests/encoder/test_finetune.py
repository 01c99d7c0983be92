import numpy as np
import pytest
import torch
from torch import nn

from bertvision.encoder.encode import freeze, layers_of_output, read_states
from bertvision.encoder.finetune import finetune_encoder, set_dropout
from bertvision.encoder.finetune_plan import FinetuneConfig, plan_steps, steps_of_fractions
from bertvision.encoder.load import load_encoder
from bertvision.encoder.tuning.blocks import is_checkpointing
from bertvision.errors import SettingsError, TrainingError
from bertvision.heads.config import HeadConfig, HeadsConfig
from bertvision.heads.logits import row_logits, token_logits
from bertvision.heads.training import build_heads, train_heads_together
from bertvision.settings import validate
from bertvision.states.live import LiveStates
from bertvision.tasks import KINDS
from bertvision.windows.window import WindowConfig, cut_windows


def make_config(**more):
    return validate(FinetuneConfig, {"fractions": [0.5, 1], "batch": {"windows": 2}, "lr": 1e-3, **more}, "test")


@pytest.fixture
def windows(encoder, questions):
    return cut_windows(questions, encoder.tokenizer, WindowConfig())


def tune(folder, windows, config, cpu, **more):
    """Tune a fresh copy of the encoder; gives its checkpoints with the weights as they were then."""
    encoder = load_encoder(str(folder))
    output = build_heads([HeadConfig.model_validate("last_linear")], encoder.shape, seed=1)["last_linear"]
    tuned = nn.ModuleList([encoder.model, output])
    kept = []
    for checkpoint in finetune_encoder(encoder, output, windows, config, seed=1, compute=cpu, **more):
        kept.append((checkpoint, {name: tensor.clone() for name, tensor in tuned.state_dict().items()}))
    return kept


def same(one, other):
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_checkpoint_comes_when_its_share_of_windows_was_seen(windows, encoder_folder, cpu):
    kept = tune(encoder_folder, windows, make_config(fractions=[0, 0.25, 1, 1.5]), cpu)
    assert [checkpoint.fraction for checkpoint, _ in kept] == [0, 0.25, 1, 1.5]
    assert [checkpoint.seconds for checkpoint, _ in kept] == sorted(checkpoint.seconds for checkpoint, _ in kept)
    assert not same(kept[0][1], kept[1][1])
    assert kept[0][0].seconds == 0.0


def test_fraction_0_is_the_encoder_as_it_was(windows, encoder, encoder_folder, cpu):
    (_, weights), _ = tune(encoder_folder, windows, make_config(fractions=[0, 0.5]), cpu)
    assert all(torch.equal(tensor, weights[f"0.{name}"]) for name, tensor in encoder.model.state_dict().items())


def test_with_a_constant_rate_a_checkpoint_is_an_early_stop(windows, encoder_folder, cpu):
    long = tune(encoder_folder, windows, make_config(fractions=[0.5, 1]), cpu)
    short = tune(encoder_folder, windows, make_config(fractions=[0.5]), cpu)
    assert same(long[0][1], short[0][1])


def test_with_a_linear_schedule_a_checkpoint_depends_on_the_horizon(windows, encoder_folder, cpu):
    linear = {"schedule": "linear"}
    long, short = make_config(fractions=[0.5, 1], optim=linear), make_config(fractions=[0.5], optim=linear)
    assert (long.horizon, short.horizon, make_config().horizon) == (1.0, 0.5, None)
    assert not same(tune(encoder_folder, windows, long, cpu)[0][1], tune(encoder_folder, windows, short, cpu)[0][1])


def test_a_training_that_was_cut_short_goes_on_to_the_same_weights(windows, encoder_folder, cpu, tmp_path):
    config = make_config(fractions=[0.5, 1], save_every=1e-9)  # saves after every step
    encoder = load_encoder(str(encoder_folder))
    output = build_heads([HeadConfig.model_validate("last_linear")], encoder.shape, seed=1)["last_linear"]
    cut_short = finetune_encoder(encoder, output, windows, config, seed=1, compute=cpu, saved=tmp_path / "saved")
    first = next(cut_short)
    cut_short.close()
    resumed = tune(encoder_folder, windows, config, cpu, saved=tmp_path / "saved")
    whole = tune(encoder_folder, windows, config, cpu)
    assert first.fraction == 0.5
    assert same(resumed[-1][1], whole[-1][1])
    assert resumed[-1][0].seconds > 0


@pytest.mark.parametrize("accumulate", [1, 3])
def test_every_window_is_seen_once_in_an_epoch(windows, accumulate):
    steps = plan_steps(windows, make_config(fractions=[2], accumulate=accumulate), seed=1)
    seen = np.concatenate([rows for step in steps for rows in step])
    assert sorted(seen[:8].tolist()) == sorted(seen[8:].tolist()) == list(range(8))
    assert len(steps) == {1: 8, 3: 4}[accumulate]


def test_fractions_are_counted_in_windows():
    steps = [[np.arange(3)], [np.arange(3)], [np.arange(2)]]
    assert steps_of_fractions([0, 0.3, 0.75, 1], steps, 8) == [(0, 0), (0.3, 1), (0.75, 2), (1, 3)]


def test_a_fraction_of_less_than_a_window_is_one_step_and_not_none():
    assert steps_of_fractions([0, 0.01], [[np.arange(3)]], 8) == [(0, 0), (0.01, 1)]


def test_an_encoder_that_diverges_is_an_error_that_says_what_to_try(windows, encoder_folder, cpu):
    encoder = load_encoder(str(encoder_folder))
    output = build_heads([HeadConfig.model_validate("last_linear")], encoder.shape, seed=1)["last_linear"]
    output.readout.linear.weight.data.fill_(float("nan"))
    with pytest.raises(TrainingError, match=r"lower finetune\.lr"):
        list(finetune_encoder(encoder, output, windows, make_config(fractions=[5]), seed=1, compute=cpu))


def test_dropout_can_be_changed_for_the_whole_encoder(encoder):
    set_dropout(encoder.model, 0.0)
    dropouts = [module.p for module in encoder.model.modules() if isinstance(module, nn.Dropout)]
    assert dropouts
    assert set(dropouts) == {0.0}


@pytest.mark.parametrize("fractions", [[1, 0.5], [0.5, 0.5], [-1, 1]])
def test_fractions_ascend(fractions):
    with pytest.raises(SettingsError, match="must ascend"):
        make_config(fractions=fractions)


@pytest.mark.parametrize(("kind", "pooled"), [*((kind, True) for kind in KINDS), ("class", False)])
def test_an_encoder_learns_every_kind_of_task_by_heart(kind, pooled, make_task, encoder, cpu):
    if not pooled:
        encoder.model.pooler = None
    windows, objective = make_task(kind)
    output = build_heads([HeadConfig.model_validate("last_linear")], encoder.shape, 1, objective)["last_linear"]
    config = make_config(fractions=[40], batch={"windows": 9}, lr=3e-3, dropout=0)
    for _ in finetune_encoder(encoder, output, windows, config, seed=1, compute=cpu, objective=objective):
        pass
    output.layers = layers_of_output(encoder, objective)
    heads = {"output": output}
    if objective.per == "row":
        logits = row_logits(freeze(encoder, cpu), heads, windows, cpu, pooling="first")["output"]
    else:
        logits = token_logits(freeze(encoder, cpu), heads, windows, cpu)["output"]
    labels = [window.label for window in windows]
    match kind:
        case "span":
            ends = np.cumsum([len(window) for window in windows])
            found = [each.argmax(axis=0).tolist() for each in np.split(logits, ends[:-1])]
            assert found == [[window.start, window.end] for window in windows]
        case "tags":
            tags = np.concatenate(labels)
            assert logits.argmax(axis=1)[tags >= 0].tolist() == tags[tags >= 0].tolist()
        case "answerable" | "class":
            assert logits.argmax(axis=1).tolist() == labels
        case "labels":
            assert (logits > 0).astype(int).tolist() == [list(label) for label in labels]
        case "number":
            assert np.abs(logits[:, 0] - labels).max() < 0.3
        case "choice":
            assert logits.reshape(-1, 3).argmax(axis=1).tolist() == labels[::3]


# Weights that no loss sees

KEYS = {f"encoder.layer.{block}.attention.self.key.bias" for block in (0, 1)}
LAST_NORM, READOUT = "encoder.layer.1.output.LayerNorm.bias", "readout.linear.bias"


@pytest.mark.parametrize(
    ("kind", "head", "still"),
    [
        ("span", "last_linear", KEYS | {LAST_NORM, READOUT}),
        ("span", "learned_pooling", KEYS | {LAST_NORM, READOUT}),
        ("span", "adapter_64_shared_skip", KEYS | {READOUT}),  # what an adapter makes of a shift is no shift
        ("choice", "last_linear", KEYS | {READOUT}),  # through the pooler
        ("class", "last_linear", KEYS),
        ("tags", "last_linear", KEYS),
    ],
)
def test_weights_whose_true_gradient_is_zero_stay_bit_for_bit_and_all_others_move(
    kind, head, still, make_task, encoder, cpu
):
    windows, objective = make_task(kind)
    output = build_heads([HeadConfig.model_validate(head)], encoder.shape, 1, objective)[head]
    before = {name: weight.clone() for part in (encoder.model, output) for name, weight in part.state_dict().items()}
    read = None if head == "last_linear" else read_states
    config = make_config(fractions=[3], batch={"windows": 9})
    for _ in finetune_encoder(encoder, output, windows, config, seed=1, compute=cpu, objective=objective, read=read):
        pass
    after = {name: weight for part in (encoder.model, output) for name, weight in part.state_dict().items()}
    unused = {name for name in before if name.startswith("pooler.dense") and objective.per == "token"}
    assert {name for name, weight in before.items() if torch.equal(weight, after[name])} == still | unused


def test_rounding_noise_does_not_grow_through_the_encoder_into_heads_that_are_trained_afterwards(
    windows, encoder_folder, cpu
):
    def trained(noise):
        encoder = load_encoder(str(encoder_folder))
        torch.manual_seed(5)
        with torch.no_grad():
            for weight in encoder.model.parameters():
                weight *= 1 + noise * torch.randn_like(weight)
        tuning = make_config(fractions=[8], lr=1e-2, dropout=0)
        output = build_heads([HeadConfig.model_validate("last_linear")], encoder.shape, seed=1)["last_linear"]
        for _ in finetune_encoder(encoder, output, windows, tuning, seed=1, compute=cpu):
            pass
        config = validate(HeadsConfig, {"train": ["adapter_64_shared"], "batch": {"windows": 2}, "epochs": 8}, "test")
        heads = build_heads(config.train, encoder.shape, seed=1)
        states = LiveStates(freeze(encoder, cpu), windows, config.batch, 1, cpu)
        for _ in train_heads_together(heads, states, config, seed=1, compute=cpu):
            pass
        return next(states.epoch(0)).states, heads["adapter_64_shared"].pooler.down.weight.detach()

    # Noise of float32's own size in the start; if Adam moved what no loss sees, it would be 1e-2 and 7e-5 in the end.
    (states, weights), (other_states, other_weights) = trained(noise=1e-7), trained(noise=0)
    assert (states - other_states).abs().max() < 3e-4
    assert (weights - other_weights).abs().max() < 5e-6


@pytest.mark.parametrize("reads", [None, read_states])
def test_gradient_checkpointing_runs_blocks_again_and_changes_nothing_that_is_learned(
    reads, windows, encoder_folder, cpu
):
    found = {}
    for is_asked in (False, True):
        encoder, calls = load_encoder(str(encoder_folder)), []
        encoder.model.encoder.layer[0].attention.register_forward_hook(lambda *given, calls=calls: calls.append(1))
        output = build_heads([HeadConfig.model_validate("last_linear")], encoder.shape, seed=1)["last_linear"]
        config = make_config(gradient_checkpointing=is_asked, dropout=0.1)
        *_, last = finetune_encoder(encoder, output, windows, config, seed=1, compute=cpu, read=reads)
        found[is_asked] = ([point.loss for point in last.points], len(calls))
        assert not is_checkpointing(encoder.model)
    # The same sums in the same order; dropout draws the same again.
    assert found[True][0] == pytest.approx(found[False][0], rel=1e-4)
    assert found[True][1] == 2 * found[False][1]


@pytest.mark.parametrize("step", ["packed", "bucketed"])
def test_gradient_checkpointing_is_refused_where_steps_are_replayed(step):
    with pytest.raises(
        SettingsError, match=f"gradient_checkpointing does not go with step_mode: {step}; use step_mode: auto"
    ):
        make_config(gradient_checkpointing=True, step_mode=step)


def test_gradient_checkpointing_is_refused_in_an_encoder_that_has_none(windows, encoder, cpu, monkeypatch):
    monkeypatch.setattr(type(encoder.model), "supports_gradient_checkpointing", False)
    output = build_heads([HeadConfig.model_validate("last_linear")], encoder.shape, seed=1)["last_linear"]
    with pytest.raises(SettingsError, match="gradient_checkpointing is not possible in BertModel; leave it out"):
        list(finetune_encoder(encoder, output, windows, make_config(gradient_checkpointing=True), seed=1, compute=cpu))
