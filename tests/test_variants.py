from pathlib import Path

import pytest

from bertvision.encoder.tuning.config import TuneConfig
from bertvision.errors import SettingsError
from bertvision.experiment import build_experiment, read_experiment, read_experiments

VARIANTS = """
finetune: {lr: 1e-5, fractions: [1]}
variants:
  full:
  top_1: {tune: {train: "top:1"}, finetune: {lr: [1e-4, 3e-4]}}
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "several.yaml"
    path.write_text(VARIANTS)
    return path


def test_every_variant_and_every_rate_of_one_is_an_experiment(path):
    found = read_experiments(path, ["heads.epochs=3"])
    assert [each.title for each in found] == ["several-full", "several-top_1-lr0.0001", "several-top_1-lr0.0003"]
    assert [(each.name, each.variant, each.method) for each in found] == [
        ("several", "full", "full"),
        ("several", "top_1-lr0.0001", "top_1"),
        ("several", "top_1-lr0.0003", "top_1"),
    ]
    assert [each.finetune.lr for each in found] == [1e-5, 1e-4, 3e-4]
    assert [each.tune for each in found] == [None, TuneConfig(train="top:1"), TuneConfig(train="top:1")]
    assert {each.finetune.fractions for each in found} == {(1.0,)}
    assert {each.heads.epochs for each in found} == {3}


def test_variants_lie_side_by_side_in_one_folder(path):
    assert [str(each.folder) for each in read_experiments(path)][:2] == ["several/full", "several/top_1-lr0.0001"]
    assert str(build_experiment({"name": "one"}).folder) == "one"


def test_one_variant_can_be_chosen(path):
    assert read_experiment(path, ["variant=full"]).variant == "full"
    with pytest.raises(SettingsError, match=r"no variant 'half'; known: full, top_1-lr0\.0001, top_1-lr0\.0003"):
        read_experiments(path, ["variant=half"])
    with pytest.raises(SettingsError, match=r"holds 3 variants; choose one with `variant=NAME`, of full, top_1"):
        read_experiment(path)


def test_a_name_without_its_rate_chooses_all_rates(path):
    found = read_experiments(path, ["variant=top_1"])
    assert [each.variant for each in found] == ["top_1-lr0.0001", "top_1-lr0.0003"]
    assert [each.variant for each in read_experiments(path, ["variant=top_1", "variant=full"])][0] == "full"


def test_a_rate_on_top_of_a_list_of_rates_is_refused_because_names_would_tell_another(path):
    with pytest.raises(SettingsError, match=r"top_1-lr0\.0001 has its learning rate by the list in the file; leave"):
        read_experiments(path, ["finetune.lr=1e-2"])
    assert read_experiment(path, ["finetune.lr=1e-2", "variant=full"]).finetune.lr == 1e-2


def test_a_variant_is_not_called_as_a_folder_of_reports(path):
    path.write_text("variants: {full: {}, costs: {}}\n")
    with pytest.raises(SettingsError, match="'costs' is a folder of reports; call the variant something else"):
        read_experiments(path)


def test_a_file_without_variants_is_one_experiment(path):
    path.write_text("seeds: [3]\n")
    (found,) = read_experiments(path)
    assert (found.name, found.variant, found.seeds) == ("several", None, (3,))
    with pytest.raises(SettingsError, match="known: none, it is one experiment"):
        read_experiments(path, ["variant=full"])


@pytest.mark.parametrize("variants", ["[a, b]", "{a: 3}"])
def test_variants_that_are_no_mapping_are_refused(path, variants):
    path.write_text(f"variants: {variants}\n")
    with pytest.raises(SettingsError, match="is to map names to settings"):
        read_experiments(path)


def test_a_bad_setting_of_a_variant_is_told_with_its_name(path):
    path.write_text('variants: {a: {tune: {train: "top"}}}\n')
    with pytest.raises(SettingsError, match=r"several\.yaml, a: `tune\.train`: expected all, top:n"):
        read_experiments(path)


def test_the_shipped_study_of_efficiency_holds_hulburds_rows():
    found = read_experiments(Path("squad2/efficiency"))
    by_name = {each.variant: each for each in found}
    # Ten ways of tuning and both kinds of filters at three rates each; at one, what follows another method's choice.
    assert len(by_name) == (10 + 2) * 3 + 2 * 3 + 1
    assert by_name["full_houlsby_64-lr0.0001"].tune == TuneConfig(insert="houlsby:64")
    assert by_name["cacnn_context_32-lr5e-05"].output.pooler.filters == 32
    assert by_name["full-lr0.0001"].measure.inference
    assert len(by_name["heads-lr0.0001"].heads.train) == 4 * 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tune": {"insert": "adapters"}}, "expected houlsby:64, pfeiffer:64, lora:4"),
        ({"finetune": {"head": "no_such"}}, "no head 'no_such' in the catalog"),
        ({"finetune": {"head": {"head": "cacnn_simple", "lr": 0.1}}}, r"set finetune\.lr and finetune\.optim instead"),
        ({"finetune": {"head": "ap_glue"}}, "finetune.head is not for tasks of the kind span"),
        ({"finetune": {"head": {"pooler": {"kind": "cacnn_simple", "filers": 4}}}}, r"unknown key `pooler.*filers`"),
    ],
)
def test_bad_settings_of_tuning_are_refused(settings, message):
    with pytest.raises(SettingsError, match=message):
        build_experiment(settings)


def test_the_default_spelled_out_is_the_default():
    plain = build_experiment({})
    assert build_experiment({"tune": {"train": "all", "train_norms": True}, "measure": {"inference": False}}) == plain
    assert plain.tuning_settings()["tune"] is None


def test_a_rate_that_is_no_number_is_refused(path):
    path.write_text(VARIANTS.replace("[1e-4, 3e-4]", "[{of: 1e-4}]"))
    with pytest.raises(SettingsError, match=r"variant top_1: `finetune\.lr` lists numbers, got {'of': 0\.0001}"):
        read_experiments(path)
