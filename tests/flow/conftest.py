"""What the whole line is run on."""

import json

import pytest


@pytest.fixture(scope="module")
def saving_always(saved_encoder, tmp_path_factory):
    """Settings of a run that saves progress after every step, and keeps states in memory while heads learn twice."""
    qas = [{"id": f"q{n}", "question": "when?", "answers": [{"text": "1887", "answer_start": 22}]} for n in range(8)]
    content = {"data": [{"paragraphs": [{"context": "the weir was built in 1887", "qas": qas}]}]}
    data = tmp_path_factory.mktemp("data") / "data.json"
    data.write_text(json.dumps(content))
    return {
        "name": "tiny",
        "data": {"train": str(data), "dev": str(data)},
        "encoder": str(saved_encoder),
        "windows": {"max_length": 24, "stride": 4},
        "device": "cpu",
        "finetune": {"fractions": [0.5, 1], "batch": {"windows": 4}, "lr": 1e-3, "save_every": 1e-9},
        "heads": {"train": ["last_linear"], "batch": {"windows": 4}, "epochs": 2, "save_every": 1e-9},
        "states": "memory",
    }
