"""Answerable questions -> unanswerable ones that nearly could be answered: near misses.

For whoever has only questions with answers, and for files whose unanswerable questions are easy to tell. Which
questions get one, and which one, depends on the seed, the question's id and the file's contexts, never on their order.

A rule turns a question and its context into questions that ask for something else. It proposes changes in a random
order; the first that passes the checks is taken.
"""

import gzip
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from bertvision.data.example import NearMissConfig, NearMissRule, Question, Split
from bertvision.data.near_miss_words import (
    ANTONYMS_OF,
    AUXILIARIES,
    BEFORE_ORDINAL,
    COUNTING_BEFORE,
    NEGATIONS,
    NOT_AFTER,
    NOT_BEFORE,
    OPEN_BEFORE,
    PREPOSITIONS,
    QUESTION_WORDS,
)
from bertvision.data.passages import (
    LOOSE,
    WORD,
    ContextIndex,
    Lexicon,
    Passage,
    Place,
    attested,
    numbers_in,
    topic_words,
    words_of,
)
from bertvision.data.sources import parse_source, take_part
from bertvision.data.squad import load_squad, read_squad_file
from bertvision.errors import DataError, SettingsError
from bertvision.files import check_file, write_bytes
from bertvision.progress import SILENT, Progress
from bertvision.settings import validate

Drawn = TypeVar("Drawn")
TRIES = 3  # of each source for what is put in
HERE = 0.6  # how often the context itself is asked first, so that no word is missing from it
NEAR = 40  # years
TOGETHER = 2 / 3  # of a question's words in one sentence of another context: it may well answer the question
ANTONYMS: dict[str, list[str]] = defaultdict(list)
for _pair in ANTONYMS_OF.split():
    _one, _other = _pair.split("/")
    ANTONYMS[_one].append(_other)
    ANTONYMS[_other].append(_one)
NO_ANTONYM = {word: words.split() for word, words in NOT_AFTER.items()}
NO_ANTONYM_BEFORE = {word: words.split() for word, words in NOT_BEFORE.items()}
NEGATED = {"can": "can't", "will": "won't"} | {
    word: f"{word}n't"
    for word in ("did", "does", "do", "was", "were", "is", "are", "has", "have", "had", "could", "would", "should")
}
RELATIVE = re.compile(
    r"\b(that|who|which) (is|are|was|were|has|have|had|can|could|will|would|did|does|do)\b(?! not|n't)"
)
SUBJECT_VERB = re.compile(
    r"^(who|what|which \w+|what \w+) (?=\w+ed\b|(?:wrote|won|led|made|gave|took|held|became|began|built|sold|bought|"
    r"ran|lost|found|said|taught|sang|told|left|brought|wins|makes|gives|holds|causes|contains|uses|includes|provides)\b)",
    re.IGNORECASE,
)
ASKS_WHEN = re.compile(
    r"\b(when|year|years|date|century|decade|month|day|how long|how old|time|period|era)\b", re.IGNORECASE
)
ASKS_WHERE = re.compile(
    r"\b(where|country|countries|city|cities|state|states|place|town|region|continent|location|located|nation|born)\b",
    re.IGNORECASE,
)
# "How many rivers don't" and "when wasn't it" are no questions that anybody asks.
HARDLY_NEGATED = re.compile(
    r"\b(how (many|much|long|old|often|far|big|large|tall)|when|year|date|day|there)\b", re.IGNORECASE
)
GOES_ON = re.compile(r" (\d|(of|and) [A-Z])|\.? [A-Z]")
BEGAN_BEFORE = re.compile(r"([A-Z]\.|[A-Z][\w.]* (and|of)|\bNo\.|\d) $")
PAST = re.compile(r"\b(did|was|were|had)\b|\w{3,}ed\b", re.IGNORECASE)


class Change(NamedTuple):
    """A question changed: its new text and context, and the stems of what was put in and of what was kept."""

    text: str
    added: frozenset[str]
    kept: frozenset[str]
    context: str | None = None  # None: that of the question


