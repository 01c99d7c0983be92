import gzip
import hashlib
import json
import os
import random
import subprocess
import sys

import pytest

from bertvision.data import make_near_misses
from bertvision.data.example import GoldAnswer, NearMissConfig, Question
from bertvision.data.near_miss import near_misses_of
from bertvision.data.split import write_squad
from bertvision.data.squad import read_squad
from bertvision.errors import BertVisionError, DataError, SettingsError
from bertvision.experiment import build_experiment
from bertvision.progress import SILENT
from bertvision.settings import first_difference
from bertvision.stages.context import prepare

RULES = ("name", "number", "antonym", "negation", "condition", "borrowed")
WEIR = (
    "In 1887 Hannah Coyle, who was young, built the largest weir of the county. The mill stood in Leeds. "
    "Edward Stone died in 1912 in Bristol. The bridge of Edward Stone was sold in 1931."
)
RIVER = "In 1904 Martha Hale wrote a book in Dublin. Oscar Reed married in 1899."


def ask(text, answer, context=WEIR, identity="q", title="Weirs"):
    return Question(identity, text, context, (GoldAnswer(answer, context.index(answer)),), title)


def make(*questions, rules=RULES, share=1.0, seed=1):
    return near_misses_of(questions, NearMissConfig(fraction=share, seed=seed, rules=rules), "weirs.json")


def texts(*questions, seeds=range(30), **settings):
    """Return all that a rule makes of questions, over many seeds."""
    made = set()
    for seed in seeds:
        try:
            made |= {each.question.text for each in make(*questions, seed=seed, **settings).made}
        except DataError:
            continue
    return made


WHO = ask("Who built the weir in 1887?", "Hannah Coyle")
WHEN = ask("When did Hannah Coyle own the largest weir?", "1887")
OTHER = ask("Where did Martha Hale write a book?", "Dublin", RIVER, "other")


def test_a_number_becomes_another_of_its_kind_that_the_answers_sentence_lacks():
    made = texts(WHO, OTHER, rules=("number",))
    assert made == {f"Who built the weir in {year}?" for year in (1912, 1931, 1904, 1899)}


def test_a_name_becomes_another_persons():
    made = texts(WHEN, rules=("name",))
    assert made == {"When did Edward Stone own the largest weir?"}


def test_names_are_found_in_lower_case_by_the_contexts_capitals():
    lower = ask("when did hannah coyle own the largest weir ?", "1887")
    assert texts(lower, rules=("name",)) == {"when did edward stone own the largest weir ?"}


def test_without_any_capital_letter_no_name_is_made_and_the_summary_says_why():
    context = WEIR.lower()
    found = make(ask("when did hannah coyle own the largest weir ?", "1887", context))
    assert "name" not in {each.rule for each in found.made}
    assert "no capital letters" in found.summary


def test_an_antonym_stands_in_the_same_place_and_is_no_phrase_taken_apart():
    assert texts(WHEN, rules=("antonym",)) == {"When did Hannah Coyle own the smallest weir?"}
    assert texts(ask("How long was the weir at least?", "largest"), rules=("antonym",)) == set()


@pytest.mark.parametrize(
    ("text", "negated"),
    [
        ("Who was the owner of the weir?", "Who wasn't the owner of the weir?"),
        ("who was the owner of the weir ?", "who was n't the owner of the weir ?"),
        ("Who owned the weir?", "Who never owned the weir?"),
        ("Which man that was rich owned it?", "Which man that was not rich owned it?"),
    ],
)
def test_a_negation_reads_as_a_question(text, negated):
    assert texts(ask(text, "Hannah Coyle"), rules=("negation",)) == {negated}


@pytest.mark.parametrize("text", ["Who was not the owner?", "How many weirs were built?", "When was the weir built?"])
def test_what_is_negated_already_or_can_hardly_be_is_left_alone(text):
    assert texts(ask(text, "Hannah Coyle"), rules=("negation",)) == set()


def test_a_condition_is_a_year_or_a_place_that_is_not_in_the_answers_sentence():
    made = texts(ask("Who owned the weir?", "Hannah Coyle"), OTHER, rules=("condition",))
    of_weir = {text for text in made if "weir" in text}
    assert of_weir
    assert all("1887" not in text and (text.startswith("In ") or " in " in text) for text in of_weir)
    assert {"Who owned the weir in 1931?", "In 1931, who owned the weir?"} & made


