"""What methods cost, measured in one process on a tiny encoder."""

import json

import pytest
import torch
import typer
from typer.testing import CliRunner

from benchmarks import costs as costs_step
from benchmarks.costs import bench_costs, measure_methods, one_rate_each
from benchmarks.run import bench as run_named
from bertvision.cli import app
from bertvision.encoder.load import load_encoder
from bertvision.errors import SettingsError
from bertvision.experiment import read_experiments
from bertvision.progress import Silent
from bertvision.stages.measure import MeasuredModel
from bertvision.stages.run import run
from studies.__main__ import app as studies_app
from studies.cost_records import Round, read_costs
from studies.costs import with_costs

pytestmark = pytest.mark.flow
VARIANTS = {
    "full": {"finetune": {"lr": [1e-3, 3e-3]}},
    "lora": {"tune": {"train": "none", "insert": "lora:2", "train_norms": False}},
    "cacnn": {"finetune": {"head": {"pooler": {"kind": "cacnn_simple", "filters": 2}}}},
    "heads": {
        "tune": {"train": "none", "insert": "houlsby:4"},
        "heads": {
            "train": [
                {"head": head, "name": f"{head}-lr{lr}", "variant_of": head, "lr": lr}
                for head in ("learned_pooling", "ladder")
                for lr in (0.001, 0.01)
            ]
        },
    },
}


class Listener(Silent):
    """Notes what is said."""

    def __init__(self):
        self.said = []

    def say(self, message):
        self.said.append(message)


@pytest.fixture
def path(squad_file, saved_encoder, tmp_path):
    """A file with variants of one experiment."""
    data = str(squad_file())
    plain = {
        "data": {"train": data, "dev": data},
        "encoder": str(saved_encoder),
        "windows": {"max_length": 24, "stride": 4},
        "finetune": {"fractions": [0.5, 1], "batch": {"windows": 2}, "lr": 1e-3},
        "heads": {"train": [], "batch": {"windows": 4}},
        "measure": {"inference": True},
        "seeds": [1],
        "device": "cpu",
    }
    path = tmp_path / "several.yaml"
    path.write_text(json.dumps({**plain, "variants": VARIANTS}))
    return path


@pytest.fixture
def turns(monkeypatch):
    """The methods in the order in which they have their turns, which measure nothing."""
    taken = []

    def noting(line, *_):
        taken.append(line.experiment.variant)
        return costs_step.Turn(Round(tuning=None, heads=None, rows={}), {})

    monkeypatch.setattr("benchmarks.costs.take_turn", noting)
    return taken


@pytest.fixture
def one_round(monkeypatch):
    """One round is enough where rounds are not what is tested."""
    monkeypatch.setattr("benchmarks.costs.ROUNDS", 1)


def test_methods_have_turns_forwards_and_backwards_and_learning_rates_do_not_matter(path, tmp_path, turns):
    measure_methods(read_experiments(path), tmp_path / "out")
    there = ["full-lr0.001", "lora", "cacnn", "heads"]
    assert turns == [*there, *there[::-1], *there]


def test_measuring_that_was_stopped_goes_on_and_then_has_nothing_to_do(path, tmp_path, turns, monkeypatch):
    out = tmp_path / "out"
    write = []

    def stop(*_):
        write.append(None)
        if len(write) > 5:
            raise KeyboardInterrupt
        return original(*_)

    original = costs_step.write_costs
    monkeypatch.setattr(costs_step, "write_costs", stop)
    with pytest.raises(KeyboardInterrupt):
        measure_methods(read_experiments(path), out)
    monkeypatch.setattr(costs_step, "write_costs", original)
    assert {each.method: len(each.rounds) for each in read_costs(out)} == {"full": 1, "lora": 1, "cacnn": 1, "heads": 2}
    turns.clear()
    done = measure_methods(read_experiments(path), out)
    assert turns == ["cacnn", "lora", "full-lr0.001", "full-lr0.001", "lora", "cacnn", "heads"]
    turns.clear()
    assert measure_methods(read_experiments(path), out) == done
    assert turns == []


def test_what_is_kept_is_said_in_place_of_rounds_that_are_not_measured(path, tmp_path, turns, monkeypatch):
    out, experiments, first, rest, again = tmp_path / "out", read_experiments(path), *(Listener() for _ in range(3))
    monkeypatch.setattr("benchmarks.costs.ROUNDS", 1)
    measure_methods(experiments, out, first)
    monkeypatch.setattr("benchmarks.costs.ROUNDS", 3)
    measure_methods(experiments, out, rest)
    turns.clear()
    monkeypatch.setattr("benchmarks.costs.load_encoder", None)  # nor is there a turn to warm up
    measure_methods(experiments, out, again)
    assert first.said == ["round 1 of 1"]
    assert rest.said == [f"4 of 12 turns are in {out / 'costs'} already", "round 2 of 3", "round 3 of 3"]
    assert again.said == [f"all 12 turns are in {out / 'costs'} already; delete it to measure again"]
    assert turns == []


