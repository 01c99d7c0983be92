import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from transformers import BertTokenizerFast

from bertvision.data.documents import read_documents, sentences_of
from bertvision.errors import BertVisionError, DataError, FolderError, SettingsError
from bertvision.pretraining.config import CorpusConfig, VocabularyConfig, build_pretraining
from bertvision.pretraining.corpus import _parted, prepare_corpus, train_vocabulary
from bertvision.pretraining.pretrain import pretrain


def test_tokens_on_the_disk_are_those_of_the_documents(prepared, text_file):
    documents = list(read_documents([str(text_file)]))
    expected = [each for number, each in enumerate(documents, start=1) if number % 5]
    corpus, tokenizer = prepared.train, prepared.vocabulary.tokenizer
    assert corpus.num_documents == len(expected) == 16
    assert prepared.held_out.num_documents == 4
    sentences = [each for document in expected for each in sentences_of(document)]
    assert len(corpus.sentences) == len(sentences) + 1
    for start, stop, sentence in zip(corpus.sentences, corpus.sentences[1:], sentences, strict=False):
        assert corpus.ids[start:stop].tolist() == tokenizer(sentence, add_special_tokens=False)["input_ids"]
    assert set(corpus.documents) <= set(corpus.sentences)
    assert isinstance(corpus.ids, np.memmap)
    assert corpus.ids.dtype == np.uint16


def test_the_vocabulary_has_just_the_size_that_is_asked_for(prepared):
    assert prepared.vocabulary.size == 120
    assert prepared.vocabulary.tokenizer.convert_ids_to_tokens(list(range(5))) == [
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    ]
    assert 0 < prepared.vocabulary.continues.sum() < 120
    assert len(prepared.vocabulary.ordinary) == 115


