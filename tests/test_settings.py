import datetime

import pytest
from pydantic import Field, ValidationError, model_validator

from bertvision.errors import SettingsError
from bertvision.settings import Config, first_difference, merge, parse_yaml, read_yaml, validate, with_overrides


class Optim(Config):
    warmup: float = Field(0.0, ge=0, lt=1)
    schedule: str = "constant"


class Stage(Config):
    lr: float = 1e-4
    epochs: int = 1
    optim: Optim = Optim()
    fractions: tuple[float, ...] = ()
    parts: tuple[Optim, ...] = ()
    last: Optim | None = None

    @model_validator(mode="after")
    def _is_possible(self) -> "Stage":
        if self.epochs == 13:
            raise ValueError("13 epochs are unlucky")
        return self


def refusal(act, *arguments):
    """Return the text of the SettingsError that a call ends with, which must be one line."""
    with pytest.raises(SettingsError) as caught:
        act(*arguments)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1E5", 100_000.0),
        ("2.5e-4", 2.5e-4),
        ("2.e3", 2000.0),
        (".5e1", 5.0),
        ("-3e+2", -300.0),
        ("12", 12),
        ("0.25", 0.25),
        ("null", None),
        ("true", True),
        ("1e", "1e"),
        ("e5", "e5"),
        ("1e-5x", "1e-5x"),
        ("'1e-5'", "1e-5"),
    ],
)
def test_a_number_may_be_written_with_an_exponent_and_without_a_point(text, value):
    parsed = parse_yaml(text, "here")
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a: 1\nb: 2\na: 3", "a"),
        ("a: {b: 1, c: 2, b: 1}", "b"),
        ("a:\n  - {x: 1, x: 2}", "x"),
        ("a: 1\n'a': 1", "a"),
    ],
)
def test_a_key_given_twice_is_an_error(text, key):
    message = refusal(parse_yaml, text, "my.yaml")
    assert message.startswith("my.yaml: not valid YAML: ")
    assert f"the key `{key}` is given twice" in message


def test_the_same_key_may_stand_in_two_mappings():
    assert parse_yaml("a: {x: 1}\nb: {x: 2}", "here") == {"a": {"x": 1}, "b": {"x": 2}}


@pytest.mark.parametrize(
    "text",
    [
        "a: [1",
        "a: b: c",
        "\ta: 1",
        "a: !!python/object:os.system x",
        "a: \x01",
        "? [a, b]\n: c",
        "a: 2020-13-45",  # what looks like a date and is none
        "a: !!int b",
        "[" * 5_000,
    ],
)
def test_what_is_no_yaml_is_refused_in_one_line(text):
    assert refusal(parse_yaml, text, "my.yaml").startswith("my.yaml: not valid YAML")


def test_a_yaml_file_is_read(tmp_path):
    (tmp_path / "fine.yaml").write_text("# Ümlaut\nlr: 1e-5\n", encoding="utf-8")
    assert read_yaml(tmp_path / "fine.yaml") == {"lr": 1e-5}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read (No such file or directory); give the path of an experiment's YAML"),
        (b"\xff\xfe\xfa", "is not UTF-8 text; give the path of an experiment's YAML"),
        (b"", "expected `key: value` lines, got NoneType; give an experiment's YAML"),
        (b"- a\n- b\n", "expected `key: value` lines, got list"),
        (b"just words", "expected `key: value` lines, got str"),
        (b"a: 1\na: 2\n", "not valid YAML: the key `a` is given twice"),
    ],
)
def test_a_file_without_settings_is_refused_and_named(tmp_path, content, problem):
    path = tmp_path / "my.yaml"
    if content is not None:
        path.write_bytes(content)
    assert refusal(read_yaml, path).startswith(f"{path}: {problem}")


def test_a_folder_is_no_yaml_file(tmp_path):
    assert refusal(read_yaml, tmp_path).startswith(f"{tmp_path}: cannot be read (Is a directory)")


def test_settings_become_a_config_without_conversion():
    stage = validate(Stage, {"lr": 1, "optim": {"warmup": 0.5}, "fractions": [0, 0.5]}, "my.yaml")
    assert stage == Stage(lr=1.0, optim=Optim(warmup=0.5), fractions=(0.0, 0.5))


def test_a_config_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Stage().lr = 1.0


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"optm": {}}, "unknown key `optm`; did you mean `optim`?"),
        ({"optim": {"wamrup": 0.1}}, "unknown key `optim.wamrup`; did you mean `warmup`?"),
        ({"optim": {"qqq": 0.1}}, "unknown key `optim.qqq`; known keys: warmup, schedule"),
        ({"qqq": 1}, "unknown key `qqq`; known keys: lr, epochs, optim, fractions, parts, last"),
        ({"last": {"wamrup": 0.1}}, "unknown key `last.wamrup`; did you mean `warmup`?"),
        ({"last": {"qqq": 0.1}}, "unknown key `last.qqq`; known keys: warmup, schedule"),
        ({"parts": [{"wamrup": 0.1}]}, "unknown key `parts.0.wamrup`"),
        ({"lr": "fast"}, '`lr`: Input should be a valid number, got "fast"'),
        ({"epochs": 1.5}, "`epochs`: Input should be a valid integer"),
        ({"epochs": True}, "`epochs`: Input should be a valid integer, got true"),
        ({"epochs": "1"}, '`epochs`: Input should be a valid integer, got "1"'),
        ({"lr": float("nan")}, "`lr`: Input should be a finite number, got NaN"),
        ({"lr": float("inf")}, "`lr`: Input should be a finite number, got Infinity"),
        ({"optim": {"warmup": 1.0}}, "`optim.warmup`: Input should be less than 1, got 1.0"),
        ({"optim": None}, "`optim`: Input should be an object, got null"),
        ({"lr": "a", "epochs": "b"}, '`lr`: Input should be a valid number, got "a" (and 1 more)'),
        ({"lr": "two\nlines"}, '`lr`: Input should be a valid number, got "two\\nlines"'),
        ({"epochs": 13}, "13 epochs are unlucky"),
        (
            {"lr": datetime.date(2020, 1, 2)},
            "Object of type date is not JSON serializable; ",
        ),
        ({"parts": {1, 2}}, "Object of type set is not JSON serializable; "),
    ],
)
def test_a_wrong_setting_is_refused_with_its_key_and_what_was_expected(settings, problem):
    assert refusal(validate, Stage, settings, "my.yaml").startswith(f"my.yaml: {problem}")