def test_a_rows_size_is_the_one_that_its_record_has(path, tmp_path, one_round):
    experiments = read_experiments(path)
    costs = {each.method: each for each in measure_methods(experiments, tmp_path / "out")}
    for method, experiment in one_rate_each(experiments).items():
        for record in run(experiment, tmp_path / "runs" / method):
            size = costs[method].rows[record.model_family]
            assert size.parameters == record.parameters
            assert size.ship_bytes == record.efficiency.ship_bytes
            inference = record.efficiency.inference
            assert size.operations == pytest.approx(inference.operations / inference.windows)


def test_what_a_method_costs_is_measured_on_the_windows_of_its_steps(path, tmp_path, monkeypatch, one_round):
    monkeypatch.setattr(costs_step, "SIZES", {"cpu": costs_step.Size(6, 2, 3, 1, 32, 1)})
    seen, original = [], costs_step.tune_together

    def noting(context, encoder, output):
        for checkpoint in original(context, encoder, output):
            seen.append((len(context.train), checkpoint.costs))
            yield checkpoint

    monkeypatch.setattr(costs_step, "tune_together", noting)
    (costs,) = measure_methods(read_experiments(path, ["variant=lora"]), tmp_path / "out")
    assert costs.num_windows == 3 * 2
    (windows, warm), (_, whole) = seen[:2]
    assert windows == 6  # of as many questions, out of eight
    first = costs.rounds[0].tuning
    assert first.seconds == pytest.approx((whole.seconds - warm.seconds) / 6)
    assert first.data_seconds == pytest.approx((whole.data_seconds - warm.data_seconds) / 6)
    assert first.peak_process_bytes == whole.peak_process_bytes


def test_a_row_answers_so_many_windows_as_often_as_its_device_allows(path, tmp_path, monkeypatch, one_round):
    monkeypatch.setattr(costs_step, "SIZES", {"cpu": costs_step.Size(6, 1, 1, 1, 5, 3)})
    answered, original = [], MeasuredModel.run

    def noting(subject, batches):
        answered.append(sum(len(rows) for rows in batches))
        return original(subject, batches)

    monkeypatch.setattr(MeasuredModel, "run", noting)
    measure_methods(read_experiments(path, ["variant=lora"]), tmp_path / "out")
    passes, one_by_one = answered[:4], answered[4:-1]  # the last is that in which operations are counted
    assert passes == [5] * (1 + 3)  # one to warm up
    assert one_by_one == [1] * (8 * (1 + 3))  # dev has eight windows


def test_the_encoder_that_methods_start_from_stays_as_it_is(path, tmp_path, monkeypatch, one_round):
    loaded = []
    monkeypatch.setattr("benchmarks.costs.load_encoder", lambda name: loaded.append(load_encoder(name)) or loaded[0])
    experiments = read_experiments(path, ["variant=heads"])
    measure_methods(experiments, tmp_path / "out")
    plain = load_encoder(experiments[0].encoder).model.state_dict()
    used = loaded[0].model.state_dict()
    assert used.keys() == plain.keys()
    assert all(torch.equal(used[name], value) for name, value in plain.items())


def test_an_encoder_as_given_has_heads_alone(path, tmp_path, one_round):
    (costs,) = measure_methods(
        read_experiments(path, ["variant=heads", "tune=null", "finetune.fractions=[]"]), tmp_path / "out"
    )
    assert costs.tuning is None
    assert costs.heads.seconds > 0
    assert list(costs.rows) == ["learned_pooling", "ladder"]


def test_rows_of_texts_are_measured_too(tmp_path, saved_encoder, monkeypatch, one_round):
    table = tmp_path / "train.csv"
    lines = [f"{place},{text},{text}" for place, text in enumerate(["river", "stone"] * 4)]
    table.write_text("\n".join(["id,text,label", *lines]) + "\n")
    settings = {
        "task": "classification",
        "data": {"train": str(table), "dev": str(table), "columns": {"text": "text", "label": "label"}},
        "encoder": str(saved_encoder),
        "windows": {"max_length": 16},
        "finetune": {"fractions": [1], "batch": {"windows": 2}},
        "heads": {"train": ["learned_pooling", "last_linear"]},
        "device": "cpu",
    }
    path = tmp_path / "rows.yaml"
    path.write_text(json.dumps(settings))
    read, open_alone = {}, costs_step.open_alone

    def noting(encoder, config, head, *rest):
        read[config.name] = head.layers
        return open_alone(encoder, config, head, *rest)

    monkeypatch.setattr(costs_step, "open_alone", noting)
    (costs,) = measure_methods(read_experiments(path), tmp_path / "out")
    assert list(costs.rows) == ["encoder", "learned_pooling", "last_linear", "last_regression"]
    assert read == dict.fromkeys(["output", "learned_pooling", "last_linear", "last_regression"])  # of means: the last
    assert (costs.experiment, costs.method) == ("rows", None)


