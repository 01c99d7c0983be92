"""Starting several processes, and what one alone does; two that train together: tests/flow/test_processes.py."""

import sys

import pytest
import torch

from bertvision.errors import SettingsError, TrainingError
from bertvision.training.distributed import ALONE, Processes, join_processes, launch

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
        patch.setattr("bertvision.training.distributed.SECONDS_TO_END", 0.1)
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
    ("variable", "name"),
    [("FSDP", "FSDP"), ("DEEPSPEED", "DeepSpeed"), ("MEGATRON_LM", "Megatron-LM"), ("PARALLELISM_CONFIG", "a para")],
)
def test_what_would_split_an_encoder_over_processes_is_refused_with_what_to_do_instead(monkeypatch, variable, name):
    monkeypatch.setenv(f"ACCELERATE_USE_{variable}", "true")  # as `accelerate launch --use_fsdp` sets it
    with pytest.raises(SettingsError, match=f"^{name}.* is not supported, .*finetune.gradient_checkpointing=true"):
        join_processes(torch.device("cpu"))