@dataclass(frozen=True)
class FileWords:
    """What the contexts of a file have to offer."""

    lexicon: Lexicon
    numbers_by_kind: dict[str, list[str]]  # those of several contexts, sorted
    names_by_kind: dict[str, list[str]]
    passages: Sequence[Passage]

    @classmethod
    def of(cls, passages: Sequence[Passage]) -> "FileWords":
        """Gather the names and numbers of all contexts."""
        counts: Counter[tuple[str, str]] = Counter()
        for passage in passages:
            counts.update({(each.kind, each.text) for each in passage.numbers})
        numbers: dict[str, list[str]] = defaultdict(list)
        for kind, text in sorted(each for each, count in counts.items() if count >= attested(len(passages))):
            numbers[kind].append(text)
        lexicon = Lexicon(passages)
        return cls(lexicon, numbers, lexicon.names_by_kind, passages)

    @cached_property
    def index(self) -> ContextIndex:
        """Return which contexts hold which words."""
        return ContextIndex(self.passages)


@dataclass(frozen=True)
class Asked:
    """An answerable question with its context taken apart."""

    question: Question
    passage: Passage
    file: FileWords

    @property
    def text(self) -> str:
        """Return what is asked."""
        return self.question.text.strip()

    @cached_property
    def topics(self) -> set[str]:
        """Return the stems of what the question is about."""
        return topic_words(self.text)

    @property
    def is_cased(self) -> bool:
        """Return whether the question is written with capitals."""
        return any(letter.isupper() for letter in self.text)

    @property
    def is_tokenised(self) -> bool:
        """Return whether blanks stand before punctuation, as word tokenisers leave it."""
        return self.text.endswith((" ?", " ."))

    def spelled(self, word: str) -> str:
        """Return a name as the question would write it."""
        return word if self.is_cased else word.lower()


Rule = Callable[[Asked, Random], Iterator[Change]]


def swap_name(asked: Asked, random: Random) -> Iterator[Change]:
    """Put another name of the same kind where a name of the context stands."""
    lexicon, passage = asked.file.lexicon, asked.passage
    for old in _shuffled(lexicon.find(asked.text, passage), random):
        own = topic_words(old.text)
        if not own or not own <= passage.stems or _is_in_longer_name(asked.text, old):
            continue
        here = [name for name in lexicon.names_of(passage) if lexicon.kind(name) == old.kind]
        away = [] if old.kind.startswith(LOOSE) else asked.file.names_by_kind.get(old.kind, [])
        for new in _drawn(here, away, random):
            added = topic_words(new)
            if added and not added & asked.topics and (new in here or not added & passage.stems):
                yield _replaced(asked, old, asked.spelled(new), added)


def swap_number(asked: Asked, random: Random) -> Iterator[Change]:
    """Put another number or date of the same kind where one stands that says exactly which."""
    for old in _shuffled(numbers_in(asked.text), random):
        before = words_of(asked.text[: old.start])[-1:]
        if not _is_exact(old, before):
            continue
        here = [each.text for each in asked.passage.numbers if each.kind == old.kind]
        away = [each for each in asked.file.numbers_by_kind.get(old.kind, []) if _is_near(old, each)]
        for new in _drawn(here, away, random):
            if new.lower() != old.text.lower() and new.lower() not in words_of(asked.text):
                written = asked.spelled(new) if old.text[0].isupper() or new[0].isdigit() else new.lower()
                yield _replaced(asked, old, written, {each[:5] for each in words_of(new)})


def swap_antonym(asked: Asked, random: Random) -> Iterator[Change]:
    """Put the opposite where a word has one."""
    words = list(WORD.finditer(asked.text))
    lower = ["", *(word.group().lower() for word in words), ""]
    found = []
    for place, word in enumerate(words, start=1):
        if word.group() in ANTONYMS and _is_plain_use(lower[place], lower[place - 1], lower[place + 1]):
            found.append(Place(word.start(), word.end(), word.group(), "word"))
    for old in _shuffled(found, random):
        for new in _shuffled(ANTONYMS[old.text], random):
            yield _replaced(asked, old, new, {new[:5]})


