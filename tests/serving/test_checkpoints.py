"""Checkpoints that transformers fine-tuned: loaded with their output layer, equal to transformers' own forward."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedTokenizerFast,
)
from typer.testing import CliRunner

import bertvision
from bertvision.cli import app
from bertvision.data.example import Question, Sentence
from bertvision.data.split import write_squad
from bertvision.encoder.load import load_encoder
from bertvision.errors import BertVisionError, EncoderError, FolderError, SettingsError
from bertvision.heads.checkpoint_head import CLASSES, NEVER
from bertvision.model_folder import load_model, read_model_config
from bertvision.serving.predict import predict_file

with warnings.catch_warnings():  # DeBERTa's code in transformers uses what torch will drop
    warnings.simplefilter("ignore", DeprecationWarning)
    import transformers.models.deberta.modeling_deberta
    import transformers.models.deberta_v2.modeling_deberta_v2  # noqa: F401

AUTO = {
    "questions": AutoModelForQuestionAnswering,
    "texts": AutoModelForSequenceClassification,
    "tokens": AutoModelForTokenClassification,
}
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 130,
}
# What the published checkpoints of a kind have, where it is not their config's default.
MORE = {
    "albert": {"embedding_size": 16},
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0},
    "deberta-v2": {  # version 3: `microsoft/deberta-v3-base`
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_buckets": 16,
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "electra": {"embedding_size": 16},
    "modernbert": {
        "local_attention": 16,
        "global_attn_every_n_layers": 2,
        **dict.fromkeys(("bos_token_id", "cls_token_id"), 2),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), 3),
    },
}
BYTES = ("camembert", "roberta", "xlm-roberta")  # whose rows are <s> a </s></s> b </s>, without token types
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}  # float32, the same sums in another order
NAMES = ("LABEL_0", "LABEL_1", "LABEL_2")  # transformers' own
LABELS = ("O", "B-PER", "I-PER")
CONTEXT = "the weir was built in 1887 by hannah coyle, and the stone by the river was there"


@pytest.fixture(scope="session")
def byte_tokenizer():
    """RoBERTa's layout with bytes as tokens."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bare = Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, [], unk_token="<unk>"))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"}
    inputs = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=bare, model_input_names=inputs, unk_token="<unk>", **names)


@pytest.fixture(scope="session")
def make_checkpoint(tokenizer, byte_tokenizer, tmp_path_factory):
    """Write a checkpoint with random weights as transformers does; gives a function of model type and purpose."""

    def make(kind="bert", purpose="questions", **settings):
        pieces = byte_tokenizer if kind in BYTES else tokenizer
        more = {"type_vocab_size": 1} if kind in BYTES else {"pad_token_id": 0}
        given = {"vocab_size": len(pieces), **SIZES, **more, **MORE.get(kind, {}), **settings}
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = AUTO[purpose].from_config(AutoConfig.for_model(kind, **given))
            for weight in model.parameters():  # as far from zero as trained ones, biases too
                torch.nn.init.normal_(weight, std=0.2)
        folder = tmp_path_factory.mktemp("checkpoints") / kind
        model.save_pretrained(folder)
        pieces.save_pretrained(folder)
        return folder

    return make


def transformers_logits(folder, purpose, rows):
    """Return what transformers' own class gives for rows of ids: of every token, or of the row."""
    model = AUTO[purpose].from_pretrained(folder, attn_implementation="eager").eval()
    found = []
    for row in rows:
        with torch.no_grad():
            output = model(**{name: torch.as_tensor(values)[None] for name, values in row.items()})
        logits = torch.stack([output.start_logits, output.end_logits], -1) if purpose == "questions" else output.logits
        found.append(logits.numpy().reshape(-1, logits.shape[-1]))
    return found


def rows_of(windows, tokenizer):
    """Return windows as transformers takes them: ids and, where the tokenizer has them, token types."""
    has_types = "token_type_ids" in tokenizer.model_input_names
    return [
        {"input_ids": window.ids.astype(np.int64)}
        | ({"token_type_ids": (np.arange(len(window)) >= window.context_at).astype(np.int64)} if has_types else {})
        for window in windows
    ]


