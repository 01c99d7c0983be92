import pytest

from bertvision.encoder.tuning.config import TuneConfig
from bertvision.errors import SettingsError
from bertvision.settings import validate


@pytest.mark.parametrize(
    ("train", "expected"),
    [("all", ("all", 0)), ("top:12", ("top", 12)), ("bitfit", ("bitfit", 0)), ("none", ("none", 0))],
)
def test_what_is_trained_is_a_kind_and_a_number_of_blocks(train, expected):
    assert TuneConfig(train=train).trained == expected


@pytest.mark.parametrize(
    ("insert", "expected"),
    [
        ("houlsby:64", [("houlsby", 64)]),
        ("pfeiffer:8", [("pfeiffer", 8)]),
        ("lora:4", [("lora", 4)]),
        ("lora-all:4", [("lora-all", 4)]),
        ("houlsby:64+lora-all:8", [("houlsby", 64), ("lora-all", 8)]),
    ],
)
def test_what_is_inserted_is_a_kind_and_a_width(insert, expected):
    assert list(TuneConfig(insert=insert).inserted) == expected


@pytest.mark.parametrize(
    ("insert", "is_mergeable"), [("none", True), ("lora-all:4", True), ("houlsby:4+lora:4", False)]
)
def test_lora_alone_can_become_the_encoders_own_weights(insert, is_mergeable):
    assert TuneConfig(insert=insert).is_mergeable == is_mergeable


def test_by_default_everything_is_trained_and_nothing_inserted():
    config = TuneConfig()
    assert (config.trained, config.inserted, config.train_norms, config.parasites) == (("all", 0), (), True, None)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"train": "top"}, "`train`: expected all, top:n"),
        ({"train": "top:0"}, "got 'top:0'"),
        ({"train": "top:-1"}, "got 'top:-1'"),
        ({"train": "top:06"}, "got 'top:06'"),
        ({"train": "all\n"}, "got 'all\\n'"),
        ({"insert": "houlsby"}, "`insert`: expected houlsby:64"),
        ({"insert": "lora:1.5"}, "got 'lora:1.5'"),
        ({"insert": "none:3"}, "got 'none:3'"),
        ({"insert": "lora:2+lora-all:2"}, "got 'lora:2+lora-all:2'"),
        ({"insert": "houlsby:2+pfeiffer:2"}, "got 'houlsby:2+pfeiffer:2'"),
        ({"norms": "yes"}, "`norms`"),
        ({"layers": 3}, "unknown key `layers`"),
        ({"parasites": {"states": 0}}, "expected 1 or more states, or all, got 0"),
        ({"parasites": {"width": 0}}, "`parasites.width`"),
        ({"parasites": {"lr": 0}}, "`parasites.lr`"),
        ({"frozen_fraction": 1}, "`frozen_fraction`"),
        ({"frozen_fraction": -0.1}, "`frozen_fraction`"),
        ({"frozen_fraction": 0.5, "insert": "lora:4"}, "leave insert and parasites out"),
        ({"frozen_fraction": 0.5, "parasites": {}}, "leave insert and parasites out"),
        (
            {"frozen_fraction": 0.5, "train": "none", "train_norms": False},
            "train: none with train_norms: false trains nothing",
        ),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line(settings, told):
    with pytest.raises(SettingsError) as caught:
        validate(TuneConfig, settings, "tune")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_frozen_share_of_0_is_none():
    assert TuneConfig(frozen_fraction=0) == TuneConfig()


def test_a_setting_survives_json():
    config = TuneConfig(train="top:3", insert="pfeiffer:16", train_norms=False, parasites={"states": "all"})
    assert validate(TuneConfig, config.model_dump(mode="json"), "tune") == config


@pytest.mark.parametrize(
    ("settings", "frozen"),
    [
        ({"train": "top:3", "train_norms": False}, True),
        ({"train": "none", "train_norms": False}, True),
        ({"train": "top:3"}, False),
        ({"train": "none", "train_norms": False, "insert": "lora:4"}, False),
        ({"train": "none", "train_norms": False, "parasites": {}}, False),
        ({"train": "bitfit", "train_norms": False}, False),
        ({"train": "all", "train_norms": False}, False),
    ],
)
def test_a_bottom_is_frozen_where_the_top_alone_learns(settings, frozen):
    assert TuneConfig(**settings).freezes_bottom == frozen


def test_parasites_have_the_rate_of_the_others_unless_they_are_given_one():
    assert TuneConfig(parasites={}).rates == TuneConfig().rates == {}
    assert TuneConfig(parasites={"lr": 0.5}).rates == {"parasites": 0.5}
