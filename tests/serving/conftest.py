import threading

import pytest
import torch
from torch import nn

import bertvision
from bertvision.data.example import ColumnsConfig, DataConfig
from bertvision.encoder.encode import shape_of_states
from bertvision.encoder.load import load_encoder
from bertvision.heads.build import build_head, pooling_of
from bertvision.heads.config import HeadConfig
from bertvision.model_folder import ModelConfig, save_encoder
from bertvision.predictions.prediction import AnswerConfig
from bertvision.records import Parameters, Provenance, RunRecord, Seconds
from bertvision.tasks import TASKS
from bertvision.training.checkpoint import fingerprint
from bertvision.training.objective import objective_of
from bertvision.windows.window import WindowConfig

WINDOWS = WindowConfig(max_length=20, stride=4, max_question_length=8)  # most contexts need several

TUNED = {"f1": 60.0, "tuned_threshold": 1.5, "temperature": 2.0}


def write_model(encoder, folder, task, labels, head, *, pair=False, windows=WINDOWS):
    """Write a MODEL_DIR with a head of random weights."""
    config, objective = HeadConfig.model_validate(head), objective_of(TASKS[task].kind, labels)
    shape = shape_of_states(encoder, pooling=pooling_of(config, objective))
    torch.manual_seed(0)
    built = build_head(config, shape, objective).eval()
    for weight in built.parameters():
        nn.init.normal_(weight, std=0.5)
    columns = ColumnsConfig(text=("one", "two") if pair else "text")
    model = ModelConfig(
        head=config,
        layers=shape.layers,
        hidden=shape.hidden,
        encoder=".",
        encoder_is_path=True,
        encoder_fingerprint=fingerprint(encoder.model),
        task=task,
        labels=labels,
        data=DataConfig(columns=columns) if task in ("classification", "multilabel") else DataConfig(),
        windows=windows,
        answers=AnswerConfig(max_answer_length=4, batch_tokens=64),
    )
    save_encoder(folder, encoder, built, model)
    return folder


@pytest.fixture
def make_folder(encoder, tmp_path):
    """Write a MODEL_DIR; gives a function of task, labels and head."""

    def make(task="squad2", labels=(), head="learned_pooling", *, place=None, **more):
        return write_model(encoder, tmp_path / (place or f"{task}-{head}"), task, labels, head, **more)

    return make


@pytest.fixture(scope="session")
def make_shared(saved_encoder, tmp_path_factory):
    """Write a MODEL_DIR for tests that change nothing of it; gives a function of task and labels."""

    def make(task="squad2", labels=(), **more):
        folder = tmp_path_factory.mktemp("models") / task
        return write_model(load_encoder(str(saved_encoder)), folder, task, labels, "learned_pooling", **more)

    return make


@pytest.fixture(scope="session")
def shared_reader(make_shared):
    """A reader for tests that change nothing of it."""
    return bertvision.load(make_shared(), device="cpu")


class Held:
    """A model that runs when it is let go, and counts its runs."""

    def __init__(self, served):
        self.served, self.started, self.go_on, self.num_runs = served, threading.Event(), threading.Event(), 0
        self._logits = served.engine.logits

    def logits(self, engine, windows, tokens, progress=None):
        self.num_runs += 1
        self.started.set()
        assert self.go_on.wait(timeout=30)
        return self._logits(windows, tokens)


@pytest.fixture
def held(shared_reader, monkeypatch):
    """Hold the shared reader's model; ask for the server first, which ends after this."""
    held = Held(shared_reader.served)
    monkeypatch.setattr(type(shared_reader.served.engine), "logits", lambda *given: held.logits(*given))
    yield held
    held.go_on.set()


@pytest.fixture
def make_record(encoder):
    """Return a function that makes a record of the tiny encoder's."""

    def make(row="learned_pooling", fraction=1.0, seed=1, scores=TUNED, seeds=(1, 2), weights=None):
        return RunRecord(
            experiment="weirs",
            task="squad2",
            model=row,
            kind="head",
            fraction=fraction,
            seed=seed,
            scores=scores,
            epoch_scores=[],
            parameters=Parameters(total=1, trainable=1, encoder=1),
            seconds=Seconds(finetune=1.0, heads=1.0, predict=1.0),
            schedule_horizon=1.0,
            data={},
            encoder_fingerprint=weights or fingerprint(encoder.model),
            config={"seeds": list(seeds)},
            provenance=Provenance(commit=None, dirty=None, device="cpu", precision="float32", python="3", versions={}),
        )

    return make