def negate(asked: Asked, random: Random) -> Iterator[Change]:
    """Put in "not" or "never": in the clause that says which, else behind the auxiliary."""
    text = asked.text
    if NEGATIONS & set(words_of(text)) or "n't" in text:
        return
    added = frozenset(each[:5] for each in NEGATIONS)
    if clause := RELATIVE.search(text, 1):
        yield Change(f"{text[: clause.end()]} not{text[clause.end() :]}", added, frozenset(asked.topics))
    if verb := SUBJECT_VERB.search(text):
        yield Change(f"{text[: verb.end()]}never {text[verb.end() :]}", added, frozenset(asked.topics))
    if HARDLY_NEGATED.search(text):
        return
    asks = False
    for word in WORD.finditer(text):
        asks = asks or word.group().lower() in QUESTION_WORDS
        if asks and word.group() in NEGATED:
            negated = NEGATED[word.group()]
            negated = f"{negated[:-3]} n't" if asked.is_tokenised else negated
            yield Change(f"{text[: word.start()]}{negated}{text[word.end() :]}", added, frozenset(asked.topics))
            return


def add_condition(asked: Asked, random: Random) -> Iterator[Change]:
    """Ask for a year or a place that goes with nothing the context says."""
    for here, away in _shuffled(_conditions(asked), random):
        for new in _drawn(here, away, random):
            added = topic_words(new)
            if added and not added & asked.topics and (new in here or not added & asked.passage.stems):
                text = _with_condition(asked, f"in {asked.spelled(new)}", random)
                yield Change(text, frozenset(added), frozenset(asked.topics))


def borrow(asked: Asked, random: Random) -> Iterator[Change]:
    """Ask the question of another context, which has its words but not its answer."""
    answers = [f" {' '.join(words_of(answer.text))} " for answer in asked.question.answers]
    for passage in asked.file.index.related(asked.text, asked.passage):
        words = f" {' '.join(words_of(passage.text))} "
        at_once = max(len(asked.topics & sentence.stems) for sentence in passage.sentences)
        if at_once < TOGETHER * len(asked.topics) and not any(answer in words for answer in answers):
            yield Change(asked.text, frozenset(), frozenset(asked.topics), passage.text)


RULES: dict[NearMissRule, Rule] = {
    "name": swap_name,
    "number": swap_number,
    "antonym": swap_antonym,
    "negation": negate,
    "condition": add_condition,
    "borrowed": borrow,
}


