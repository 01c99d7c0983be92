"""Starting several processes, and what one alone does; two that train together: tests/flow/test_processes.py."""

import sys

import pytest
import torch

from bertvision.errors import SettingsError, TrainingError
from bertvision.experiment import build_experiment
from bertvision.steps.finetune import check_sharding
from bertvision.training.processes import ALONE, Processes, join_processes, launch

DATA = {"train": "train.jsonl", "dev": "dev.jsonl"}
RANK = "import os; rank = int(os.environ['RANK'])"


def python(text):
    return [sys.executable, "-c", f"{RANK}; {text}"]


def test_every_process_knows_its_rank_and_how_many_there_are(tmp_path):
    text = f"open(r'{tmp_path}/' + str(rank), 'w').write(os.environ['WORLD_SIZE'] + os.environ['LOCAL_RANK'])"
    assert launch(3, python(text)) == 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"0": "30", "1": "31", "2": "32"}


def test_the_main_processs_code_is_the_commands():
    assert launch(2, python("raise SystemExit(2)")) == 2


def test_when_one_process_is_killed_the_others_are_ended():
    waits = "import signal, time; signal.pause() if rank == 0 else os.kill(os.getpid(), signal.SIGKILL)"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertvision.training.processes.SECONDS_TO_END", 0.1)
        with pytest.raises(TrainingError, match=r"process 1 of 2 was killed \(signal 9\); the same command goes on"):
            launch(2, python(waits))


def test_one_process_alone_has_everything_and_decides_by_itself():
    tensor = torch.tensor([1.0, 2.0])
    ALONE.add_up([tensor])
    ALONE.wait()
    assert tensor.tolist() == [1, 2]
    assert ALONE.agreed(lambda: "yes") == "yes"
    assert list(ALONE.own([1, 2, 3])) == [1, 2, 3]


def test_of_several_processes_each_has_items_of_its_own():
    dealt = [list(Processes(rank, 3).own(range(8))) for rank in range(3)]
    assert dealt == [[0, 3, 6], [1, 4, 7], [2, 5]]


@pytest.mark.parametrize(
    ("variable", "name"), [("DEEPSPEED", "DeepSpeed"), ("MEGATRON_LM", "Megatron-LM"), ("PARALLELISM_CONFIG", "a para")]
)
def test_other_ways_to_split_an_encoder_than_fsdp_are_refused(monkeypatch, variable, name):
    monkeypatch.setenv(f"ACCELERATE_USE_{variable}", "true")  # as `accelerate launch --use_deepspeed` sets it
    with pytest.raises(SettingsError, match=rf"^{name}.* is not supported; .* --use_fsdp --fsdp_version 2"):
        join_processes(torch.device("cpu"))


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("VERSION", "1", "set fsdp_version: 2"),
        ("OFFLOAD_PARAMS", "true", "fsdp_offload_params is not supported; leave it out"),
        ("RESHARD_AFTER_FORWARD", "false", "fsdp_reshard_after_forward: false is not supported; set it to true"),
        ("ACTIVATION_CHECKPOINTING", "true", "set finetune.gradient_checkpointing=true"),
        ("IGNORED_MODULES", "embeddings", "fsdp_ignored_modules is not supported; leave it out"),
    ],
)
def test_settings_of_fsdp_that_would_have_no_effect_are_refused_before_others_are_met(
    monkeypatch, setting, value, said
):
    asked = {"WORLD_SIZE": "2", "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", f"FSDP_{setting}": value}
    for variable, given in {"FSDP_CPU_RAM_EFFICIENT_LOADING": "true", **asked}.items():
        monkeypatch.setenv(variable, given)
    with pytest.raises(SettingsError, match=said):
        join_processes(torch.device("cpu"), can_shard=True)


def test_fsdp_is_refused_where_no_encoder_is_fine_tuned_such_as_in_pre_training(monkeypatch):
    for variable, given in {"WORLD_SIZE": "2", "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}.items():
        monkeypatch.setenv(variable, given)
    with pytest.raises(SettingsError, match="FSDP splits encoders that are fine-tuned, and no others"):
        join_processes(torch.device("cpu"))


@pytest.mark.parametrize(
    ("finetune", "said"),
    [({"objective": "contrastive"}, "finetune.objective: contrastive"), ({"bottom": "disk"}, "finetune.bottom: disk")],
)
def test_what_needs_the_whole_encoder_in_one_process_is_refused_where_it_is_split(finetune, said):
    experiment = build_experiment({"name": "x", "task": "classification", "data": DATA, "finetune": finetune})
    with pytest.raises(SettingsError, match=f"FSDP splits the encoder, and {said} needs all of it"):
        check_sharding(experiment)
