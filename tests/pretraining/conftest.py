"""Small corpora of invented words, and their vocabulary."""

import json

import numpy as np
import pytest

from bertvision.pretraining.config import build_pretraining
from bertvision.pretraining.corpus import prepare_corpus

SYLLABLES = ["ba", "do", "ki", "lu", "me", "no", "ri", "su", "ta", "vo"]


def invent_documents(count, seed=0, sentences=30):
    """Documents of sentences of 3 to 12 words of two or three syllables, in paragraphs of five sentences."""
    random = np.random.default_rng(seed)

    def sentence():
        words = ["".join(random.choice(SYLLABLES, random.integers(2, 4))) for _ in range(random.integers(3, 13))]
        return f"{words[0].capitalize()} {' '.join(words[1:])}."

    for _ in range(count):
        yield "\n\n".join(" ".join(sentence() for _ in range(5)) for _ in range(sentences // 5))


def write_documents(folder):
    path = folder / "text.jsonl"
    path.write_text("".join(json.dumps({"text": each}) + "\n" for each in invent_documents(20)), encoding="utf-8")
    return path


@pytest.fixture
def text_file(tmp_path):
    return write_documents(tmp_path)


@pytest.fixture(scope="module")
def shared_text_file(tmp_path_factory):
    """The same for all tests of a file, which leave it as it is."""
    return write_documents(tmp_path_factory.mktemp("text"))


@pytest.fixture
def make_config(text_file, tmp_path):
    """Return a function of settings that differ from a tiny pre-training's."""

    def make(**changes):
        settings = {
            "data": {"train": str(text_file), "held_out_every": 5, "folder": str(tmp_path / "corpus")},
            "vocabulary": {"size": 120},
            "size": {"layers": 2, "hidden": 16, "heads": 2, "positions": 64},
            "stages": [
                {"length": 32, "steps": 12, "batch_tokens": 256},
                {"length": 64, "steps": 4, "batch_tokens": 256},
            ],
            "lr": 1e-2,
            "evaluate_every": 8,
            "evaluate_tokens": 512,
            "device": "cpu",
        }
        return build_pretraining({**settings, **changes}, "test")

    return make


@pytest.fixture
def prepared(make_config, tmp_path):
    """Vocabulary and tokens of the invented documents."""
    return prepare_corpus(make_config(), tmp_path / "corpus")
