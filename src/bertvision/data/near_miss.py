"""Answerable questions -> unanswerable ones that nearly could be answered: near misses.

For whoever has only questions with answers, and for files whose unanswerable questions are easy to tell. Which
questions get one, and which one, depends on the seed, the question's id and the file's contexts, never on their order.
"""

import gzip
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bertvision.data.example import NearMissConfig, NearMissRule, Question, Split
from bertvision.data.near_miss_rules import RULES, Asked, Change, FileWords
from bertvision.data.passages import Passage, topic_words, words_of
from bertvision.data.sources import parse_source, take_part
from bertvision.data.squad import load_squad, read_squad_file
from bertvision.errors import DataError, SettingsError
from bertvision.files import check_file, write_bytes
from bertvision.progress import SILENT, Progress
from bertvision.settings import validate

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