MILL = "The weir of the county and its mill were sold in 1931. Oscar Reed owned the old mill before."
BUILDER = ask("Who built the old weir of the county?", "Hannah Coyle")


def test_a_question_is_borrowed_by_a_context_that_has_its_words_and_not_its_answer():
    other = ask("When was the mill sold?", "1931", MILL, "other", "Mills")
    found = make(BUILDER, other, rules=("borrowed",)).made
    assert [(each.question.text, each.question.context, each.question.title) for each in found] == [
        (BUILDER.text, MILL, "Mills")
    ]
    assert (found[0].question.id, found[0].question.answers) == ("q-near-borrowed", ())


@pytest.mark.parametrize(
    "context",
    [
        MILL.replace("Oscar Reed", "Hannah Coyle"),  # has the answer
        "Oscar Reed owned an old mill.",  # has one of the words
        "Oscar Reed built an old weir for the county. A mill was sold.",  # has all of them in a sentence
    ],
)
def test_a_context_with_the_answer_or_few_of_the_words_or_all_in_a_sentence_borrows_nothing(context):
    with pytest.raises(DataError, match="none of its 2 answerable"):
        make(BUILDER, ask("Who owned what?", "mill", context, "other"), rules=("borrowed",))


def test_a_context_that_has_the_question_already_does_not_borrow_it():
    twin = ask(BUILDER.text, "Oscar Reed", MILL, "twin")
    with pytest.raises(DataError, match="none of its 2 answerable"):
        make(BUILDER, twin, rules=("borrowed",))


def test_a_question_that_the_new_name_would_answer_again_is_thrown_out():
    context = "Hannah Coyle built a weir in 1887. Edward Stone built a weir in 1912."
    assert texts(ask("When did Hannah Coyle build a weir?", "1887", context), rules=("name",)) == set()


def test_what_is_put_in_is_not_of_the_answer_and_not_of_the_title():
    assert texts(ask("When did Hannah Coyle build it?", "Edward Stone"), rules=("name",)) == set()
    assert texts(ask("When did Hannah Coyle build it?", "1887", title="Edward Stone"), rules=("name",)) == set()


def test_a_question_of_the_paragraph_is_not_made_again():
    twin = ask("When did Edward Stone own the largest weir?", "1912", identity="twin")
    assert "When did Edward Stone own the largest weir?" not in texts(WHEN, twin, rules=("name",))
    first, second = (ask(f"Who{blank}was the owner?", "Leeds", identity=blank) for blank in (" ", "  "))
    assert len(make(first, second, rules=("negation",)).made) == 1


def test_an_article_fits_the_word_that_follows():
    question = ask("Who wrote a legal book?", "Martha Hale", RIVER)
    assert texts(question, rules=("antonym",)) == {"Who wrote an illegal book?"}


def sample():
    return list(read_squad("sample:train").examples)


def test_the_order_of_the_file_changes_nothing():
    questions = sample()
    shuffled = random.Random(3).sample(questions, len(questions))
    one, other = (make(*each, share=0.7).made for each in (questions, shuffled))
    assert {each.question for each in one} == {each.question for each in other}
    assert one[0].source.id == next(each.id for each in questions if each.id in {made.source.id for made in one})


def test_who_names_the_five_first_rules_gets_the_questions_that_the_shipped_models_learned_from():
    made = make(*sample(), share=0.75, rules=RULES[:5]).made
    listed = repr([(each.question.id, each.question.text) for each in made])
    # Of the version that trained them, which had no other rule.
    assert (len(made), hashlib.sha256(listed.encode()).hexdigest()[:12]) == (260, "c338282f8d90")


def test_a_larger_share_keeps_what_a_smaller_one_made_of_a_paragraphs_questions():
    questions = sample()
    few, many = ({each.source.id for each in make(*questions, share=share).made} for share in (0.3, 0.9))
    assert len(few) < len(many)
    assert len(few - many) <= 0.02 * len(few)  # those that equal one that was made before


def test_another_seed_makes_others_and_the_same_seed_the_same():
    questions = sample()
    one, same, other = ([each.question for each in make(*questions, seed=seed).made] for seed in (1, 1, 2))
    assert one == same
    assert one != other


