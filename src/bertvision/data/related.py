"""A question -> the other contexts of a file that have most of its words."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import log

from bertvision.data.passages import Passage, topic_words

RARE, AT_LEAST = 0.02, 10  # share of the contexts that a word is in at most if it leads to them, and how many at least
CLOSEST = 6  # contexts by rare words, of which all words are counted
COVERED = 0.6  # least share of a question's words in a context, each weighed by its inverse document frequency


class ContextIndex:
    """Which contexts of a file hold which words; the order of the contexts changes nothing."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = sorted(passages, key=lambda passage: passage.text)
        counts = Counter(stem for passage in self._passages for stem in passage.stems)
        self._most = log(1 + len(self._passages))
        self._weights = {stem: log(1 + len(self._passages) / count) for stem, count in counts.items()}
        most = max(AT_LEAST, RARE * len(self._passages))
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, passage in enumerate(self._passages):
            for stem in passage.stems:
                if counts[stem] <= most:
                    self._places[stem].append(place)

    def related(self, text: str, own: Passage) -> Iterator[Passage]:
        """Return the other contexts that have most of a text's words, those with the most first."""
        topics = sorted(topic_words(text))
        whole = sum(map(self._weight, topics))
        scores: dict[int, float] = defaultdict(float)
        for stem in topics:
            for place in self._places.get(stem, ()):
                scores[place] += self._weights[stem]
        closest = sorted(scores, key=lambda place: (-scores[place], place))[:CLOSEST]
        covered = {place: self._covered(topics, self._passages[place]) / whole for place in closest}
        for place in sorted(covered, key=lambda place: (-covered[place], place)):
            if covered[place] >= COVERED and self._passages[place].text != own.text:
                yield self._passages[place]

    def _weight(self, stem: str) -> float:
        """Return a word's inverse document frequency; one that no context has weighs most."""
        return self._weights.get(stem, self._most)

    def _covered(self, topics: Sequence[str], passage: Passage) -> float:
        return sum(self._weight(stem) for stem in topics if stem in passage.stems)
