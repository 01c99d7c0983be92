from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import bertvision
from bertvision.data.example import Sentence
from bertvision.errors import DataError
from bertvision.model_folder import load_model
from bertvision.serving.model import Engine
from bertvision.windows.cut import cut_words

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
TEXT = "hannah coyle, of the river, built the weir-stone in 1887"
WORDS = ("hannah", "coyle", ",", "of", "the", "river", ",", "built", "the", "weir-stone", "in", "1887")


def tags_one_by_one(folder, words):
    """Return each word's best tag and its probability, from the model itself, one window at a time."""
    model = load_model(folder)
    found = {}
    for window in cut_words([Sentence("0", words, None, 0)], TAGS, model.encoder.tokenizer, model.config.windows):
        ids = torch.from_numpy(window.ids).long()[None]
        with torch.no_grad():
            states = model.encoder.model(ids, output_hidden_states=True).hidden_states
            mask, segments = torch.ones_like(ids).bool(), torch.zeros_like(ids)
            logits = model.head(torch.stack(states, dim=1), mask, segments)[0].double().numpy()
        for row, word in zip(logits, window.words, strict=True):
            if word >= 0:
                found[int(word)] = TAGS[int(row.argmax())], float(1 / np.exp(row - row.max()).sum())
    return [found[word] for word in range(len(words))]


@pytest.fixture
def folder(make_folder):
    return make_folder("ner", TAGS)


def test_every_word_of_a_text_has_its_characters_tag_and_probability(folder):
    found = bertvision.load(folder, device="cpu")(TEXT)
    assert tuple(word.text for word in found.words) == WORDS
    assert all(TEXT[word.start : word.end] == word.text for word in found.words)
    expected = tags_one_by_one(folder, WORDS)
    assert [word.tag for word in found.words] == [tag for tag, _ in expected]
    assert [word.probability for word in found.words] == pytest.approx([share for _, share in expected], abs=1e-5)


def test_neighbouring_words_of_one_type_are_one_entity(folder):
    tagger = bertvision.load(folder, device="cpu")
    speaking = {place: TAGS.index(tag) for place, tag in enumerate(("B-PER", "I-PER", "O", "O", "O", "B-LOC"))}

    def logits(windows, tokens, progress):
        tags = [[speaking.get(int(word), 0) for word in window.words] for window in windows]
        sizes = [2 + np.array(window.words, np.float32)[:, None] for window in windows]
        return [np.eye(5, dtype=np.float32)[tags_of] * size for tags_of, size in zip(tags, sizes, strict=True)]

    engine = Mock(spec=Engine, logits=logits)
    tagger = replace(tagger, served=replace(tagger.served, engine=engine))
    found = tagger(TEXT).entities
    assert [(each.text, each.type) for each in found] == [("hannah coyle", "PER"), ("river", "LOC")]
    assert all(TEXT[each.start : each.end] == each.text for each in found)
    least = np.exp(2) / (np.exp(2) + 4)  # hannah's, whose logit is 2; coyle's is 3
    assert found[0].probability == pytest.approx(least, abs=1e-6)


def test_words_can_be_given_and_company_does_not_matter(folder):
    tagger = bertvision.load(folder, device="cpu")
    together = tagger.tag_words([WORDS, WORDS[:3], WORDS[4:]])
    assert [word.tag for word in together[0].words] == [word.tag for word in tagger(TEXT).words]
    assert [word.tag for word in together[2].words] == [word.tag for word in tagger.tag_words([WORDS[4:]])[0].words]
    joined = " ".join(WORDS)
    assert all(joined[word.start : word.end] == word.text for word in together[0].words)
    assert [len(each.words) for each in tagger([TEXT, "the weir"])] == [12, 2]
    assert set(together[1].as_dict()) == {"words", "entities"}


@pytest.mark.parametrize(("text", "message"), [("", "is empty"), (7, "got int"), (["a", " "], "text 1: is blank")])
def test_what_is_no_text_is_refused(folder, text, message):
    with pytest.raises(DataError, match=message):
        bertvision.load(folder, device="cpu")(text)


def test_a_text_of_odd_characters_is_tagged(folder):
    found = bertvision.load(folder, device="cpu")("\x00 🏞️ — \u200b x")
    assert found.words[-1].text == "x"


def test_a_word_that_is_blank_is_refused(folder):
    with pytest.raises(DataError, match="sentence 0, word 1: is blank"):
        bertvision.load(folder, device="cpu").tag_words([["weir", " "]])
    with pytest.raises(DataError, match="no words"):
        bertvision.load(folder, device="cpu").tag_words([[]])