def _conditions(asked: Asked) -> Iterator[tuple[list[str], list[str]]]:
    """Return the years and the places that the context and the file offer, where none is given or asked for."""
    text, lexicon = asked.text, asked.file.lexicon
    if PAST.search(text) and not ASKS_WHEN.search(text) and not any(numbers_in(text)):
        years = sorted(each.text for each in asked.passage.numbers if each.kind == "year")
        middle = int(years[len(years) // 2]) if years else None
        away = asked.file.numbers_by_kind.get("year", [])
        yield years, [each for each in away if middle is None or abs(int(each) - middle) <= NEAR]
    if not ASKS_WHERE.search(text) and " in " not in f" {text.lower()}":
        here = [name for name in lexicon.names_of(asked.passage) if lexicon.kind(name) == "place"]
        yield here, asked.file.names_by_kind.get("place", [])


def _with_condition(asked: Asked, condition: str, random: Random) -> str:
    body = asked.text.rstrip(" ?.!")
    tail = asked.text[len(body) :]
    last = words_of(body)[-1:]
    ends_open = not last or last[0] in PREPOSITIONS | QUESTION_WORDS | AUXILIARIES or "," in body
    starts_plain = words_of(body)[:1] and words_of(body)[0] in QUESTION_WORDS | AUXILIARIES
    if starts_plain and (ends_open or random.random() < 0.5):
        opening = condition[0].upper() + condition[1:] if asked.is_cased else condition
        return f"{opening}{' ,' if asked.is_tokenised else ','} {body[0].lower()}{body[1:]}{tail}"
    return f"{body} {condition}{tail}"


def _replaced(asked: Asked, old: Place, new: str, added: Iterable[str]) -> Change:
    before, after = asked.text[: old.start], asked.text[old.end :]
    article = re.search(r"\b(a|an) $", before, re.IGNORECASE)
    if article:
        before = before[: article.start()] + _article(article[1], new) + " "
    if re.search(r"\bthe $", before, re.IGNORECASE) and new.lower().startswith("the "):
        new = new[4:]
    if old.start == 0 and old.text[0].isupper():
        new = new[0].upper() + new[1:]
    kept = asked.topics - topic_words(old.text)
    return Change(before + new + after, frozenset(added), frozenset(kept))


def _is_in_longer_name(text: str, name: Place) -> bool:
    return bool(GOES_ON.match(text, name.end) or BEGAN_BEFORE.search(text[: name.start]))


def _article(article: str, word: str) -> str:
    fitting = "an" if word[0].lower() in "aeiou" else "a"
    return fitting.capitalize() if article[0].isupper() else fitting


def _drawn(here: Sequence[str], away: Sequence[str], random: Random) -> Iterator[str]:
    """Draw from the context and from the other contexts, one of them first."""
    sources = [here, away] if random.random() < HERE else [away, here]
    for source in sources:
        yield from random.sample(source, min(TRIES, len(source)))


def _shuffled(found: Iterable[Drawn], random: Random) -> list[Drawn]:
    listed = list(found)
    random.shuffle(listed)
    return listed


def _is_exact(old: Place, before: list[str]) -> bool:
    """Return whether a number tells one thing from others, rather than bounding or counting what is asked for."""
    word = before[0] if before else ""
    if old.kind == "ordinal":
        return word in BEFORE_ORDINAL
    if old.kind == "cardinal":
        return bool(word) and word not in COUNTING_BEFORE | OPEN_BEFORE
    return word not in OPEN_BEFORE


def _is_near(old: Place, other: str) -> bool:
    return old.kind != "year" or abs(int(other) - int(old.text)) <= NEAR


def _is_plain_use(word: str, before: str, after: str) -> bool:
    return before != "how" and before not in NO_ANTONYM.get(word, ()) and after not in NO_ANTONYM_BEFORE.get(word, ())


# How readily each rule is tried first. People who wrote SQuAD 2.0's questions swapped names and numbers in 21% of a
# sample, took an antonym in 20%, negated 9% and set an impossible condition in 4% (Rajpurkar et al. 2018, table 3).
WEIGHTS: dict[NearMissRule, float] = {
    "name": 4,
    "number": 4,
    "antonym": 4,
    "negation": 1,
    "condition": 0.5,
    "borrowed": 8,
}
LATER: NearMissRule = "borrowed"
TRIED = 3  # rules for a question, lest all that has no name, number or antonym gets a negation or a condition
SHARED = 0.5  # of a question's words beside the new one in a sentence: it may well answer the new question
SHORTEST, LONGEST = 3, 60  # words of a question


class NearMiss(NamedTuple):
    """An unanswerable question, the rule that made it, and the question that it was made from."""

    question: Question
    rule: NearMissRule
    source: Question


class ContextQuestions(NamedTuple):
    """The article of a context, and the words of each question about it; near misses are added."""

    title: str
    words: list[set[str]]


@dataclass(frozen=True)
class NearMisses:
    """What was made from a file's questions."""

    made: tuple[NearMiss, ...]
    answerable: int  # questions that could have got one
    are_names_hidden: bool  # without capital letters no name can be seen

    @property
    def counts(self) -> dict[str, int]:
        """Return how many each rule made."""
        counted = Counter(each.rule for each in self.made)
        return {rule: counted[rule] for rule in RULES}

    @property
    def summary(self) -> str:
        """Return the counts in one line, and why there are no names where none can be seen."""
        by_rule = ", ".join(f"{rule} {count:,}" for rule, count in self.counts.items() if count)
        hidden = "; names cannot be seen, because the contexts have no capital letters" if self.are_names_hidden else ""
        return f"{len(self.made):,} near misses from {self.answerable:,} answerable questions ({by_rule}){hidden}"


def near_misses_of(
    questions: Sequence[Question], config: NearMissConfig, name: str, progress: Progress = SILENT
) -> NearMisses:
    """Make near misses from a share of the answerable questions; `name` is the file's, for errors."""
    by_context: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        by_context[question.context].append(question)
    num_answerable = sum(not question.is_impossible for question in questions)
    if not num_answerable:
        raise DataError(f"{name}: has no answerable question, from which near misses are made; give a file that has")
    passages = {context: Passage(context) for context in by_context}
    file = FileWords.of(list(passages.values()))
    known = {question.id for question in questions}
    others = {
        context: ContextQuestions(asked[0].title, [set(words_of(each.text)) for each in asked])
        for context, asked in by_context.items()
    }
    found: dict[str, NearMiss] = {}
    with progress.bar("near misses", len(questions)) as bar:
        for context in sorted(by_context):  # what was made before must not be made again
            found |= _of_context(by_context[context], passages[context], file, config, known, others)
            bar.advance(len(by_context[context]))
    if config.fraction and not found:
        raise DataError(
            f"{name}: none of its {num_answerable:,} answerable questions became a near miss by the rules "
            f"{', '.join(config.rules)}; try other rules or a larger fraction"
        )
    made = tuple(found[question.id] for question in questions if question.id in found)
    return NearMisses(made, num_answerable, not any(passage.is_cased for passage in passages.values()))


def with_near_misses(
    split: Split[Question], config: NearMissConfig, progress: Progress = SILENT
) -> tuple[Split[Question], NearMisses]:
    """Add near misses to a split."""
    found = near_misses_of(split.examples, config, split.name, progress)
    return replace(split, examples=split.examples + tuple(each.question for each in found.made)), found


def make_near_misses(
    source: str | Path, out: str | Path, settings: Mapping[str, Any] | None = None, progress: Progress = SILENT
) -> NearMisses:
    """Write a SQuAD file, or a slice of one (`FILE[a:b]`), with near misses beside its own questions, as SQuAD 2.0.

    `settings` are those of `data.near_misses`: `fraction`, `seed` and `rules`. All else of the file stays as it is; a
    name that ends in `.gz` is packed.
    """
    config = validate(NearMissConfig, dict(settings or {}), "near misses")
    asked = parse_source(str(source))
    path, target = Path(asked.whole), check_file(Path(out))
    if path.exists() and target.exists() and path.samefile(target):
        raise SettingsError(f"{target}: is the file that is read; give `out` another name")
    split = take_part(read_squad_file(path, advice=""), str(source))
    found = near_misses_of(split.examples, config, str(source), progress)
    content = load_squad(path)
    if asked.part is not None:
        _keep(content, {question.id for question in split.examples})
    _add_to(content, found.made)
    packed = (json.dumps(content, ensure_ascii=False) + "\n").encode()
    write_bytes(target, gzip.compress(packed, mtime=0) if target.suffix == ".gz" else packed)
    return found


def _of_context(
    questions: Sequence[Question],
    passage: Passage,
    file: FileWords,
    config: NearMissConfig,
    known: set[str],
    others: Mapping[str, ContextQuestions],
) -> dict[str, NearMiss]:
    """Make near misses of one context's questions, by their ids; `others` are all questions, by context."""
    found: dict[str, NearMiss] = {}
    for question in sorted(questions, key=lambda each: each.id):
        random = Random(hashlib.sha256(f"{config.seed} {question.id}".encode()).digest())
        if question.is_impossible or random.random() >= config.fraction:
            continue
        near = _first_good(Asked(question, passage, file), config, others, random)
        if near is not None and near.question.id not in known:
            found[question.id] = near
            others[near.question.context].words.append(set(words_of(near.question.text)))
    return found


def _first_good(
    asked: Asked, config: NearMissConfig, others: Mapping[str, ContextQuestions], random: Random
) -> NearMiss | None:
    """Return the first change that passes all checks, of the rules in an order drawn by their weights."""
    # The shipped models name the five rules they were made with: one that came later draws only where it is asked for.
    drawn = {rule: random.random() ** (1 / WEIGHTS[rule]) for rule in RULES if rule != LATER or rule in config.rules}
    for rule in sorted(config.rules, key=lambda each: -drawn[each])[:TRIED]:
        for change in RULES[rule](asked, random):
            source = asked.question
            context = source.context if change.context is None else change.context
            if _is_good(asked, change, others[context].words):
                near = Question(f"{source.id}-near-{rule}", change.text, context, (), others[context].title)
                return NearMiss(near, rule, source)
    return None


def _is_good(asked: Asked, change: Change, others: Sequence[set[str]]) -> bool:
    """Throw out accidents: what is still answered, asked already, or no question any more."""
    return (
        _reads_as_question(change.text)
        and not _holds_answer(asked, change)
        and not (change.added & topic_words(asked.question.title))  # the context is about it, by name or not
        and not _may_be_answered(asked, change)
        and set(words_of(change.text)) not in others
    )


def _reads_as_question(text: str) -> bool:
    words = words_of(text)
    doubled = any(one == other for one, other in pairwise(words))
    return SHORTEST <= len(words) <= LONGEST and not doubled


def _holds_answer(asked: Asked, change: Change) -> bool:
    """Return whether an answer's text stands in the new question, or what is new stands in an answer."""
    text = f" {' '.join(words_of(change.text))} "
    for answer in asked.question.answers:
        words = words_of(answer.text)
        if f" {' '.join(words)} " in text or change.added & topic_words(answer.text):
            return True
    return False


def _may_be_answered(asked: Asked, change: Change) -> bool:
    """Return whether a sentence holds what is new, and either an answer or much of what the question kept."""
    starts = [answer.start for answer in asked.question.answers]
    for sentence in asked.passage.sentences:
        if change.added & sentence.stems:
            has_answer = any(sentence.start <= start < sentence.end for start in starts)
            if has_answer or len(change.kept & sentence.stems) >= SHARED * len(change.kept):
                return True
    return False


def _keep(content: dict[str, Any], ids: Collection[str]) -> None:
    """Keep some questions, and what they are asked about."""
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [qa for qa in paragraph["qas"] if qa["id"] in ids]
        article["paragraphs"] = [paragraph for paragraph in article["paragraphs"] if paragraph["qas"]]
    content["data"] = [article for article in content["data"] if article["paragraphs"]]


def _add_to(content: dict[str, Any], made: Sequence[NearMiss]) -> None:
    content["version"] = "v2.0"
    by_context: dict[str, list[NearMiss]] = defaultdict(list)
    for each in made:
        by_context[each.question.context].append(each)
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                qa.setdefault("is_impossible", not qa["answers"])
            paragraph["qas"] += [_qa(each) for each in by_context.pop(paragraph["context"], [])]


def _qa(near: NearMiss) -> dict[str, Any]:
    is_here = near.question.context == near.source.context
    plausible = [{"text": each.text, "answer_start": each.start} for each in near.source.answers if is_here]
    return {
        "id": near.question.id,
        "question": near.question.text,
        "is_impossible": True,
        "answers": [],
        "plausible_answers": plausible,
    }
