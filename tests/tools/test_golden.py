import json

import golden
import numpy as np
import pytest
import yaml
from golden_experiments import EXPERIMENTS
from safetensors.numpy import save_file

from bertvision.experiment import build_experiment
from bertvision.manifest import check_manifest, write_manifest
from bertvision.tasks import KINDS, TASKS


def fields_of(path, content):
    if path.suffix == ".safetensors":
        save_file(content, path)
    else:
        path.write_text(content)
    return dict(golden.read_file(path, f"spans/{path.name}:"))


def differences(old, new):
    return [(each.field, each.old, each.new) for each in golden.compare(old, new)]


def test_one_bit_of_a_score_is_a_difference_and_nan_is_none(tmp_path):
    path = tmp_path / "scores.json"
    old = fields_of(path, '{"scores": {"f1": 0.3, "pearson": NaN}}')
    assert differences(old, fields_of(path, '{"scores": {"pearson": NaN, "f1": 0.3}}')) == []
    new = fields_of(path, '{"scores": {"f1": 0.30000000000000004, "pearson": NaN}}')
    assert differences(old, new) == [("spans/scores.json:scores.f1", "0.3", "0.30000000000000004")]


def test_weights_are_compared_to_the_bit_and_their_distance_is_told(tmp_path):
    path = tmp_path / "head.safetensors"
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    old = fields_of(path, {"weight": weights})
    assert differences(old, fields_of(path, {"weight": weights.copy()})) == []
    changed = weights.copy()
    changed[1, 2] += 0.5
    ((field, _, told),) = differences(old, fields_of(path, {"weight": changed}))
    assert (field, told) == ("spans/head.safetensors:weight", "1 of 6 values differ, by 0.5 at most")


def test_of_a_text_only_lines_that_differ_are_told(tmp_path):
    path = tmp_path / "report.md"
    old = fields_of(path, "title\none\ntwo\nthree\n")
    new = fields_of(path, "title\na line more\none\n2\nthree\n")
    assert differences(old, new) == [
        ("spans/report.md:line 2", "(absent)", "'a line more'"),
        ("spans/report.md:line 4", "'two'", "'2'"),
    ]


def test_a_file_that_is_gone_is_one_line(tmp_path):
    old = fields_of(tmp_path / "one.json", '{"a": 1, "b": 2}')
    assert differences(old, {}) == [("spans/one.json:(file)", "'there'", "(absent)")]


def test_what_the_clock_decides_is_not_compared_but_has_to_be_there(tmp_path):
    path = tmp_path / "timing.json"
    old = fields_of(path, '{"seconds": 1.5, "peak": {"joules": 3}}')
    assert differences(old, fields_of(path, '{"seconds": 2.5, "peak": {"joules": 4}}')) == []
    assert [each[0] for each in differences(old, fields_of(path, '{"peak": {"joules": 4}}'))] == [
        "spans/timing.json:seconds"
    ]


def test_a_renamed_field_is_compared_with_its_old_one(monkeypatch):
    monkeypatch.setitem(golden.WORDS, "renamed", [{"old": r":row$", "new": ":model"}])
    assert golden.compare({"spans/r.json:row": "encoder"}, {"spans/r.json:model": "encoder"}) == []


def test_an_expected_difference_has_its_reason_and_only_between_the_values_that_are_expected(monkeypatch):
    group = {"because": "section 5", "fields": [["*:format", "1", "2"]]}
    monkeypatch.setitem(golden.WORDS, "expected", [group])
    (found,) = golden.compare({"spans/r.json:format": 1}, {"spans/r.json:format": 2})
    assert (found.field, found.because) == ("spans/r.json:format", "section 5")
    (found,) = golden.compare({"spans/r.json:format": 1}, {"spans/r.json:format": 3})
    assert found.because is None


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("a.b", "a.c"), {"a": {"c": 1}, "each": [{"head": "x"}]}),
        (("a.b", "d.b"), {"a": {}, "d": {"b": 1}, "each": [{"head": "x"}]}),
        (("a.b", ""), {"a": {}, "each": [{"head": "x"}]}),
        (("each.head", "each.kind"), {"a": {"b": 1}, "each": [{"kind": "x"}]}),
        (("each.head", "each.head", "x", "y"), {"a": {"b": 1}, "each": [{"head": "y"}]}),
        (("each.head", "each.head", "z", "y"), {"a": {"b": 1}, "each": [{"head": "x"}]}),
    ],
)
def test_settings_are_said_in_new_words(row, expected):
    settings = {"a": {"b": 1}, "each": [{"head": "x"}]}
    golden.move_setting(settings, *row)
    assert settings == expected


def test_every_kind_of_task_has_an_experiment_whose_states_are_pinned():
    kinds = set()
    for experiment in EXPERIMENTS.values():
        for settings in experiment.settings.values():
            if "task" in settings:
                said = golden.in_words_of(settings, is_new=True)
                kinds.add(TASKS[build_experiment(said).task].kind.name)
                assert settings["states"]["source"] == "live"
    assert kinds == KINDS.keys()


def test_every_command_has_a_line_in_both_trees():
    for experiment in EXPERIMENTS.values():
        for command in experiment.commands.values():
            for is_new in (False, True):
                assert "{" not in golden.command_line(*command, is_new=is_new)


def test_the_words_of_both_trees_are_plain_yaml():
    assert json.loads(json.dumps(golden.WORDS)) == golden.WORDS == yaml.safe_load(yaml.safe_dump(golden.WORDS))


def test_records_without_the_clock_are_records_that_the_tree_still_reads(tmp_path):
    record = tmp_path / "out" / "records" / "8-encoder.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"scores": {"f1": 0.5}, "seconds": 2.25}')
    write_manifest(record.parent)
    golden.settle_measured(tmp_path)
    assert json.loads(record.read_text()) == {"scores": {"f1": 0.5}, "seconds": 1.0}
    check_manifest(record.parent)
