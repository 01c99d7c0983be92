from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bertvision.encoder.encode import freeze, shape_of_states
from bertvision.errors import SettingsError, TrainingError
from bertvision.heads import training
from bertvision.heads.config import HeadsConfig
from bertvision.heads.head import Head
from bertvision.heads.training import build_heads, train_heads_together
from bertvision.settings import validate
from bertvision.states.live import LiveStates
from bertvision.tasks import KINDS
from bertvision.training.objective import SPANS, loss_of
from bertvision.windows.plan import BatchConfig
from bertvision.windows.window import WindowConfig, cut_windows

NAMES = ["learned_pooling", "adapter_64_shared_skip", "last_linear"]


def make_config(names=NAMES, **more):
    return validate(HeadsConfig, {"train": names, "batch": {"windows": 3}, **more}, "test")


@pytest.fixture
def source(encoder, questions, cpu):
    windows = cut_windows(questions, encoder.tokenizer, WindowConfig())
    return LiveStates(freeze(encoder, cpu), windows, BatchConfig(windows=3), 7, cpu)


def train(config, source, encoder, cpu, change=lambda heads: None, **more):
    heads = build_heads(config.train, encoder.shape, seed=1)
    change(heads)
    ends = list(train_heads_together(heads, source, config, seed=1, compute=cpu, **more))
    return heads, ends


def weights(head):
    return torch.cat([parameter.detach().flatten() for parameter in head.parameters()])


@torch.no_grad()
def log_probabilities(head, source, objective=SPANS):
    """What a head computes, over all batches: of every token's start and end, of tags, or of a row."""
    over = 1 if objective.kind == "span" else -1
    found = []
    for batch in source.epoch(0):
        logits = head.eval()(*batch.seen)
        if objective.kind == "choice":
            logits = logits.view(-1, objective.group)
        if objective.kind in ("labels", "number"):
            found.append(logits.flatten())
            continue
        each = logits.log_softmax(dim=over)
        found.append((each[batch.windows.mask] if objective.per == "token" else each).flatten())
    return torch.cat(found)


def with_dropout(head):
    """Put dropout between pooler and readout, so that the head draws random numbers."""
    pooler = head.pooler
    head.pooler = Dropped(pooler)


class Dropped(nn.Module):
    def __init__(self, pooler):
        super().__init__()
        self.pooler = pooler
        self.dropout = nn.Dropout(0.5)

    def forward(self, states, mask, segments):
        return self.dropout(self.pooler(states, mask, segments))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("draws", [False, True])
def test_a_head_trained_beside_others_equals_the_same_head_trained_alone(name, draws, source, encoder, cpu):
    def change(heads):
        if draws:
            for head in heads.values():
                with_dropout(head)

    together, _ = train(make_config(epochs=2), source, encoder, cpu, change)
    alone, _ = train(make_config([name], epochs=2), source, encoder, cpu, change)
    found, expected = (log_probabilities(heads[name], source) for heads in (together, alone))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_training_changes_every_head_and_leaves_the_encoder_alone(source, encoder, cpu):
    before = {name: tensor.clone() for name, tensor in encoder.model.state_dict().items()}
    start = build_heads(make_config().train, encoder.shape, seed=1)
    trained, _ = train(make_config(), source, encoder, cpu)
    assert all(not torch.equal(weights(trained[name]), weights(start[name])) for name in NAMES)
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.model.state_dict().items())


def test_control_comes_back_after_every_epoch(source, encoder, cpu):
    _, ends = train(make_config(epochs=3), source, encoder, cpu)
    assert [end.epoch for end in ends] == [1, 2, 3]
    assert ends[0].seconds <= ends[1].seconds <= ends[2].seconds


def test_a_head_that_diverges_is_left_out_and_the_others_go_on_unchanged(source, encoder, cpu):
    def spoil(heads):
        heads["last_linear"].readout.linear.weight.data.fill_(float("nan"))

    config = make_config(epochs=5)
    spoiled, ends = train(config, source, encoder, cpu, spoil)
    sound, _ = train(config, source, encoder, cpu)
    assert ends[-1].diverged == ("last_linear",)
    assert torch.equal(weights(spoiled["learned_pooling"]), weights(sound["learned_pooling"]))


def test_training_stops_when_every_head_diverges(source, encoder, cpu):
    def spoil(heads):
        for head in heads.values():
            head.readout.linear.weight.data.fill_(float("nan"))

    with pytest.raises(TrainingError, match=r"lower heads\.lr"):
        train(make_config(epochs=5), source, encoder, cpu, spoil)


