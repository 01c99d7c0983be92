"""Gold answers -> word pieces, for the metric of the 2020 system."""

from collections.abc import Sequence

from bertvision.data.example import Pieces, Question
from bertvision.errors import EncoderError
from bertvision.windows.tokens import Tokenizer


def gold_pieces(questions: Sequence[Question], tokenizer: Tokenizer) -> list[list[Pieces]]:
    """Tokenise every question's gold answers by themselves; a question without any has an empty one."""
    _check_pieces(tokenizer)
    texts = list(dict.fromkeys(answer.text for question in questions for answer in question.answers))
    pieces = dict(zip(texts, _tokenise(tokenizer, texts), strict=True))
    golds = [[pieces[answer.text] for answer in question.answers] for question in questions]
    return [[gold for gold in each if gold] or [()] for each in golds]


def _check_pieces(tokenizer: Tokenizer) -> None:
    """Refuse byte-level tokenizers: the blank before a word is part of its piece, so no gold would equal an answer."""
    alone, inside = _tokenise(tokenizer, ["b", "a b"])
    if inside[-len(alone) :] != alone:
        raise EncoderError(
            "this encoder's tokenizer cuts a word differently at the start of a text, so that gold answers have other "
            "pieces than contexts; leave paper-v1 out of answers.decoders"
        )


def _tokenise(tokenizer: Tokenizer, texts: list[str]) -> list[Pieces]:
    if not texts:
        return []
    return [tuple(ids) for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]]