def test_a_yaml_that_holds_itself_is_refused():
    settings = parse_yaml("optim: &again\n  warmup: *again", "my.yaml")
    assert refusal(validate, Stage, settings, "my.yaml").startswith("my.yaml: ")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("lr=1e-5", {"lr": 1e-5, "optim": {"warmup": 0.1, "schedule": "linear"}}),
        ("optim.warmup=0.2", {"lr": 1.0, "optim": {"warmup": 0.2, "schedule": "linear"}}),
        ("optim={warmup: 0.2}", {"lr": 1.0, "optim": {"warmup": 0.2, "schedule": "linear"}}),
        ("optim.new.deep=x", {"lr": 1.0, "optim": {"warmup": 0.1, "schedule": "linear", "new": {"deep": "x"}}}),
        ("parts=[1, 2]", {"lr": 1.0, "optim": {"warmup": 0.1, "schedule": "linear"}, "parts": [1, 2]}),
        ("name=a=b", {"lr": 1.0, "optim": {"warmup": 0.1, "schedule": "linear"}, "name": "a=b"}),
        ("lr=", {"lr": None, "optim": {"warmup": 0.1, "schedule": "linear"}}),
    ],
)
def test_an_override_sets_one_key_and_leaves_its_neighbours(override, expected):
    settings = {"lr": 1.0, "optim": {"warmup": 0.1, "schedule": "linear"}}
    assert with_overrides(settings, [override]) == expected
    assert settings == {"lr": 1.0, "optim": {"warmup": 0.1, "schedule": "linear"}}


def test_the_last_override_wins():
    assert with_overrides({}, ["lr=1", "lr=2"]) == {"lr": 2}


@pytest.mark.parametrize("override", ["lr", "=1", "optim.=1", ".lr=1", "optim..warmup=1", ""])
def test_an_override_without_key_or_value_is_refused_with_an_example(override):
    message = refusal(with_overrides, {}, [override])
    assert message == f"setting {override!r}: expected key=value, such as `heads.epochs=3`"


def test_an_override_whose_value_is_no_yaml_is_refused():
    assert refusal(with_overrides, {}, ["lr=[1"]) == (
        "setting lr=[1: not valid YAML: expected ',' or ']', but got its end (line 1, column 3)"
    )


@pytest.mark.parametrize(
    ("below", "above", "merged"),
    [
        ({"a": 1, "b": 2}, {"b": 3, "c": 4}, {"a": 1, "b": 3, "c": 4}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"a": {"x": 1, "y": 3}}),
        ({"a": {"x": 1}}, {"a": None}, {"a": None}),
        ({"a": 1}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"batch": {"tokens": 8}}, {"batch": {"windows": 4}}, {"batch": {"windows": 4}}),
        (
            {"a": {"batch": {"tokens": 8}, "x": 1}},
            {"a": {"batch": {"windows": 4}}},
            {"a": {"batch": {"windows": 4}, "x": 1}},
        ),
    ],
)
def test_mappings_are_laid_over_each_other_key_by_key_but_a_batch_is_replaced_whole(below, above, merged):
    assert merge(below, above) == merged


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ({"a": 1, "b": {"c": [1, 2]}}, {"b": {"c": [1, 2]}, "a": 1}, None),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "a.b was 1 and is now 2"),
        ({"a": 1}, {"a": 1, "b": "x"}, 'b was null and is now "x"'),
        ({"a": 1, "b": "x"}, {"a": 1}, 'b was "x" and is now null'),
        ({"a": [1, 2]}, {"a": [1]}, "a was [1, 2] and is now [1]"),
        ({"a": 0.1 + 0.2}, {"a": 0.3}, None),
        ({"a": 0.3}, {"a": 0.3001}, "a was 0.3 and is now 0.3001"),
        ({"a": {"b": 1}}, {"a": 1}, 'a was {"b": 1} and is now 1'),
    ],
)
def test_the_first_difference_of_two_settings_is_named_with_both_values(one, other, difference):
    assert first_difference(one, other) == difference


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGED = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("text", [BOMB, MERGED])
def test_aliases_that_stand_for_millions_of_values_are_refused(text):
    assert len(text) < 500
    assert "its aliases stand for more than 100,000 values" in refusal(parse_yaml, text, "bomb.yaml")


def test_aliases_that_a_person_writes_are_read():
    assert parse_yaml("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}\n", "a.yaml") == {
        "a": {"x": 1},
        "b": {"x": 1},
        "c": {"x": 1, "y": 2},
    }