def test_a_training_without_heads_has_none_that_diverged(source, encoder, cpu):
    _, ends = train(make_config([], epochs=2), source, encoder, cpu)
    assert [(end.epoch, end.diverged) for end in ends] == [(1, ()), (2, ())]


def test_a_training_that_was_cut_short_goes_on_to_the_same_weights(source, encoder, cpu, tmp_path):
    config = make_config(epochs=2, save_every=1e-9)  # saves after every step

    class CutError(Exception):
        pass

    class CutShort:
        def num_steps(self, epoch):
            return source.num_steps(epoch)

        def epoch(self, number, first_step=0):
            for step, batch in enumerate(source.epoch(number, first_step), start=first_step):
                if number == 1 and step == 2:
                    raise CutError
                yield batch

    with pytest.raises(CutError):
        train(config, CutShort(), encoder, cpu, saved=tmp_path / "progress")
    resumed, ends = train(config, source, encoder, cpu, saved=tmp_path / "progress")
    whole, _ = train(config, source, encoder, cpu)
    assert [end.epoch for end in ends] == [2]
    assert all(torch.equal(weights(resumed[name]), weights(whole[name])) for name in NAMES)


def test_short_epochs_are_saved_too_once_save_every_has_passed(source, encoder, cpu, tmp_path, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    config, saved = make_config(epochs=4, save_every=100), tmp_path / "progress"
    heads = build_heads(config.train, encoder.shape, seed=1)
    found = []
    for _ in train_heads_together(heads, source, config, seed=1, compute=cpu, saved=saved):
        found.append(saved.exists())
        clock.now += 60  # an epoch with its scoring
    assert found == [False, False, True, True]


def test_heads_start_from_the_seed_and_their_name_alone(encoder):
    together = build_heads(make_config().train, encoder.shape, seed=1)
    alone = build_heads(make_config(["last_linear"]).train, encoder.shape, seed=1)
    other = build_heads(make_config(["last_linear"]).train, encoder.shape, seed=2)
    assert isinstance(alone["last_linear"], Head)
    assert torch.equal(weights(together["last_linear"]), weights(alone["last_linear"]))
    assert not torch.equal(weights(other["last_linear"]), weights(alone["last_linear"]))


def test_two_heads_of_one_name_are_refused():
    with pytest.raises(SettingsError, match="two heads are called"):
        validate(HeadsConfig, {"train": ["last_linear", "last_linear"]}, "test")


def test_settings_decide_what_is_learned(source, encoder, cpu):
    settings = [{"lr": 0.001}, {"lr": 0.1}, {"lr": 0.1, "weight_decay": 5.0}]
    heads = [{"head": "adapter_64_shared", "name": f"h{number}", **own} for number, own in enumerate(settings)]
    config = make_config(heads, epochs=4)
    start = build_heads(config.train, encoder.shape, seed=1)
    trained, _ = train(config, source, encoder, cpu)
    small, large, decayed = (
        (weights(trained[head.name]) - weights(start[head.name])).abs().mean() for head in config.train
    )
    assert small < large / 10
    assert weights(trained[config.train[2].name]).abs().mean() < weights(trained[config.train[1].name]).abs().mean()
    assert decayed > 0


# Every kind of task


OF_ALL_TOKENS = [(kind, None) for kind in KINDS]
OF_ONE_STATE = [(kind, how) for how in ("first", "mean") for kind in KINDS if KINDS[kind].per == "row"]


@pytest.mark.parametrize(("kind", "pooling"), [*OF_ALL_TOKENS, *OF_ONE_STATE])
def test_heads_together_and_alone_learn_every_kind_of_task(kind, pooling, make_task, encoder, cpu):
    windows, objective = make_task(kind)
    names = ["learned_pooling", "adapter_64_shared_skip", "ladder"]  # the last one outside the group
    narrow = {"head": "bilstm_sum_all", "name": "bilstm", "readout_width": 8}
    config = make_config([*names, *([narrow] if kind == "tags" else [])], epochs=20, lr=0.03)
    source = LiveStates(
        freeze(encoder, cpu), windows, BatchConfig(windows=9), 7, cpu, pooling=pooling, group=objective.group
    )
    heads = build_heads(config.train, shape_of_states(encoder, pooling=pooling), seed=1, objective=objective)

    def losses():
        batches = list(source.epoch(0))
        with torch.no_grad():
            return {
                name: sum(loss_of(objective, head(*each.seen), each.windows, "sum").item() for each in batches)
                for name, head in heads.items()
            }

    before = losses()
    for _ in train_heads_together(heads, source, config, seed=1, compute=cpu, objective=objective):
        pass
    after = losses()
    # The first tokens of an encoder with random weights differ little: beyond how often each label occurs, where a
    # start may lie by chance, there is not much to learn from them.
    slack = 1.05 if pooling else 1.0
    assert all(after[name] < slack * before[name] for name in heads), (before, after)


@pytest.mark.parametrize("kind", ["class", "labels", "number", "choice", "tags"])
def test_a_head_of_any_kind_trained_beside_others_equals_the_same_head_trained_alone(kind, make_task, encoder, cpu):
    windows, objective = make_task(kind)
    source = LiveStates(freeze(encoder, cpu), windows, BatchConfig(windows=6), 7, cpu, group=objective.group)
    trained = []
    for names in (NAMES, NAMES[1:2]):
        config = make_config(names, epochs=2)
        heads = build_heads(config.train, encoder.shape, seed=1, objective=objective)
        for _ in train_heads_together(heads, source, config, seed=1, compute=cpu, objective=objective):
            pass
        trained.append(log_probabilities(heads[NAMES[1]], source, objective))
    torch.testing.assert_close(trained[0], trained[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dropped", ["last_linear", "mix4"])
def test_heads_that_are_dropped_take_no_further_step_and_the_others_learn_as_if_they_were_there(
    dropped, source, encoder, cpu
):
    config = make_config([*NAMES, "mix4"], epochs=3)
    whole, _ = train(config, source, encoder, cpu)
    heads = build_heads(config.train, encoder.shape, seed=1)
    for end in train_heads_together(heads, source, config, seed=1, compute=cpu):
        if end.epoch == 1:
            end.drop([dropped])
            before = weights(heads[dropped])
    assert torch.equal(weights(heads[dropped]), before)
    assert {name: max(point.step for point in own) for name, own in end.history.points.items()} == {
        name: (1 if name == dropped else 3) * source.num_steps(0) for name in heads
    }
    for name in heads.keys() - {dropped}:
        # Sums over heads side by side are taken in another order without one of them; float32.
        computed = log_probabilities(heads[name], source)
        torch.testing.assert_close(computed, log_probabilities(whole[name], source), rtol=1e-4, atol=1e-4)


def test_dropout_acts_in_training_alone_on_what_the_readout_sees(encoder, source):
    plain, dropping = (
        build_heads(make_config([{"name": "same", "head": "last_linear", **own}]).train, encoder.shape, seed=1)["same"]
        for own in ({}, {"dropout": 0.5})
    )
    batch = next(iter(source.epoch(0)))
    assert torch.equal(dropping.eval()(*batch.seen), plain.eval()(*batch.seen))
    first, second = (dropping.train()(*batch.seen)[batch.windows.mask] for _ in range(2))
    assert not torch.equal(first, second)
    assert dropping.state_dict().keys() == plain.state_dict().keys()


def test_heads_on_layers_of_their_own_learn_from_all_states_as_from_those_alone(source, encoder, questions, cpu):
    config, places = make_config(["learned_pooling", "adapter_64_shared_skip", "mix4"], epochs=2), (0, 2)
    shape = shape_of_states(encoder, places)
    beside = build_heads(config.train, shape, seed=1)
    for head in beside.values():
        head.layers = places
    others = {f"{name} on all": head for name, head in build_heads(config.train, encoder.shape, seed=1).items()}
    named = [each.model_copy(update={"name": f"{each.name} on all"}) for each in config.train]
    both = config.model_copy(update={"train": (*config.train, *named)})
    list(train_heads_together({**others, **beside}, source, both, seed=1, compute=cpu))
    windows = cut_windows(questions, encoder.tokenizer, WindowConfig())
    some = LiveStates(encoder, windows, BatchConfig(windows=3), 7, cpu, layers=places)
    alone = build_heads(config.train, shape, seed=1)
    list(train_heads_together(alone, some, config, seed=1, compute=cpu))
    for name, head in beside.items():
        computed = log_probabilities(head, source)
        torch.testing.assert_close(computed, log_probabilities(alone[name], some), rtol=1e-4, atol=1e-4)  # float32
