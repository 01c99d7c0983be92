import pytest

from bertvision.errors import SettingsError
from bertvision.settings import validate
from bertvision.states.config import StatesConfig


def test_a_word_is_short_for_the_source():
    assert StatesConfig.model_validate("memory") == StatesConfig(source="memory")
    assert StatesConfig().source == "auto"


@pytest.mark.parametrize(("layers", "chosen"), [("all", None), ([0, 3], (0, 3)), ([2], (2,))])
def test_layers_are_all_or_a_list(layers, chosen):
    assert validate(StatesConfig, {"layers": layers}, "test").chosen_layers == chosen


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"layers": []}, "`layers`: must be `all` or ascend from 0"),
        ({"layers": [2, 1]}, "must be `all` or ascend"),
        ({"layers": [1, 1]}, "must be `all` or ascend"),
        ({"layers": [-1]}, "must be `all` or ascend"),
        ({"layers": [0.5]}, "must be `all` or ascend"),
        ({"layers": "some"}, "got 'some'"),
        ({"source": "tape"}, "source"),
        ({"source": "live", "folder": "states"}, "`source: live` does not go with `folder`; give one of them"),
        ({"memory": 0}, "memory"),
        ({"batch": {}}, "either `tokens` or `windows`"),
    ],
)
def test_states_that_cannot_be_are_refused(settings, told):
    with pytest.raises(SettingsError, match=told):
        validate(StatesConfig, settings, "test")