def test_a_vocabulary_is_the_same_from_the_same_text():
    def read():
        return read_documents(["sample"])

    found = [train_vocabulary(read, VocabularyConfig(size=1000)).get_vocab() for _ in range(4)]
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize(("cased", "pieces"), [(False, ["weir"]), (True, ["Weir"])])
def test_a_vocabulary_may_tell_cases_apart(cased, pieces):
    letters = " ".join("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
    documents = ["Weir weir stone " * 20, f"{letters} " * 3, " ".join(f"w{n}x" for n in range(200)) + " " * 2] * 2
    tokenizer = train_vocabulary(lambda: [*documents, *documents], VocabularyConfig(size=150, cased=cased))
    assert tokenizer.tokenize("Weir") == pieces


def test_special_tokens_that_a_text_names_are_words_of_it(tmp_path):
    """A page about BERT that says [SEP] and [MASK] has neither rows' ends in it nor holes."""
    (tmp_path / "page.txt").write_text("Put [SEP] behind it. Then [MASK] a word. " * 20)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[", "]", "sep", "mask", "put", "it", ".", "word"]
    BertTokenizerFast(vocab={piece: number for number, piece in enumerate(vocabulary)}).save_pretrained(tmp_path / "of")
    settings = {"data": {"train": str(tmp_path / "page.txt")}, "vocabulary": {"encoder": str(tmp_path / "of")}}
    prepared = prepare_corpus(build_pretraining(settings), tmp_path / "corpus")
    pieces = [vocabulary[number] for number in prepared.train.ids]
    assert pieces[:6] == ["put", "[", "sep", "]", "[UNK]", "it"]
    assert {"mask", "sep"} <= set(pieces)
    assert not {"[SEP]", "[MASK]"} & set(pieces)


def test_what_was_made_is_not_made_again(make_config, tmp_path):
    first = prepare_corpus(make_config(), tmp_path / "corpus")
    told = []
    again = prepare_corpus(make_config(), tmp_path / "corpus", progress=_Told(told))
    assert not told
    np.testing.assert_array_equal(first.train.ids, again.train.ids)


def test_tokens_are_enough_where_the_text_is_gone(make_config, text_file, tmp_path):
    first = prepare_corpus(make_config(), tmp_path / "corpus")
    text_file.unlink()
    np.testing.assert_array_equal(prepare_corpus(make_config(), tmp_path / "corpus").train.ids, first.train.ids)


@pytest.mark.parametrize("gone", ["text.jsonl", "more"])
def test_tokens_are_enough_where_some_of_the_text_is_gone(make_config, text_file, tmp_path, gone):
    (tmp_path / "more").mkdir()
    shutil.copy(text_file, tmp_path / "more" / "more.jsonl")
    data = {"train": [str(text_file), str(tmp_path / "more")], "folder": str(tmp_path / "corpus")}
    first = prepare_corpus(make_config(data=data), tmp_path / "corpus")
    text_file.unlink() if gone == text_file.name else shutil.rmtree(tmp_path / gone)
    again = prepare_corpus(make_config(data=data), tmp_path / "corpus")
    np.testing.assert_array_equal(again.train.ids, first.train.ids)


class _Told:
    def __init__(self, lines):
        self._lines = lines

    def say(self, message):
        self._lines.append(message)

    def bar(self, what, total):
        raise AssertionError(what)


def test_other_text_under_the_same_name_is_refused(make_config, text_file, tmp_path):
    prepare_corpus(make_config(), tmp_path / "corpus")
    text_file.write_text(json.dumps({"text": "Other text."}) + "\n")
    with pytest.raises(FolderError, match=r"made by other settings \(bytes"):
        prepare_corpus(make_config(), tmp_path / "corpus")


@pytest.mark.parametrize(("documents", "held_out"), [(1, []), (2, [2]), (3, [3]), (4, [4]), (5, [4]), (9, [4, 8])])
def test_every_nth_document_is_held_out_or_of_fewer_the_last(tmp_path, documents, held_out):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": str(number + 1)}) + "\n" for number in range(documents)))
    parts = list(_parted(CorpusConfig(train=(str(path),), held_out_every=4)))
    assert [int(text) for _, text in parts] == list(range(1, documents + 1))
    assert [int(text) for name, text in parts if name == "held_out"] == held_out


def test_held_out_documents_may_have_files_of_their_own(make_config, text_file, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("Ba do ki lu. Me no ri.")
    folder = tmp_path / "second"
    config = make_config(data={"train": str(text_file), "held_out": str(other), "folder": str(folder)})
    prepared = prepare_corpus(config, folder)
    assert (prepared.train.num_documents, prepared.held_out.num_documents) == (20, 1)
    assert len(prepared.held_out.sentences) == 3


def test_held_out_files_in_a_folder_of_text_are_not_trained_on(make_config, text_file, tmp_path):
    books = tmp_path / "books"
    books.mkdir()
    text_file.rename(books / "train.jsonl")
    held_out = books / "held_out.jsonl"
    held_out.write_text('{"text": "Ba ba. Do do do."}\n')
    prepared = prepare_corpus(make_config(data={"train": f"{books}/", "held_out": str(held_out)}), tmp_path / "corpus")
    assert (prepared.train.num_documents, prepared.held_out.num_documents) == (20, 1)


def test_an_encoders_vocabulary_can_be_taken(make_config, saved_encoder, tokenizer, tmp_path):
    prepared = prepare_corpus(make_config(vocabulary={"encoder": str(saved_encoder)}), tmp_path / "taken")
    assert prepared.vocabulary.tokenizer.get_vocab() == tokenizer.get_vocab()


@pytest.mark.parametrize("cased", [False, True])
def test_cases_stay_told_apart_on_the_disk(make_config, tmp_path, cased):
    trained = prepare_corpus(make_config(vocabulary={"size": 120, "cased": cased}), tmp_path / "trained")
    folder = tmp_path / "trained" / "vocabulary"
    (folder / "config.json").write_text('{"model_type": "bert"}')
    taken = prepare_corpus(make_config(vocabulary={"encoder": str(folder)}), tmp_path / "taken")
    text = "Bado KILU"
    for prepared in (trained, taken):
        pieces = prepared.vocabulary.tokenizer.tokenize(text)
        assert pieces == trained.vocabulary.tokenizer.tokenize(text if cased else text.lower())
    assert (trained.vocabulary.tokenizer.tokenize(text) == trained.vocabulary.tokenizer.tokenize(text.lower())) != cased
    np.testing.assert_array_equal(trained.train.ids, taken.train.ids)


def refusal(config, folder):
    with pytest.raises(BertVisionError) as caught:
        prepare_corpus(config, folder)
    assert "\n" not in str(caught.value)
    assert not folder.exists()
    assert not [path for path in folder.parent.glob(".*") if not path.name.endswith("lock")]
    return str(caught.value)


def test_too_little_text_for_a_vocabulary_is_refused_and_leaves_nothing(make_config, tmp_path):
    assert "give more text, or `vocabulary.size=" in refusal(
        make_config(vocabulary={"size": 5000}), tmp_path / "corpus"
    )


@pytest.mark.parametrize("content", ["", "\n\n", '{"text": ""}\n'])
@pytest.mark.parametrize("is_given", [True, False])
def test_an_empty_corpus_is_refused_and_leaves_nothing(make_config, saved_encoder, tmp_path, content, is_given):
    (tmp_path / "empty.jsonl").write_text(content)
    vocabulary = {"encoder": str(saved_encoder)} if is_given else {"size": 120}
    config = make_config(data={"train": str(tmp_path / "empty.jsonl")}, vocabulary=vocabulary)
    assert "no text in it; give documents with words for data.train" in refusal(config, tmp_path / "corpus")


def test_a_vocabulary_that_the_text_cannot_give_is_not_proposed(make_config, tmp_path):
    (tmp_path / "few.txt").write_text("ba do ki lu. " * 20)
    told = refusal(make_config(data={"train": str(tmp_path / "few.txt")}), tmp_path / "corpus")
    assert told.endswith("and vocabulary.size is 120; give more text")  # 100 is the least that the setting takes


def test_held_out_files_without_text_are_refused(make_config, text_file, tmp_path):
    (tmp_path / "empty.txt").write_text(" ")
    config = make_config(data={"train": str(text_file), "held_out": str(tmp_path / "empty.txt")})
    assert "no text in it; give documents with words for data.held_out" in refusal(config, tmp_path / "corpus")


def test_a_binary_file_is_refused_and_leaves_nothing(make_config, tmp_path):
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)))
    assert "is not UTF-8 text" in refusal(
        make_config(data={"train": str(tmp_path / "binary.txt")}), tmp_path / "corpus"
    )