def lowered(question):
    """Return a question in lower case, in a context of lower case, as an uncased file has it."""
    answers = tuple(GoldAnswer(each.text.lower(), each.start) for each in question.answers)
    return Question(question.id, question.text.lower(), question.context.lower(), answers, question.title.lower())


@pytest.mark.parametrize("change", [lambda question: question, lowered], ids=["cased", "lower-cased"])
def test_the_same_file_gives_the_same_near_misses_in_another_process(change, tmp_path):
    """Hashes of strings differ from process to process, and with them the order of sets."""
    write_squad(tmp_path / "in.json", [change(each) for each in sample()])
    written = []
    for seed in ("1", "2"):
        out = tmp_path / f"{seed}.json"
        code = f"import bertvision.data as data; data.make_near_misses({str(tmp_path / 'in.json')!r}, {str(out)!r})"
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        written.append(out.read_bytes())
    assert written[0] == written[1]
    assert written[0].count(b"-near-") > 20


def test_every_near_miss_is_unanswerable_new_and_without_its_old_answer():
    questions = sample()
    asked = {(each.context, each.text.lower()) for each in questions}
    for each in make(*questions).made:
        assert each.question.is_impossible
        assert (each.question.context, each.question.text.lower()) not in asked
        assert not any(f" {answer.text} " in each.question.text for answer in each.source.answers)


def squad(folder, name="in.json", **extra):
    qas = [{"id": "q", "question": WHO.text, "answers": [{"text": "Hannah Coyle", "answer_start": 8}], **extra}]
    article = {"title": "Weirs", "source": "mine", "paragraphs": [{"context": WEIR, "qas": qas}]}
    (folder / name).write_text(json.dumps({"version": "1.1", "data": [article]}))
    return folder / name


def test_a_file_of_squad_1_1_becomes_one_of_2_0_with_plausible_answers(tmp_path):
    make_near_misses(squad(tmp_path), tmp_path / "out.json.gz", {"fraction": 1.0, "rules": ["number"]})
    written = json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes()))
    own, near = written["data"][0]["paragraphs"][0]["qas"]
    assert (written["version"], written["data"][0]["source"]) == ("v2.0", "mine")
    assert own == {
        **json.loads(squad(tmp_path).read_text())["data"][0]["paragraphs"][0]["qas"][0],
        "is_impossible": False,
    }
    assert (near["id"], near["is_impossible"], near["answers"]) == ("q-near-number", True, [])
    assert near["plausible_answers"] == own["answers"]
    assert [each.is_impossible for each in read_squad(str(tmp_path / "out.json.gz")).examples] == [False, True]


def test_a_borrowed_question_is_written_into_the_paragraph_that_borrows_it(tmp_path):
    qas = [
        {
            "id": each.id,
            "question": each.text,
            "answers": [{"text": a.text, "answer_start": a.start} for a in each.answers],
        }
        for each in (BUILDER, ask("When was the mill sold?", "1931", MILL, "other"))
    ]
    paragraphs = [{"context": context, "qas": [qa]} for context, qa in zip((WEIR, MILL), qas, strict=True)]
    (tmp_path / "in.json").write_text(json.dumps({"data": [{"title": "Weirs", "paragraphs": paragraphs}]}))
    make_near_misses(tmp_path / "in.json", tmp_path / "out.json", {"fraction": 1.0, "rules": ["borrowed"]})
    own, other = json.loads((tmp_path / "out.json").read_text())["data"][0]["paragraphs"]
    assert [qa["id"] for qa in own["qas"]] == ["q"]
    assert [qa["id"] for qa in other["qas"]] == ["other", "q-near-borrowed"]
    assert other["qas"][1]["plausible_answers"] == []  # the old answer stands in the other paragraph


def test_of_a_slice_its_own_questions_are_written_alone(tmp_path):
    write_squad(tmp_path / "in.json", (WHO, ask("When was the mill sold?", "1931", MILL, "other", "Mills")))
    make_near_misses(f"{tmp_path / 'in.json'}[:1]", tmp_path / "out.json", {"fraction": 1.0, "rules": ["number"]})
    (article,) = json.loads((tmp_path / "out.json").read_text())["data"]
    (paragraph,) = article["paragraphs"]
    assert (article["title"], [qa["id"] for qa in paragraph["qas"]]) == ("Weirs", ["q", "q-near-number"])
    with pytest.raises(DataError, match="no example in this slice of 2"):
        make_near_misses(f"{tmp_path / 'in.json'}[2:]", tmp_path / "out.json")


