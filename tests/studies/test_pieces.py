import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from bertvision.data.example import GoldAnswer, Question
from bertvision.errors import EncoderError
from studies.paper_scores import gold_pieces


def ask(*golds):
    return Question("q", "who", "context", tuple(GoldAnswer(text, 0) for text in golds), "")


def test_golds_are_tokenised_by_themselves_without_special_tokens(tokenizer):
    golds = gold_pieces([ask("Hannah Coyle", "coyle"), ask(), ask("1887x")], tokenizer)
    hannah, coyle, year, x = tokenizer.convert_tokens_to_ids(["hannah", "coyle", "1887", "##x"])
    # Upper and lower case are one, as in the contexts.
    assert golds == [[(hannah, coyle), (coyle,)], [()], [(year, x)]]


def test_a_gold_without_pieces_leaves_the_others_alone(tokenizer):
    (coyle,) = tokenizer.convert_tokens_to_ids(["coyle"])
    assert gold_pieces([ask(" ", "coyle"), ask(" ")], tokenizer) == [[(coyle,)], [()]]


def test_questions_that_all_lack_answers_have_empty_golds(tokenizer):
    assert gold_pieces([ask(), ask()], tokenizer) == [[()], [()]]


def test_a_tokenizer_whose_pieces_hold_the_blank_before_them_is_refused():
    words = Tokenizer(WordLevel({"[UNK]": 0, "a": 1, "b": 2, "Ġb": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = ByteLevel(add_prefix_space=False)
    with pytest.raises(EncoderError, match="extra_scores"):
        gold_pieces([ask("b")], PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]"))