@pytest.fixture
def pairs(tmp_path, saved_encoder, monkeypatch):
    """A file of two variants on a table of few pairs, one more than a turn's sample keeps."""
    table = tmp_path / "train.csv"
    lines = [f"river,{text},{text}" for text in ["river", "stone"] * 6 + ["river"]]
    table.write_text("\n".join(["one,other,label", *lines]) + "\n")
    settings = {
        "task": "classification",
        "data": {"train": str(table), "dev": str(table), "columns": {"text": ["one", "other"], "label": "label"}},
        "encoder": str(saved_encoder),
        "windows": {"max_length": 16},
        "heads": {"train": ["learned_pooling"]},
        "device": "cpu",
        "variants": {"wide": {"heads": {"train": ["regression"]}}, "slim": {}},
    }
    path = tmp_path / "pairs.yaml"
    path.write_text(json.dumps(settings))
    monkeypatch.setitem(costs_step.SIZES, "cpu", costs_step.SIZES["cpu"]._replace(examples=12, answered=4))
    return path


def test_few_pairs_are_measured_as_a_run_reads_them_frozen_and_compared(pairs, tmp_path, one_round):
    costs = measure_methods(read_experiments(pairs), tmp_path / "out")
    assert [list(each.rows) for each in costs] == [
        ["regression", "last_regression"],
        ["learned_pooling", "last_regression"],
    ]
    assert {each.settings["states"]["pooling"] for each in costs} == {"pair_difference"}
    assert [each.tuning for each in costs] == [None, None]


def test_whether_the_encoder_is_tuned_depends_on_all_rows_and_not_on_a_sample(pairs, tmp_path, one_round):
    overrides = ["variant=slim", "finetune.min_rows=13", "finetune.min_steps=0", "heads.min_steps=0"]
    (costs,) = measure_methods(read_experiments(pairs, overrides), tmp_path / "out")
    assert (costs.tuning is not None, costs.settings["states"]["pooling"]) == (True, "mean")


def test_methods_that_see_other_windows_or_were_measured_otherwise_are_refused(path, tmp_path, turns):
    experiments = read_experiments(path)
    longer = experiments[2].model_copy(update={"encoder": "another"})
    with pytest.raises(Exception, match=r"full and lora cannot be measured side by side: encoder was"):
        measure_methods([experiments[0], longer], tmp_path / "out")
    out = tmp_path / "again"
    measure_methods(read_experiments(path, ["variant=lora"]), out)
    with pytest.raises(Exception, match=r"lora.json: measured differently \(settings.finetune.batch.windows was 2"):
        measure_methods(read_experiments(path, ["variant=lora", "finetune.batch={windows: 4}"]), out)
    measure_methods(read_experiments(path, ["variant=lora", "finetune.lr=0.5", "seeds=[3]"]), out)


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"batch": {"windows": 4}}, r"finetune.batch.windows was 2 and is now 4"),
        ({"accumulate": 2}, r"accumulate was 1"),
    ],
)
def test_methods_that_see_windows_in_other_batches_are_refused(path, tmp_path, turns, own, named):
    settings = json.loads(path.read_text())
    settings["variants"]["lora"]["finetune"] = own
    path.write_text(json.dumps(settings))
    with pytest.raises(
        SettingsError, match=rf"full and lora cannot be .*{named}.*share .*finetune.batch.*--set KEY=VALUE"
    ):
        measure_methods(read_experiments(path), tmp_path / "out")
    alike = ["finetune.batch.windows=4", "finetune.accumulate=1"]  # as the message says
    assert len(measure_methods(read_experiments(path, alike), tmp_path / "out")) == len(VARIANTS)


def test_the_report_shows_costs_of_one_run_in_place_of_the_records_own(path, tmp_path, one_round):
    out = tmp_path / "out"
    call = CliRunner().invoke
    common = [str(path), "--quiet", "--out", str(out), "--set", "variant=heads", "--set", "finetune.fractions=[1]"]
    assert call(app, ["run", *common, "--set", "variant=lora"]).exit_code == 0
    bench = typer.Typer()
    bench.command()(run_named)
    measured = call(bench, ["costs", "--set", f"config={path}", *common[1:]])
    assert measured.exit_code == 0, measured.output
    assert "heads:ladder" in measured.output
    assert max(len(line) for line in measured.output.splitlines() if "costs:" not in line) <= 80
    shown = call(studies_app, ["report", str(out), "--out", str(tmp_path / "shown")])
    assert shown.exit_code == 0, shown.output
    assert "measured in turns" in (tmp_path / "shown" / "report.md").read_text()
    assert "measured in turns" in (tmp_path / "shown" / "report.html").read_text()


def test_costs_without_an_experiment_say_how_to_name_one(tmp_path):
    with pytest.raises(SettingsError, match="--set config=mine.yaml"):
        bench_costs(["finetune.lr=1e-3"], tmp_path)


def test_costs_change_no_score(path, tmp_path, one_round):
    experiments = read_experiments(path, ["variant=lora"])
    records = run(experiments[0], tmp_path / "run")
    changed = with_costs(records, measure_methods(experiments, tmp_path / "out"))
    assert [each.scores for each in changed] == [each.scores for each in records]
    assert all(each.seconds != old.seconds for each, old in zip(changed, records, strict=True))
