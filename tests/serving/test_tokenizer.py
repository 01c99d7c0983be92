"""The tokenizer of exported models beside transformers' own, which cut the same windows."""

import json

import numpy as np
import pytest

from bertvision.data.example import ChoiceRow, GoldAnswer, Question, Sentence, TextRow
from bertvision.encoder.load import load_tokenizer
from bertvision.errors import FolderError
from bertvision.serving.tokenizer import read_tokenizer
from bertvision.windows.cut import cut_choices, cut_rows, cut_words
from bertvision.windows.window import WindowConfig, cut_windows

CONFIG = WindowConfig(max_length=24, stride=4)
TEXTS = (
    "The weir was built in 1887 by Hannah Coyle, who had studied in Edinburgh. " * 12,  # more than 128 tokens
    "naïve Café (1887) —  two\tblanks,\n東京 ﬁn don't U.S. e\u0301 [SEP] \u200b",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tokenizer as it is saved, whose file cuts to 128 tokens and pads to 128, as all-MiniLM's does."""
    folder = tmp_path_factory.mktemp("tokenizer")
    load_tokenizer("default").save_pretrained(folder)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["truncation"] = {"direction": "Right", "max_length": 128, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {
        **{"strategy": {"Fixed": 128}, "direction": "Right", "pad_to_multiple_of": None},
        **{"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
    }
    path.write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def makers(folder):
    return load_tokenizer(str(folder)), read_tokenizer(folder)


def cut(name, tokenizer):
    match name:
        case "questions":
            asked = [
                Question(text[:3], "Who built it?", text, (GoldAnswer("1887", text.index("1887")),), "")
                for text in TEXTS
            ]
            return cut_windows(asked, tokenizer, CONFIG)
        case "texts":
            return cut_rows([TextRow(text[:3], (text,), 0) for text in TEXTS], tokenizer, 512, "class")
        case "pairs":
            return cut_rows([TextRow("a", TEXTS, 0), TextRow("b", TEXTS[::-1], 0)], tokenizer, 512, "class")
        case "choices":
            return cut_choices([ChoiceRow("a", "Hannah Coyle", TEXTS, 1)], tokenizer, 64)
        case _:
            words = [Sentence(text[:3], tuple(text.split()), None, 0) for text in TEXTS]
            return cut_words(words, ("O",), tokenizer, CONFIG, labelled=False)


@pytest.mark.parametrize("name", ["questions", "texts", "pairs", "choices", "words"])
def test_both_cut_the_same_windows_whatever_the_files_truncation_and_padding(makers, name):
    one, other = (cut(name, tokenizer) for tokenizer in makers)
    assert len(one) == len(other) > 0
    for expected, found in zip(one, other, strict=True):
        for field in expected.__dataclass_fields__:
            assert np.array_equal(getattr(found, field), getattr(expected, field)), field


def test_both_know_the_same_special_tokens(makers):
    one, other = ([each.pad_token_id, each.unk_token_id, each.model_max_length] for each in makers)
    assert one == other


@pytest.mark.parametrize(
    "content", ["{", "{}", '{"pad_token": "[ROOK]"}', '{"pad_token": "[PAD]", "model_max_length": "x"}']
)
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_tokenizer_is_refused_in_one_line(folder, tmp_path, name, content):
    for each in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / each).write_bytes((folder / each).read_bytes())
    (tmp_path / name).write_text(content)
    with pytest.raises(FolderError, match="its tokenizer cannot be read, export the model again"):
        read_tokenizer(tmp_path)
