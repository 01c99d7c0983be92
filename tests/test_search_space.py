import pytest

from bertvision.errors import SettingsError
from bertvision.experiment import build_experiment
from bertvision.search.trials import Trial, head_of
from bertvision.search_space import Range, SearchConfig, layers_of, space_of
from bertvision.tasks import KINDS


@pytest.mark.parametrize(
    ("word", "layers"),
    [
        ("all", None),
        ("last:4", (3, 4, 5, 6)),
        ("last:9", (0, 1, 2, 3, 4, 5, 6)),
        ("every:2", (0, 2, 4, 6)),
        ("every:3", (0, 3, 6)),
        ("every:4", (2, 6)),
        ("0,5,2", (0, 2, 5)),
    ],
)
def test_a_word_names_layers_of_an_encoder_with_seven_states(word, layers):
    assert layers_of(word, 7) == layers


@pytest.mark.parametrize("kind", KINDS.values(), ids=str)
def test_every_kind_has_a_default_space_of_heads_that_serve_it(kind):
    space = space_of(SearchConfig(), kind, (1, 2))
    assert {"last_linear", "learned_pooling"} <= space.heads.keys()
    assert space.values["seed"] == (1, 2)
    assert isinstance(space.values["lr"], Range)
    assert space.values["readout"] == (("linear", "joint") if kind.name == "span" else ("linear",))


def test_the_default_of_fine_tuning_is_the_grid_of_berts_paper():
    space = space_of(SearchConfig(target="finetune"), KINDS["class"], (1, 2, 3))
    assert space.values["lr"] == (5e-5, 4e-5, 3e-5, 2e-5)
    assert (space.values["batch"], space.values["epochs"]) == ((16, 32), (2, 3, 4))
    assert space.size == 4 * 2 * 3 * 3
    assert len({tuple(point.items()) for point in space.grid()}) == 4 * 2 * 3 * 3


def test_what_has_one_value_is_no_choice():
    space = space_of(SearchConfig(lr=(1e-3,), layers=("all",)), KINDS["class"], (7,))
    assert not {"lr", "layers", "seed", "readout"} & space.choices.keys()
    assert space.fixed["seed"] == 7


def test_neighbours_of_a_grid_share_the_seed():
    config = SearchConfig(lr=(1e-3, 1e-2), width=(4,), dropout=(0.0,), weight_decay=(0.0,), layers=("all", "last:1"))
    points = space_of(config, KINDS["class"], (1, 2)).grid()
    assert [point["seed"] for point in points] == [1] * 28 + [2] * 28


def test_a_trials_head_has_its_settings():
    space = space_of(SearchConfig(), KINDS["span"], (1,))
    settings = {"head": "mix4", "lr": 0.01, "weight_decay": 0.1, "width": 12, "dropout": 0.3, "readout": "joint"}
    head = head_of(space, Trial(5, {**settings, "layers": "all", "seed": 1}))
    assert (head.name, head.lr, head.weight_decay, head.dropout, head.readout) == ("trial_5", 0.01, 0.1, 0.3, "joint")
    assert (head.pooler.kind, head.pooler.width, head.same_size_as) == ("mix4", 12, None)
    plain = head_of(
        space, Trial(6, {**settings, "head": "learned_pooling", "dropout": 0.0, "layers": "all", "seed": 1})
    )
    assert (plain.pooler, plain.dropout) == (space.heads["learned_pooling"].pooler, None)


def test_layers_are_read_as_words_and_lists_and_stay_so_through_a_file():
    first = build_experiment({"search": {"layers": ["all", "last:2", [0, 6]]}})
    assert first.search.layers == ("all", "last:2", "0,6")
    assert build_experiment({"search": {"layers": list(first.search.layers)}}) == first


def test_values_of_the_command_line_are_checked_too():
    with pytest.raises(SettingsError, match=r"`search.group_size`: Input should be greater than or equal to 1"):
        build_experiment({}, ["search.group_size=0"])
