"""A pre-trained encoder is fine-tuned as any other; one that reads from left to right, also below a BiLSTM."""

import json

import pytest

from bertvision.errors import SettingsError
from bertvision.experiment import build_experiment
from bertvision.pretraining.pretrain import pretrain
from bertvision.stages.run import run

BILSTM = {"head": "bilstm_last", "readout_width": 8}


@pytest.fixture
def classes(tmp_path):
    path = tmp_path / "rows.csv"
    rows = [f"{'ba do' if number % 2 else 'ki lu'} me no,{'one' if number % 2 else 'two'}" for number in range(12)]
    path.write_text("\n".join(["text,label", *rows]))
    return str(path)


@pytest.fixture
def questions_file(tmp_path):
    context = "Ba do ki lu. Me no ri su."
    asked = [{"id": str(n), "question": "do?", "answers": [{"text": "ki", "answer_start": 6}]} for n in range(4)]
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"data": [{"title": "a", "paragraphs": [{"context": context, "qas": asked}]}]}))
    return str(path)


def use(encoder, data, task, out, pooling="last", **finetune):
    settings = {
        "task": task,
        "data": {"train": data, "dev": data},
        "encoder": str(encoder),
        "windows": {"max_length": 32, "stride": 8},
        "finetune": {"fractions": [2], "batch": {"windows": 4}, "min_rows": 0, "min_steps": 0, **finetune},
        "heads": {"train": ["learned_pooling"], "min_steps": 0, "baseline": False},
        "states": {"pooling": pooling},
        "device": "cpu",
    }
    return {record.model: record for record in run(build_experiment(settings), out)}


@pytest.mark.flow
@pytest.mark.parametrize(("objective", "head"), [("mlm_nsp", None), ("ltr", None), ("ltr", BILSTM)])
def test_a_pre_trained_encoder_is_fine_tuned(make_config, classes, questions_file, tmp_path, objective, head):
    pretrain(make_config(objective=objective), tmp_path / "bert")
    encoder = tmp_path / "bert" / "encoder"
    rows = use(encoder, classes, "classification", tmp_path / "rows", head=head)
    spans = use(encoder, questions_file, "squad1", tmp_path / "spans", head=head)
    assert 0 <= rows["encoder"].scores["accuracy"] <= 100
    assert 0 <= spans["encoder"].scores["f1"] <= 100
    tuned = json.loads((tmp_path / "rows" / "encoder" / "2" / "config.json").read_text())
    assert tuned.get("is_decoder", False) == (objective == "ltr")  # its mask stays


def test_the_first_token_of_an_encoder_that_reads_from_left_to_right_is_not_read(make_config, classes, tmp_path):
    pretrain(make_config(objective="ltr"), tmp_path / "bert")
    with pytest.raises(SettingsError, match="its first token has seen no other; set states.pooling=last"):
        use(tmp_path / "bert" / "encoder", classes, "classification", tmp_path / "rows", pooling="first")