@pytest.mark.parametrize("kind", CLASSES)
def test_a_readers_logits_are_those_of_transformers_for_every_window_of_a_batch(kind, make_checkpoint):
    folder = make_checkpoint(kind)
    reader = bertvision.load(folder, device="cpu", precision="float32")
    asked = [("who built the weir?", CONTEXT), ("when?", " ".join([CONTEXT] * 10)), ("where was hannah?", "in 1887")]
    questions = [Question(str(number), *each, (), "") for number, each in enumerate(asked)]
    windows = reader.served.answering(questions).windows
    assert len(windows) > 3  # the long context needs several
    rows = rows_of(windows, reader.served.tokenizer)
    for own, expected in zip(
        reader.served.engine.logits(windows, 4096), transformers_logits(folder, "questions", rows), strict=True
    ):
        np.testing.assert_allclose(own, expected, **TOLERANCE)
    short = reader.served.tokenizer(*asked[0])  # transformers' own rows are ours
    assert short["input_ids"] == rows[0]["input_ids"].tolist()
    assert short.get("token_type_ids") in (None, rows[0].get("token_type_ids", np.zeros(0)).tolist())


@pytest.mark.parametrize("kind", CLASSES)
def test_a_classifiers_logits_are_those_of_transformers(kind, make_checkpoint):
    folder = make_checkpoint(kind, "texts", num_labels=3)
    model = bertvision.load(folder, device="cpu", precision="float32")
    texts, pair = ["the weir", CONTEXT], ("who built the weir?", "hannah coyle")
    tokenizer = model.served.tokenizer
    rows = [*(dict(tokenizer(text)) for text in texts), dict(tokenizer(*pair))]
    found = [*model(texts), model(*pair)]
    for own, expected in zip(found, transformers_logits(folder, "texts", rows), strict=True):
        shares = torch.softmax(torch.as_tensor(expected[0]), 0).tolist()
        assert own.probabilities == pytest.approx(dict(zip(NAMES, shares, strict=True)), abs=1e-5)


@pytest.mark.parametrize("kind", CLASSES)
def test_a_taggers_logits_are_those_of_transformers(kind, make_checkpoint):
    folder = make_checkpoint(kind, "tokens", id2label=dict(enumerate(LABELS)))
    tagger = bertvision.load(folder, device="cpu", precision="float32")
    words = ("hannah", "coyle", "built", "the", "weir")
    windows = tagger.served.answering([Sentence("0", words, None, 0), Sentence("1", words[:2], None, 1)]).windows
    rows = rows_of(windows, tagger.served.tokenizer)
    for row, window in zip(rows, windows, strict=True):
        row |= {"token_type_ids": np.zeros(len(window), np.int64)} if "token_type_ids" in row else {}
    for own, expected in zip(
        tagger.served.engine.logits(windows, 4096), transformers_logits(folder, "tokens", rows), strict=True
    ):
        np.testing.assert_allclose(own, expected, **TOLERANCE)
    assert tagger.served.config.labels == LABELS
    assert {word.tag for word in tagger("hannah coyle").words} <= set(LABELS)


def test_modernberts_classes_are_read_from_the_mean_where_its_config_says_so(make_checkpoint):
    folder = make_checkpoint("modernbert", "texts", num_labels=2, classifier_pooling="mean", norm_bias=True)
    model = bertvision.load(folder, device="cpu", precision="float32")
    row = dict(model.served.tokenizer(CONTEXT))
    ((expected,),) = transformers_logits(folder, "texts", [row])
    shares = torch.softmax(torch.as_tensor(expected), 0).tolist()
    assert list(model(CONTEXT).probabilities.values()) == pytest.approx(shares, abs=1e-5)


def test_one_label_is_a_number_and_several_problems_are_told_apart(make_checkpoint):
    number = bertvision.load(make_checkpoint("distilbert", "texts", num_labels=1), device="cpu")
    folder = number.served.folder
    ((expected,),) = transformers_logits(folder, "texts", [dict(number.served.tokenizer("the weir"))])
    assert number("the weir").label == pytest.approx(float(expected[0]), abs=1e-5)
    labels = {0: "wet", 1: "dry"}
    several = make_checkpoint(
        "roberta", "texts", id2label=labels, problem_type="multi_label_classification", classifier_dropout=0.5
    )
    model = bertvision.load(several, device="cpu")
    ((logits,),) = transformers_logits(several, "texts", [dict(model.served.tokenizer("the weir"))])
    shares = torch.sigmoid(torch.as_tensor(logits)).tolist()
    assert model("the weir").probabilities == pytest.approx({"wet": shares[0], "dry": shares[1]}, abs=1e-5)


