"""Text in, a tag for each word out, and the entities that they make up."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, overload

import numpy as np

from bertvision.data.conll import word_spans
from bertvision.data.example import Sentence
from bertvision.predictions.logits import Logits, softmax
from bertvision.scoring.metrics import entities
from bertvision.serving.answers import FoundEntity, TaggedWord, Tagging
from bertvision.serving.model import Saveable, ServedModel, check_text, list_texts
from bertvision.windows.window import NO_WORD, Window


class _Text(NamedTuple):
    """A text, and the characters of its words."""

    text: str
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, repr=False)
class Tagger(Saveable):
    """A model that tags words."""

    served: ServedModel

    @overload
    def __call__(self, text: str) -> Tagging: ...

    @overload
    def __call__(self, text: list[str] | tuple[str, ...]) -> list[Tagging]: ...

    def __call__(self, text: Any) -> Any:  # noqa: ANN401 (checked; a Tagging or a list of them)
        """Tag the words of one text, or of each text of a list; a text should be a sentence, as in training."""
        texts, is_one = list_texts("text", text)
        found = self.tag(texts)
        return found[0] if is_one else found

    def tag(self, texts: Sequence[str]) -> list[Tagging]:
        """Tag the words of checked texts."""
        return self._tag([_Text(each, word_spans(each)) for each in texts])

    def tag_words(self, sentences: Sequence[Sequence[str]]) -> list[Tagging]:
        """Tag sentences that are cut into words already; characters are those of the words with blanks between."""
        return self._tag([_join(place, words) for place, words in enumerate(sentences)])

    def _tag(self, texts: Sequence[_Text]) -> list[Tagging]:
        if not texts:
            return []
        # Each is a document of its own: no sentence may see the company that it is in.
        sentences = [
            Sentence(str(place), tuple(text[slice(*span)] for span in spans), None, place)
            for place, (text, spans) in enumerate(texts)
        ]
        answering = self.served.answering(sentences)
        logits = self.served.logits(answering.windows)
        sure = _probabilities(answering.windows, logits)
        tags = [found.tags for found in answering.answer(logits)]
        return [
            _tagging(text, tags[place], [sure.get((place, word), 1.0) for word in range(len(text.spans))])
            for place, text in enumerate(texts)
        ]


def _join(place: int, words: Sequence[str]) -> _Text:
    checked = [check_text(f"sentence {place}, word {number}", word) for number, word in enumerate(words)]
    ends = accumulate(len(word) + 1 for word in checked)
    return _Text(
        " ".join(checked), tuple((end - 1 - len(word), end - 1) for word, end in zip(checked, ends, strict=True))
    )


def _probabilities(windows: Sequence[Window], logits: Logits) -> dict[tuple[int, int], float]:
    """Return the probability of the tag of each sentence's words, from the tokens that speak for them."""
    example_of = np.repeat([window.example for window in windows], [len(window) for window in windows])
    word_of = np.concatenate([window.words for window in windows if window.words is not None])
    speaking = np.flatnonzero(word_of != NO_WORD)
    best = softmax(logits[speaking]).max(axis=1).tolist()
    keys = zip(example_of[speaking].tolist(), word_of[speaking].tolist(), strict=True)
    return dict(zip(keys, best, strict=True))


def _tagging(text: _Text, tags: Sequence[str], sure: Sequence[float]) -> Tagging:
    words = [
        TaggedWord(text.text[slice(*span)], *span, tag, probability)
        for span, tag, probability in zip(text.spans, tags, sure, strict=True)
    ]
    found = []
    for first, end, kind in entities(tags):
        start, stop = words[first].start, words[end - 1].end
        least = min(word.probability for word in words[first:end])
        found.append(FoundEntity(text.text[start:stop], start, stop, kind, least))
    return Tagging(tuple(words), tuple(found))