def test_made_again_from_what_was_written_nothing_is_doubled(tmp_path):
    make_near_misses(squad(tmp_path), tmp_path / "out.json", {"fraction": 1.0, "rules": ["negation"]})
    with pytest.raises(DataError, match="none of its 1 answerable"):
        make_near_misses(tmp_path / "out.json", tmp_path / "two.json", {"fraction": 1.0, "rules": ["negation"]})


def test_what_was_made_is_counted_by_rule(tmp_path):
    made = make_near_misses(squad(tmp_path), tmp_path / "out.json", {"fraction": 1, "rules": ["number"]})
    assert made.summary == "1 near misses from 1 answerable questions (number 1)"
    assert made.counts == dict.fromkeys(RULES, 0) | {"number": 1}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"fraction": 1.5}, "fraction"),
        ({"fraction": float("nan")}, "fraction"),
        ({"rules": ["name", "spelling"]}, "rules"),
        ({"rules": ["name", "name"]}, "twice"),
        ({"rules": []}, "rules"),
        ({"rules": ["name"], "fraction": 1}, "none of its 1 answerable questions became a near miss"),
    ],
)
def test_what_cannot_be_made_is_refused(tmp_path, settings, told):
    with pytest.raises(BertVisionError, match=told):
        make_near_misses(squad(tmp_path), tmp_path / "out.json", settings)
    assert not (tmp_path / "out.json").exists()


def test_a_file_without_answers_and_the_file_itself_are_refused(tmp_path):
    source = squad(tmp_path)
    before = source.read_bytes()
    (tmp_path / "none.json").write_text(
        before.decode().replace(', "answer_start": 8', "").replace('{"text": "Hannah Coyle"}', "")
    )
    (tmp_path / "moved.json").write_text(before.decode().replace(": 8}", ": 7}"))
    (tmp_path / "link.json").symlink_to(source)
    for data, out, told in [
        (tmp_path / "none.json", tmp_path / "out.json", "has no answerable question"),
        (source, source, "is the file that is read"),
        (source, tmp_path / "link.json", "is the file that is read"),
        (tmp_path / "absent.json", tmp_path / "out.json", "cannot be read"),
        (tmp_path / "moved.json", tmp_path / "out.json", "; fix the number$"),  # no setting would help
    ]:
        with pytest.raises(BertVisionError, match=told):
            make_near_misses(data, out)
    assert source.read_bytes() == before


def experiment(saved_encoder, near_misses, task="squad2"):
    data = {"near_misses": near_misses, "held_out": 0.2 if task == "squad2" else 0.0}
    return build_experiment({"encoder": str(saved_encoder), "task": task, "data": data, "device": "cpu"}, origin="here")


def test_a_run_learns_from_near_misses_records_them_and_is_signed_with_them(saved_encoder, tmp_path):
    plain = prepare(experiment(saved_encoder, None), tmp_path, SILENT)
    context = prepare(experiment(saved_encoder, {"fraction": 0.5, "rules": ["negation"]}), tmp_path, SILENT)
    made = sum(context.data()["train"].near_misses.values())
    assert made
    assert context.data()["train"].examples == plain.data()["train"].examples + made
    assert len(context.train) > len(plain.train)
    assert context.held_out.split.examples == plain.held_out.split.examples
    settings_fingerprint = plain.settings_fingerprint("finetune")["train"]
    older = {key: value for key, value in settings_fingerprint.items() if key != "near_misses"}
    assert first_difference(older, settings_fingerprint) is None  # stages of older versions go on
    assert context.settings_fingerprint("finetune")["train"]["near_misses"]["rules"] == ["negation"]


def test_a_task_that_knows_no_unanswerable_question_refuses_near_misses(saved_encoder, tmp_path):
    with pytest.raises((SettingsError, DataError), match=r"squad2 and answerability|use task: squad2"):
        prepare(experiment(saved_encoder, {"fraction": 0.5}, task="squad1"), tmp_path, SILENT)