@pytest.mark.parametrize(("kind", "purpose"), [("mpnet", "questions"), ("electra", "texts"), ("bert", "texts")])
def test_a_checkpoint_is_the_same_once_it_is_saved_or_exported(kind, purpose, make_checkpoint, tmp_path):
    model = bertvision.load(make_checkpoint(kind, purpose), device="cpu", precision="float32")
    model.save_pretrained(tmp_path / "saved")
    done = CliRunner().invoke(app, ["save", str(model.served.folder), "--onnx", "--out", str(tmp_path / "onnx")])
    assert done.exit_code == 0, done.output
    texts = ("who built the weir?", CONTEXT)
    expected = model(*texts)
    for place, tolerance in (("saved", 0.0), ("onnx", 1e-4)):
        found = bertvision.load(tmp_path / place, device="cpu", precision="float32")(*texts)
        assert found.probability == pytest.approx(expected.probability, abs=tolerance)
        if purpose == "questions":
            assert (found.text, found.start) == (expected.text, expected.start)
        else:
            assert found.probabilities == pytest.approx(expected.probabilities, abs=tolerance)
            assert bertvision.load(tmp_path / place, device="cpu")("the weir").label in NAMES
    card = (tmp_path / "saved" / "README.md").read_text()
    assert f"A checkpoint of transformers, `{model.served.config.head.name}`" in card


def test_calibrate_writes_beside_a_checkpoint_what_load_and_predict_use(make_checkpoint, questions, tmp_path):
    folder = tmp_path / "mine"
    shutil.copytree(make_checkpoint(), folder)
    data = tmp_path / "questions.json"
    write_squad(data, questions)
    assert bertvision.load(folder, device="cpu").served.calibration.threshold == 0.0
    command = ["calibrate", str(folder), "--data", str(data), "--write", "--json"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    fitted = json.loads(shown.stdout)["calibration"]
    assert bertvision.load(folder, device="cpu").served.calibration.model_dump() == fitted
    predicted = predict_file(folder, str(data)).predictions
    assert [each.text == "" for each in predicted] == [each.null_odds > fitted["threshold"] for each in predicted]


@pytest.mark.parametrize(
    ("card", "threshold"),
    [
        ("---\ndatasets:\n- squad\n---\n# A reader\n", NEVER),
        ("---\ndatasets:\n- squad\n- squad_v2\n---\n", 0.0),
        ("---\ndatasets: [rajpurkar/squad_v2]\n---\n", 0.0),
        ("# A reader\nas good as any on squad\n", 0.0),  # no front matter: nothing is known
    ],
)
def test_a_checkpoint_whose_card_names_squad_1_alone_never_abstains(card, threshold, make_checkpoint, tmp_path):
    folder = tmp_path / "mine"
    shutil.copytree(make_checkpoint(), folder)
    (folder / "README.md").write_text(card)
    reader = bertvision.load(folder, device="cpu")
    assert reader.served.calibration.threshold == threshold
    if threshold == NEVER:
        assert reader("who?", CONTEXT).no_answer_probability == pytest.approx(0.0)
        assert reader("who?", CONTEXT, null_threshold=-1000.0).text == ""


def test_predict_takes_a_checkpoints_labels_by_other_names(make_checkpoint, tmp_path):
    folder = make_checkpoint("albert", "texts", num_labels=3)
    table = tmp_path / "rows.csv"
    table.write_text("one,two,label\nthe weir,was built,no\nwho,hannah,yes\n")
    settings = {"data": {"columns": {"text": ["one", "two"]}, "labels": ["no", "maybe", "yes"]}}
    found = predict_file(folder, str(table), settings=settings)
    assert found.scores is not None
    numbers = [each.label for each in found.predictions]
    expected = bertvision.load(folder, device="cpu")(["the weir", "who"], ["was built", "hannah"])
    assert [NAMES[number] for number in numbers] == [each.label for each in expected]
    with pytest.raises(SettingsError, match=r"data\.labels has 2 names, and the model 3 labels"):
        predict_file(folder, str(table), settings={"data": {"labels": ["no", "yes"]}})


def test_a_checkpoint_of_the_hub_is_downloaded(make_checkpoint, squad_file, tmp_path, monkeypatch):
    folder, asked = make_checkpoint(), []

    def download(hub_id, allow_patterns, ignore_patterns, local_files_only):
        asked.append((hub_id, ignore_patterns))
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    command = ["predict", "hannah/weir", "--data", str(squad_file()), "--out", str(tmp_path / "answers")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert load_model(Path("hannah/weir")).config.head.name == "BertForQuestionAnswering"
    assert asked[0] == ("hannah/weir", ["*/*"])  # other formats lie in folders inside


def test_the_encoder_of_a_checkpoint_is_loaded_without_a_word(make_checkpoint, capfd, caplog):
    folder = make_checkpoint("deberta-v2", "texts")
    capfd.readouterr()
    encoder = load_encoder(str(folder))
    assert (capfd.readouterr(), caplog.text) == (("", ""), "")
    assert encoder.shape == (3, 32)


def change(folder, tmp_path, **settings):
    """Copy a checkpoint and change its config.json; None takes a setting away."""
    shutil.copytree(folder, tmp_path / "changed")
    path = tmp_path / "changed" / "config.json"
    content = {**json.loads(path.read_text()), **settings}
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))
    return tmp_path / "changed"