def test_a_vocabulary_without_word_pieces_is_refused(make_config, tmp_path):
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path / "bpe"
    specials = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE(vocab=specials, merges=[]))).save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    assert "has no word pieces; give an encoder of BERT's kind" in refusal(
        make_config(vocabulary={"encoder": str(folder)}), tmp_path / "corpus"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "`data`"),
        ({"data": {"train": []}}, "`data.train`"),
        ({"data": {"train": "a"}, "size": {"hidden": 10, "heads": 3}}, "no multiple of `heads`"),
        ({"data": {"train": "a"}, "size": {"positions": 128}}, "rows of 512 tokens, and size.positions is 128"),
        ({"data": {"train": "a"}, "stages": [{"length": 64, "steps": 1, "batch_tokens": 32}]}, "less than one row"),
        ({"data": {"train": "a"}, "checkpoints": [2_000_000]}, "names step 2000000"),
        ({"data": {"train": "a"}, "objectiv": "mlm"}, "did you mean `objective`?"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(settings, message):
    with pytest.raises(SettingsError) as caught:
        build_pretraining(settings, "my.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_defaults_are_those_of_the_paper():
    config = build_pretraining({"data": {"train": "a"}, "optim": {"max_grad_norm": 2.0}})
    assert [(each.length, each.steps, each.batch_tokens // each.length) for each in config.stages] == [
        (128, 900_000, 256),
        (512, 100_000, 256),
    ]
    assert (config.lr, config.optim.schedule, config.optim.weight_decay) == (1e-4, "linear", 0.01)
    assert config.optim.warmup * config.num_steps == 10_000
    assert (config.size.layers, config.size.hidden, config.size.heads) == (12, 768, 12)
    assert (config.masking.fraction, config.masking.mask, config.masking.unchanged, config.masking.random) == (
        *(0.15, 0.8, 0.1, 0.1),
    )


def test_no_text_at_all_is_no_vocabulary():
    with pytest.raises(DataError, match="gives a vocabulary of 5 pieces"):
        train_vocabulary(lambda: [], VocabularyConfig(size=100))


LIMITED = """
import resource, sys
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
from bertvision.cli import main
main()
"""


@pytest.fixture
def limited(text_file, tmp_path):
    """Return a function: a pre-training, in a process whose files may have no more than so many bytes."""
    text_file.write_text(10 * text_file.read_text(encoding="utf-8"), encoding="utf-8")
    settings = {
        "data": {"train": str(text_file), "held_out_every": 2},
        "vocabulary": {"size": 120},
        "size": {"layers": 1, "hidden": 8, "heads": 2, "positions": 32},
        "stages": [{"length": 32, "steps": 1, "batch_tokens": 64}],
        "device": "cpu",
    }
    (tmp_path / "tiny.yaml").write_text(json.dumps(settings))

    def run(out, limit=None):
        command = [sys.executable, *(["-m", "bertvision"] if limit is None else ["-c", LIMITED, str(limit)])]
        command += ["pretrain", str(tmp_path / "tiny.yaml"), "--out", str(out), "--quiet"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


def test_tokens_that_find_no_room_are_told_and_the_same_command_goes_on(limited, tmp_path):
    whole = limited(tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    size = (tmp_path / "whole" / "data" / "train" / "ids.bin").stat().st_size
    for limit in (size - 1, size // 2 + 1):
        cut = limited(tmp_path / "out", limit)
        assert cut.returncode == 2
        assert re.fullmatch(r"error: .*(File too large|bytes of).*\n", cut.stderr), cut.stderr
        assert not (tmp_path / "out" / "data" / "train").exists()
    again = limited(tmp_path / "out")
    assert again.returncode == 0, again.stderr
    tokens = [(tmp_path / out / "data" / "train" / "ids.bin").read_bytes() for out in ("whole", "out")]
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize("name", ["ids.bin", "sentences.bin", "documents.bin"])
@pytest.mark.parametrize("part", ["train", "held_out"])
def test_a_damaged_corpus_is_told_in_one_line(make_config, tmp_path, part, name):
    prepare_corpus(make_config(), tmp_path / "corpus")
    path = tmp_path / "corpus" / part / name
    content = path.read_bytes()
    for damaged in (content[:-3], content[:-8] + bytes(8), content[:9] + bytes([content[9] ^ 4]) + content[10:]):
        path.write_bytes(damaged)
        with pytest.raises(FolderError, match=rf"{path}: damaged .*delete .* and make it again"):
            pretrain(make_config(), tmp_path / "out")
