"""The whole pre-training on invented text: its encoder loads, what was stopped goes on to the same loss."""

import json
import shutil
import signal
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from faults import KilledError, content_of, disk_full, killed, watched
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertForPreTraining,
    BertTokenizerFast,
    MPNetConfig,
    MPNetModel,
)
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.encoder.load import load_encoder
from bertvision.encoder.tuning.adapter_file import save_adapters
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import tune
from bertvision.errors import BertVisionError, EncoderError, FolderError, SettingsError
from bertvision.experiment import read_experiments
from bertvision.pretraining.config import build_pretraining, read_pretraining
from bertvision.pretraining.corpus import Vocabulary, prepare_corpus
from bertvision.pretraining.model import build_model, flops_of, losses_of, total_loss, with_size_of_encoder
from bertvision.pretraining.pretrain import Position, StepSource, packs_rows, pretrain
from bertvision.progress import Silent
from bertvision.settings import CONFIGS
from bertvision.training.device import Compute

OBJECTIVES = ("mlm_nsp", "mlm", "ltr")
SHIPPED = sorted((CONFIGS / "pretrain").glob("*.yaml"))


def lines_of(out):
    return [json.loads(line) for line in (out / "training.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_encoder_learns_and_loads(make_config, tmp_path, objective):
    out = tmp_path / "out"
    config = make_config(
        objective=objective, checkpoints=[5], stages=[{"length": 32, "steps": 60, "batch_tokens": 256}]
    )
    record = pretrain(config, out)
    assert record.loss.words < np.log(120) - 0.3  # what guessing any of 120 words costs
    assert (record.loss.pairs is not None) == (objective == "mlm_nsp")
    assert record.tokens > 0.7 * 60 * 256
    model, tokenizer = AutoModel.from_pretrained(out / "encoder"), AutoTokenizer.from_pretrained(out / "encoder")
    assert model.config.is_decoder == (objective == "ltr")
    assert tokenizer.model_max_length == 64
    encoder = load_encoder(str(out / "encoder"))
    assert encoder.shape == (3, 16)
    assert (encoder.model.pooler is not None) == (objective == "mlm_nsp")
    early = load_encoder(str(out / "steps" / "5"))
    assert (early.model.embeddings.word_embeddings.weight != encoder.model.embeddings.word_embeddings.weight).any()


@pytest.mark.parametrize("objective", ["mlm", "ltr"])
def test_words_that_the_context_gives_away_are_learned(make_config, tmp_path, objective):
    """Every document repeats one of sixteen words: each is known by its neighbours, and by nothing else."""
    words = [f"{first}{second}" for first in ("ba", "do", "ki", "lu") for second in ("me", "no", "ri", "su")]
    texts = [f"{' '.join([words[number % 16]] * 3)}. " * 40 for number in range(48)]
    (tmp_path / "words.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in texts))
    changes = {
        "data": {"train": str(tmp_path / "words.jsonl"), "held_out_every": 5, "folder": str(tmp_path / "words")},
        "vocabulary": {"encoder": str(save_words(tmp_path / "vocabulary", [".", *words]))},
        "size": {"layers": 2, "hidden": 32, "heads": 2, "positions": 32},
        "stages": [{"length": 32, "steps": 150, "batch_tokens": 512}],
        "optim": {"warmup": 0.1},
    }
    record = pretrain(make_config(**changes, lr=3e-3, dropout=0.0, objective=objective), tmp_path / "out")
    assert record.loss.words < 0.5  # one word in four is a point; of the others a guess costs log(16), 2.8


def save_words(folder, words) -> Path:
    """Write a tokenizer of whole words as an encoder's."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    BertTokenizerFast(vocab={name: number for number, name in enumerate(names)}).save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    return folder


def test_the_checkpoint_predicts_what_training_measured(make_config, tmp_path, cpu):
    config = make_config()
    record = pretrain(config, tmp_path / "out")
    prepared = prepare_corpus(config, tmp_path / "corpus")
    source = StepSource(config, prepared.held_out, prepared.vocabulary, packed=False)
    batches = source.held_out(1, 512)
    whole = BertForPreTraining.from_pretrained(tmp_path / "out" / "encoder").eval()
    words = pairs = 0.0
    for batch in batches:
        with torch.no_grad():
            output = whole(batch.inputs.ids, batch.inputs.mask.long(), batch.inputs.segments)
        logits = output.prediction_logits.flatten(0, 1)[batch.places]
        words += torch.nn.functional.cross_entropy(logits, batch.labels, reduction="sum").item()
        pairs += torch.nn.functional.cross_entropy(
            output.seq_relationship_logits, batch.follows, reduction="sum"
        ).item()
    assert words / sum(each.num_predicted for each in batches) == pytest.approx(record.loss.words, rel=1e-4)
    assert pairs / sum(each.size for each in batches) == pytest.approx(record.loss.pairs, rel=1e-4)


class Interrupting(Silent):
    """A progress that interrupts, as a terminal does, in the middle of a step."""

    def __init__(self, at):
        self._at, self._taken = at, 0

    @contextmanager
    def bar(self, what, total):
        yield self

    def advance(self, amount, note=None):
        self._taken += amount
        if self._taken == self._at:
            signal.raise_signal(signal.SIGINT)


class Telling(Silent):
    """Keeps what is said."""

    def __init__(self):
        self.lines = []

    def say(self, message):
        self.lines.append(message)


@pytest.mark.usefixtures("signals_act")
@pytest.mark.parametrize("stop_at", [5, 12, 13])
def test_a_stopped_pre_training_goes_on_to_the_same_loss(make_config, tmp_path, stop_at):
    config, out = make_config(), tmp_path / "stopped"
    whole = pretrain(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt) as caught:
        pretrain(config, out, Interrupting(stop_at))
    assert "the same run goes on from there" in caught.value.__notes__[0]
    assert not (out / "encoder").exists()
    resumed = pretrain(config, out)
    assert resumed.loss == whole.loss
    assert resumed.tokens == whole.tokens
    assert [each["loss"] for each in lines_of(out)] == [each["loss"] for each in lines_of(tmp_path / "whole")]
    assert not (out / "unfinished").exists()


@pytest.fixture
def goes_wrong_at(make_config, tmp_path):
    """Return a function: at which moments of a share of all a fault ends in another encoder, or another corpus."""

    def content():
        return content_of(tmp_path / "out" / "encoder"), content_of(tmp_path / "corpus")

    def clear():
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        shutil.rmtree(tmp_path / "corpus", ignore_errors=True)

    def find(fault, first, step):
        with watched(tmp_path) as watch:
            pretrain(make_config(), tmp_path / "out")
        whole, moments = content(), range(len(watch.operations))
        assert len(moments) > 50
        others = []
        for at in moments[first::step]:
            clear()
            with suppress(KilledError, OSError, SafetensorError, BertVisionError), watched(tmp_path, at, fault):
                pretrain(make_config(), tmp_path / "out")
            pretrain(make_config(), tmp_path / "out")
            if content() != whole:
                others.append(watch.operations[at])
        return others

    return find


@pytest.mark.parametrize("fault", [killed, disk_full])
def test_a_pre_training_that_ends_at_some_file_operations_goes_on_to_the_same_encoder(goes_wrong_at, fault):
    assert goes_wrong_at(fault, first=10, step=25) == []


@pytest.mark.faults
@pytest.mark.parametrize("share", range(4))
@pytest.mark.parametrize("fault", [killed, disk_full])
def test_a_pre_training_that_ends_at_any_file_operation_goes_on_to_the_same_encoder(goes_wrong_at, fault, share):
    assert goes_wrong_at(fault, first=share, step=4) == []


def test_what_is_finished_is_kept_and_other_settings_are_refused(make_config, tmp_path):
    out = tmp_path / "out"
    first = pretrain(make_config(), out)
    assert pretrain(make_config(), out) == first
    with pytest.raises(FolderError, match="made by other settings"):
        pretrain(make_config(seed=2), out)


def test_a_checkpoint_that_is_asked_for_too_late_is_told(make_config, tmp_path):
    told = Telling()
    pretrain(make_config(checkpoints=[5]), tmp_path / "out", told)
    assert not any("checkpoints" in line for line in told.lines)
    pretrain(make_config(checkpoints=[3, 5]), tmp_path / "out", told)
    assert told.lines[-1].startswith("step 3 was over before `checkpoints` named it")


def test_what_is_finished_is_not_taken_for_an_encoder_of_another_text(make_config, text_file, tmp_path):
    out = tmp_path / "out"
    config = make_config(data={"train": str(text_file)})
    first = pretrain(config, out)
    before = text_file.read_text()
    text_file.write_text(before * 2)
    with pytest.raises(FolderError, match="data: made by other settings"):
        pretrain(config, out)
    text_file.unlink()  # a text that is gone is no other one
    assert pretrain(config, out) == first


def going_on_from(make_config, encoder, **changes):
    """Settings that leave the weights all but as they are."""
    own = make_config().model_dump(exclude={"size", "vocabulary"})
    data = {**own["data"], "folder": None}
    return build_pretraining({**own, "data": data, "encoder": str(encoder), "lr": 1e-12, **changes}, "test")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_training_goes_on_from_an_encoder_with_its_size_vocabulary_and_predictions(make_config, tmp_path, objective):
    first = pretrain(make_config(objective=objective), tmp_path / "first")
    encoder = tmp_path / "first" / "encoder"
    second = pretrain(going_on_from(make_config, encoder, objective=objective), tmp_path / "second")
    assert second.loss.words == pytest.approx(first.loss.words, rel=1e-4)
    assert second.config["size"] == {"layers": 2, "hidden": 16, "heads": 2, "feed_forward": 64, "positions": 64}
    assert second.parameters == first.parameters
    vocabularies = [load_encoder(str(tmp_path / out / "encoder")).tokenizer.get_vocab() for out in ("first", "second")]
    assert vocabularies[0] == vocabularies[1]
    assert "trained on from the weights of" in (tmp_path / "second" / "encoder" / "README.md").read_text()


def test_an_encoder_without_predictions_keeps_its_weights_and_learns_to_predict(make_config, saved_encoder, tmp_path):
    stages = [{"length": 32, "steps": 1, "batch_tokens": 256}]
    config = with_size_of_encoder(going_on_from(make_config, saved_encoder, objective="mlm", stages=stages))
    prepared = prepare_corpus(config, tmp_path / "corpus of encoder")
    begun, given = build_model(config, prepared.vocabulary), load_encoder(str(saved_encoder)).model.state_dict()
    assert all(torch.equal(weight, given[name]) for name, weight in begun.bert.state_dict().items())
    again = build_model(config, prepared.vocabulary)
    assert torch.equal(begun.transform.dense.weight, again.transform.dense.weight)  # drawn from the seed


def test_an_encoder_that_reads_left_to_right_may_go_on_in_both_directions(make_config, tmp_path):
    pretrain(make_config(objective="ltr"), tmp_path / "first")
    pretrain(going_on_from(make_config, tmp_path / "first" / "encoder", objective="mlm"), tmp_path / "second")
    assert not load_encoder(str(tmp_path / "second" / "encoder")).model.config.is_decoder


@pytest.mark.parametrize("key", ["size", "vocabulary"])
def test_an_encoder_to_go_on_from_has_size_and_vocabulary_of_its_own(make_config, key):
    with pytest.raises(SettingsError, match=f"`{key}` stands beside `encoder`, which has its own"):
        going_on_from(make_config, "default", **{key: {}})


def test_rows_must_fit_into_the_encoder_to_go_on_from(make_config, tmp_path):
    pretrain(make_config(), tmp_path / "first")
    stages = [{"length": 128, "steps": 1, "batch_tokens": 256}]
    with pytest.raises(SettingsError, match="rows of 128 tokens, and size.positions is 64"):
        pretrain(going_on_from(make_config, tmp_path / "first" / "encoder", stages=stages), tmp_path / "second")


def test_what_is_finished_is_not_taken_for_what_goes_on_from_another_encoder_under_the_same_name(make_config, tmp_path):
    first, out = tmp_path / "first", tmp_path / "second"
    pretrain(make_config(), first)
    config = going_on_from(make_config, first / "encoder")
    record = pretrain(config, out)
    assert pretrain(config, out) == record
    shutil.rmtree(first)
    pretrain(make_config(seed=2), first)
    with pytest.raises(FolderError, match="encoder: made by other settings .initial_encoder was "):
        pretrain(config, out)


@pytest.mark.parametrize("insert", ["houlsby:4", "lora:2"])
def test_what_was_inserted_into_an_encoder_is_not_left_out_in_silence(make_config, saved_encoder, tmp_path, insert):
    shutil.copytree(saved_encoder, tmp_path / "tuned")
    encoder = load_encoder(str(saved_encoder)).model
    tune(encoder, TuneConfig(train="none", insert=insert), seed=1)
    save_adapters(tmp_path / "tuned" / "adapters.safetensors", encoder)
    with pytest.raises(SettingsError, match="tuned' has adapters, LoRA or parasites in it, which would be lost"):
        pretrain(going_on_from(make_config, tmp_path / "tuned"), tmp_path / "out")


def test_layers_that_predict_and_do_not_fit_are_told_with_the_encoders_name(make_config, tmp_path):
    pretrain(make_config(), tmp_path / "first")
    path = tmp_path / "first" / "encoder" / "model.safetensors"
    weights = load_file(path)
    save_file({**weights, "cls.seq_relationship.bias": torch.zeros(3)}, path, metadata={"format": "pt"})
    (path.parent / "sha256.json").unlink()
    with pytest.raises(EncoderError, match="encoder '.*encoder': its layers that predict cannot be loaded: "):
        pretrain(going_on_from(make_config, path.parent), tmp_path / "second")


def test_an_encoder_of_another_kind_is_refused_before_anything_is_written(make_config, tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    save_words(tmp_path / "mpnet", ["ba"])
    MPNetModel(MPNetConfig(vocab_size=6, **sizes)).save_pretrained(tmp_path / "mpnet")
    with pytest.raises(SettingsError, match="is of the kind mpnet; give one of BERT's kind"):
        pretrain(going_on_from(make_config, tmp_path / "mpnet"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_steps_are_the_same_from_any_position(make_config, prepared):
    source = StepSource(make_config(), prepared.train, prepared.vocabulary, packed=False)
    steps = list(source.steps_from(Position()))
    assert len(steps) == 16
    assert [position.stage for position, _ in steps] == [0] * 12 + [1] * 4
    assert steps[-1][0].step == 16
    for place in (3, 11, 12):
        again = list(source.steps_from(steps[place - 1][0]))
        assert len(again) == 16 - place
        for (_, one), (_, other) in zip(steps[place:], again, strict=True):
            for left, right in zip(one[0].tensors(), other[0].tensors(), strict=True):
                assert torch.equal(left, right)


def test_masks_change_with_the_epoch(make_config, prepared):
    config = make_config(stages=[{"length": 32, "steps": 60, "batch_tokens": 4096}])
    steps = list(StepSource(config, prepared.train, prepared.vocabulary, packed=False).steps_from(Position()))
    assert steps[-1][0].epoch > 1
    firsts = [batches[0] for position, batches in steps if position.batch == 1]
    assert len({tuple(each.places.tolist()) for each in firsts}) == len(firsts)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_packed_and_padded_rows_have_the_same_loss_and_gradients(make_config, prepared, cpu, objective):
    found = []
    for packed in (False, True):
        config = make_config(objective=objective, dropout=0.0)
        model = build_model(config, prepared.vocabulary)
        source = StepSource(config, prepared.train, prepared.vocabulary, packed=packed)
        _, (batch,) = next(source.steps_from(Position()))
        assert (batch.shape is not None) == packed
        loss = total_loss(model, batch, cpu)
        loss.backward()
        found.append((loss.item(), {name: weight.grad for name, weight in model.named_parameters()}))
    (padded_loss, padded), (packed_loss, packed) = found
    assert packed_loss == pytest.approx(padded_loss, rel=1e-4)
    for name, gradient in padded.items():
        torch.testing.assert_close(packed[name], gradient, rtol=1e-3, atol=1e-5, msg=name)


def test_accumulated_batches_have_the_loss_of_one(make_config, prepared, cpu):
    config = make_config(dropout=0.0, accumulate=2, stages=[{"length": 32, "steps": 1, "batch_tokens": 512}])
    model = build_model(config, prepared.vocabulary).eval()
    _, batches = next(StepSource(config, prepared.train, prepared.vocabulary, packed=False).steps_from(Position()))
    assert len(batches) == 2
    losses = [losses_of(model, batch, cpu) for batch in batches]
    alone = [losses_of(model, batch._replace(weights=torch.ones_like(batch.weights)), cpu) for batch in batches]
    expected = sum(each.words for each in alone) / sum(each.num_predicted for each in batches)
    torch.testing.assert_close(sum(each.words for each in losses), expected)


def test_many_predictions_are_made_in_parts_with_the_same_gradients(make_config, prepared, cpu, monkeypatch):
    found = []
    for at_once in (16_384, 50):
        monkeypatch.setattr("bertvision.pretraining.model.PREDICTIONS_AT_ONCE", at_once)
        config = make_config(objective="ltr", dropout=0.0)
        model = build_model(config, prepared.vocabulary)
        _, (batch,) = next(StepSource(config, prepared.train, prepared.vocabulary, packed=False).steps_from(Position()))
        total_loss(model, batch, cpu).backward()
        found.append(model.bert.embeddings.word_embeddings.weight.grad)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


def test_from_left_to_right_no_state_depends_on_later_tokens(make_config, tmp_path):
    pretrain(make_config(objective="ltr"), tmp_path / "out")
    model = load_encoder(str(tmp_path / "out" / "encoder")).model.eval()
    ids = torch.arange(10, 22)[None]
    changed = ids.clone()
    changed[0, 7] = 30
    with torch.no_grad():
        one, other = (model(input_ids=each).last_hidden_state[0] for each in (ids, changed))
    torch.testing.assert_close(one[:7], other[:7])
    assert (one[7:] - other[7:]).abs().max() > 1e-3


def test_operations_are_six_for_each_weight_and_token(make_config, prepared):
    model = build_model(make_config(), prepared.vocabulary)
    _, (batch,) = next(
        StepSource(make_config(), prepared.train, prepared.vocabulary, packed=False).steps_from(Position())
    )
    block = 4 * (16 * 16 + 16) + 2 * 16 * 64 + 64 + 16 + 4 * 16  # attention, feed-forward, two norms
    expected = 6 * 2 * block * sum(batch.lengths) + 6 * 16 * (16 + 120) * batch.num_predicted
    expected += 12 * 2 * 16 * sum(length**2 for length in batch.lengths)
    assert flops_of(model, batch) == pytest.approx(expected)


def test_documents_of_one_sentence_are_rows_of_their_own(make_config, tmp_path):
    lines = (json.dumps({"text": f"Ba do{'ki' * (n % 3)} lu me no ri su ta vo."}) + "\n" for n in range(60))
    (tmp_path / "short.jsonl").write_text("".join(lines))
    data = {"train": str(tmp_path / "short.jsonl"), "held_out_every": 10, "folder": str(tmp_path / "short")}
    names = ["ba", "do", "doki", "dokiki", "lu", "me", "no", "ri", "su", "ta", "vo", "."]
    words = {"encoder": str(save_words(tmp_path / "vocabulary", names))}
    record = pretrain(make_config(data=data, vocabulary=words), tmp_path / "out")
    assert record.train.documents == 54
    assert record.loss.pairs is not None


def test_the_command_pre_trains_and_says_what_came_out(tmp_path, make_config):
    config = make_config().model_dump(mode="json", exclude={"name"})
    (tmp_path / "mine.yaml").write_text(json.dumps(config))
    arguments = ["pretrain", str(tmp_path / "mine.yaml"), "--out", str(tmp_path / "out"), "--set", "lr=0.02"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert "16 steps" in shown.stdout
    assert f"encoder: {tmp_path / 'out' / 'encoder'}" in shown.stdout
    assert json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["config"]["lr"] == 0.02


@pytest.mark.parametrize(
    ("text", "objective", "message"),
    [
        ("Ba do ki. Lu me.", "mlm_nsp", "next sentences need a second document"),
        ("Ba", "mlm", "no document has 2 tokens"),
        ("", "mlm", "no text in it"),
    ],
)
def test_text_that_no_rows_can_be_made_of_ends_the_command_in_one_line(text, objective, message, make_config, tmp_path):
    (tmp_path / "one.txt").write_text(text)
    words = save_words(tmp_path / "vocabulary", ["ba", "do", "ki", "lu", "me", "."])
    config = make_config(
        data={"train": str(tmp_path / "one.txt")}, vocabulary={"encoder": str(words)}, objective=objective
    )
    (tmp_path / "mine.yaml").write_text(config.model_dump_json(exclude={"name"}))
    shown = CliRunner().invoke(app, ["pretrain", str(tmp_path / "mine.yaml"), "--out", str(tmp_path / "out"), "-q"])
    assert shown.exit_code == 2
    assert shown.stderr.startswith("error: ")
    assert message in shown.stderr
    assert shown.stderr.count("\n") == 1
    assert not {path.name for path in (tmp_path / "out").glob("*")} - {"data"}  # or no folder at all


def test_an_experiment_is_no_pre_training_nor_the_other_way_round():
    with pytest.raises(SettingsError, match="`task` belongs to an experiment; give it to `bertvision run`"):
        read_pretraining(Path("squad2/minilm"))
    with pytest.raises(SettingsError, match="`vocabulary` belongs to a pre-training; give it to `bertvision pretrain`"):
        read_experiments(Path("pretrain/tiny"))


def test_there_are_shipped_pre_trainings():
    assert {"tiny", "base"} <= {path.stem for path in SHIPPED}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_pre_trainings_are_valid(path):
    config = read_pretraining(path)
    assert config.name == path.stem
    assert path.read_text().startswith("# ")


@pytest.mark.flow
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_pre_trainings_run_through_in_small(path, make_config, text_file, tmp_path):
    own = yaml.safe_load(path.read_text())
    stages = [{**stage, "steps": 2, "batch_tokens": 1024} for stage in own["stages"]]
    small = ["size.layers=1", "size.hidden=16", "size.heads=2", "vocabulary.size=120"]
    if "encoder" in own:
        size = {"layers": 1, "hidden": 16, "heads": 2, "positions": 128}
        pretrain(make_config(size=size), tmp_path / "first")
        small = [f"encoder={tmp_path / 'first' / 'encoder'}"]
    data = [f"data.train=[{text_file}]", "data.held_out=[]", "data.held_out_every=5", f"stages={json.dumps(stages)}"]
    record = pretrain(read_pretraining(path, [*small, *data, "checkpoints=[1]", "device=cpu"]), tmp_path / "out")
    assert record.steps == 2 * len(stages)
    assert AutoModel.from_pretrained(tmp_path / "out" / "encoder").config.hidden_size == 16
    assert (tmp_path / "out" / "steps" / "1").is_dir()


# Table 6 of BERT's paper with the counts that it gives: 110 and 340 million, of the two that have names.
@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "millions"),
    [(3, 768, 12, None), (6, 768, 3, None), (6, 768, 12, None), (12, 768, 12, 110), (12, 1024, 16, None)]
    + [(24, 1024, 16, 340)],
)
def test_sizes_of_table_6_can_be_made(layers, hidden, heads, millions, make_config, tokenizer):
    size = {"layers": layers, "hidden": hidden, "heads": heads, "positions": 512}
    with torch.device("meta"):
        whole = build_model(make_config(size=size), Vocabulary(tokenizer)).whole
    words = (30_522 - len(tokenizer)) * hidden  # the paper's vocabulary in place of the test's
    assert (whole.config.num_hidden_layers, whole.config.num_attention_heads) == (layers, heads)
    assert whole.config.intermediate_size == 4 * hidden
    if millions is not None:
        assert (whole.num_parameters() + words) / 1e6 == pytest.approx(millions, rel=0.02)  # 336 are called 340


@pytest.mark.gpu
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_gpu_replays_packed_steps_to_the_same_held_out_loss(make_config, tmp_path, objective):
    size = {"layers": 2, "hidden": 64, "heads": 2, "positions": 64}
    changes = {"objective": objective, "size": size, "dropout": 0.0, "lr": 1e-3}
    stages = [{"length": 32, "steps": 40, "batch_tokens": 1024}, {"length": 64, "steps": 10, "batch_tokens": 1024}]
    on_cpu = pretrain(make_config(**changes, stages=stages), tmp_path / "cpu")
    on_gpu = pretrain(make_config(**changes, stages=stages, device="cuda"), tmp_path / "gpu")
    assert on_gpu.provenance.precision == "bf16"
    assert on_gpu.loss.words == pytest.approx(on_cpu.loss.words, rel=0.02)  # bf16 has eight bits


@pytest.mark.gpu
@pytest.mark.usefixtures("signals_act")
def test_a_stopped_gpu_goes_on_to_the_same_loss(make_config, tmp_path):
    changes = {"device": "cuda", "size": {"layers": 2, "hidden": 64, "heads": 2, "positions": 64}, "lr": 1e-3}
    whole = pretrain(make_config(**changes), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        pretrain(make_config(**changes), tmp_path / "stopped", Interrupting(9))
    resumed = pretrain(make_config(**changes), tmp_path / "stopped")
    assert resumed.loss.words == pytest.approx(whole.loss.words, rel=1e-3)  # steps before a graph round otherwise


def test_packed_steps_are_for_gpus_in_bf16_unless_they_are_asked_for(make_config):
    cpu, gpu = Compute(torch.device("cpu"), torch.float32), Compute(torch.device("cuda"), torch.bfloat16)
    assert [packs_rows(make_config(), each) for each in (cpu, gpu, gpu._replace(dtype=torch.float32))] == [
        *(False, True, False)
    ]
    assert packs_rows(make_config(step_mode="packed"), cpu)
    assert not packs_rows(make_config(step_mode="eager"), gpu)


def test_one_source_may_stand_without_brackets():
    assert build_pretraining({"data": {"train": "a.txt", "held_out": "b.txt"}}).data.train == ("a.txt",)