@pytest.mark.parametrize(
    ("purpose", "settings", "message"),
    [
        ("texts", {"id2label": {"0": "a"}}, "`id2label` does not name each of its 2 labels"),
        ("texts", {"id2label": {"0": "a", "1": "a"}}, "have the same name"),
        ("texts", {"id2label": ["a", "b"]}, "does not name each"),
        ("texts", {"problem_type": "guessing"}, "`problem_type` is 'guessing'; known: regression"),
        ("texts", {"problem_type": "regression"}, "2 numbers for a text"),
        ("questions", {"architectures": ["BertForTokenClassification"]}, r"lack 'classifier\.weight'"),
        ("tokens", {"architectures": ["BertForQuestionAnswering"]}, r"lack 'qa_outputs\.weight'"),
        ("tokens", {"architectures": ["BertForSequenceClassification"]}, "lack the encoder's pooler"),
    ],
)
def test_a_checkpoint_that_does_not_fit_its_config_is_refused_in_one_line(
    purpose, settings, message, make_checkpoint, tmp_path
):
    folder = change(make_checkpoint("bert", purpose), tmp_path, **settings)
    with pytest.raises(BertVisionError, match=message) as caught:
        bertvision.load(folder)
    assert "\n" not in str(caught.value)


def test_labels_without_names_have_those_of_transformers(make_checkpoint, tmp_path):
    folder = change(make_checkpoint("bert", "texts", num_labels=3), tmp_path, id2label=None, label2id=None)
    assert bertvision.load(folder).served.config.labels == NAMES


def test_an_architecture_whose_output_layer_is_not_known_is_refused_with_those_that_are(make_checkpoint):
    folder = make_checkpoint("nystromformer", "texts", num_landmarks=2, segment_means_seq_len=64)
    with pytest.raises(EncoderError, match="known for albert, bert, .* and not for 'nystromformer'; train heads on"):
        bertvision.load(folder)


def test_no_code_of_a_checkpoint_is_run_and_no_link_followed(make_checkpoint, tmp_path):
    folder = change(make_checkpoint(), tmp_path, auto_map={"AutoModelForQuestionAnswering": "own.Model"})
    (folder / "own.py").write_text("raise SystemExit('this was run')")
    assert bertvision.load(folder, device="cpu").has_null
    (tmp_path / "card").write_text("secret")
    (folder / "README.md").symlink_to(tmp_path / "card")
    with pytest.raises(FolderError, match="is a link to"):
        bertvision.load(folder)


def test_pickled_weights_are_refused_with_the_class_that_converts_them(make_checkpoint, tmp_path):
    folder = change(make_checkpoint(), tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(EncoderError, match=r"AutoModelForQuestionAnswering\.from_pretrained"):
        bertvision.load(folder)


def test_what_needs_a_model_of_ours_says_how_to_make_one_of_a_checkpoint(make_checkpoint):
    with pytest.raises(FolderError, match=r"save it as a model first \(`bertvision save`\)"):
        read_model_config(make_checkpoint())
