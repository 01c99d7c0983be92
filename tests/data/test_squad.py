import copy
import gzip
import hashlib
import json
import sys

import datasets
import pytest

from bertvision.data.example import DataConfig, GoldAnswer, Question, Split
from bertvision.data.squad import read_squad, read_squad_file, read_squad_rows
from bertvision.errors import DataError, MissingExtraError
from bertvision.tasks import read_task

WEIR = "The weir was built in 1887 by Hannah Coyle."
MILL = "The mill closed in 1931."
DROP = "`data.on_bad=drop`"


def squad2():
    """Two articles, three paragraphs, four questions, one of them unanswerable, as SQuAD 2.0 writes them."""
    return {
        "version": "v2.0",
        "data": [
            {
                "title": "Weir",
                "paragraphs": [
                    {
                        "context": WEIR,
                        "qas": [
                            {
                                "id": "when",
                                "question": "When was it built?",
                                "is_impossible": False,
                                "answers": [
                                    {"text": "1887", "answer_start": 22},
                                    {"text": "in 1887", "answer_start": 19},
                                    {"text": "1887", "answer_start": 22},
                                ],
                            },
                            {
                                "id": "why",
                                "question": "Why was it built?",
                                "is_impossible": True,
                                "answers": [],
                                "plausible_answers": [{"text": "by Hannah Coyle", "answer_start": 27}],
                            },
                        ],
                    },
                    {"context": "Nobody asked about this.", "qas": []},
                ],
            },
            {
                "title": "Mill",
                "paragraphs": [
                    {
                        "context": MILL,
                        "qas": [
                            {
                                "id": "end",
                                "question": "When did it close?",
                                "is_impossible": False,
                                "answers": [{"text": "1931", "answer_start": 19}],
                            },
                            {
                                "id": "what",
                                "question": "What closed?",
                                "is_impossible": False,
                                "answers": [{"text": "The mill", "answer_start": 0}],
                            },
                        ],
                    }
                ],
            },
        ],
    }


QUESTIONS = (
    Question(
        "when",
        "When was it built?",
        WEIR,
        (GoldAnswer("1887", 22), GoldAnswer("in 1887", 19), GoldAnswer("1887", 22)),
        "Weir",
    ),
    Question("why", "Why was it built?", WEIR, (), "Weir"),
    Question("end", "When did it close?", MILL, (GoldAnswer("1931", 19),), "Mill"),
    Question("what", "What closed?", MILL, (GoldAnswer("The mill", 0),), "Mill"),
)


def squad1():
    """The same without the unanswerable question and without the fields that version 1.1 does not have."""
    content = squad2() | {"version": "1.1"}
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [qa for qa in paragraph["qas"] if qa["answers"]]
            for qa in paragraph["qas"]:
                del qa["is_impossible"]
    return content


def qa_of(content, article, paragraph, question):
    return content["data"][article]["paragraphs"][paragraph]["qas"][question]


@pytest.fixture
def write(tmp_path):
    """Write bytes, text or JSON to a file and give its path as text, which is what a user types."""

    def write_file(content, name="data.json"):
        path = tmp_path / name
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write_file


def message_of(caught):
    """Return an error's text, which must be one line."""
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


def refusal(source, **options):
    with pytest.raises(DataError) as caught:
        read_squad(source, **options)
    return message_of(caught)


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "bom"])
@pytest.mark.parametrize(
    ("name", "pack"),
    [("data.json", bytes), ("data", bytes), ("data.json.gz", gzip.compress), ("data.json", gzip.compress)],
    ids=["json", "no suffix", "gzip", "gzip that is called json"],
)
def test_squad2_is_read_whole(write, name, pack, mark):
    raw = pack((mark + json.dumps(squad2())).encode())
    source = write(raw, name)
    assert read_squad(source) == Split(source, QUESTIONS, 0, hashlib.sha256(raw).hexdigest())


def test_questions_without_answers_are_impossible(write):
    questions = read_squad(write(squad2())).examples
    assert [question.is_impossible for question in questions] == [False, True, False, False]


def test_squad1_needs_no_is_impossible(write):
    questions = read_squad(write(squad1())).examples
    assert questions == tuple(question for question in QUESTIONS if question.answers)


def test_a_question_that_does_not_say_whether_it_is_impossible_is_so_if_it_has_no_answers(write):
    content = squad2()
    for place in (0, 1):
        del qa_of(content, 0, 0, place)["is_impossible"]
    assert read_squad(write(content)).examples == QUESTIONS


def test_characters_are_counted_not_bytes(write):
    content = squad1()
    content["data"][1]["paragraphs"][0] = {
        "context": "Œuvre 🎉 à Lœuf",
        "qas": [{"id": "q", "question": "Où?", "answers": [{"text": "Lœuf", "answer_start": 10}]}],
    }
    question = read_squad(write(json.dumps(content, ensure_ascii=False))).examples[-1]
    assert question.answers == (GoldAnswer("Lœuf", 10),)


@pytest.mark.parametrize(
    ("content", "name", "problem"),
    [
        ('{"data": [', "data.json", "not JSON: Expecting value at line 1, column 11; give a SQuAD .json"),
        ('{"a": 1}\n{"a": 2}\n', "data.jsonl", "not JSON: Extra data at line 2, column 1"),
        ("[" * 100_000, "data.json", "not JSON that can be read: nested too deeply"),
        ('{"data": [1], "data": []}', "data.json", "not JSON that can be read: the key 'data' stands twice"),
        ('{"data": [' + "1" * 5_000 + "]}", "data.json", "not JSON"),  # Python refuses numbers of this length
        (
            "text,label\nFine.,good\n",
            "rows.csv",
            "not JSON: Expecting value at line 1, column 1; give a SQuAD .json or",
        ),
        ([squad2()], "data.json", 'not SQuAD: expected {"data": '),
        ({"version": "v2.0"}, "data.json", 'not SQuAD: expected {"data": '),
        ({"data": {"title": "Weir"}}, "data.json", 'not SQuAD: expected {"data": '),
        ("null", "data.json", 'not SQuAD: expected {"data": '),
        ("", "data.json", "the file is empty; expected SQuAD JSON"),
        (" \n\t\n", "data.json", "the file is empty; expected SQuAD JSON"),
        (b"", "data.json.gz", "the file is empty; expected SQuAD JSON"),
        (gzip.compress(b"", mtime=0), "data.json.gz", "the file is empty; expected SQuAD JSON"),
        ({"data": []}, "data.json", "no question in it; is it the right file?"),
        (b'{"data": "\xff\xfe"}', "data.json", "not UTF-8 text (byte 10); give a SQuAD .json, saved as UTF-8"),
        (b'{"data": []}', "data.json.gz", "cannot be read (Not a gzipped file"),
    ],
)
def test_a_file_that_is_not_squad_is_refused_in_one_line(write, content, name, problem):
    source = write(content, name)
    assert refusal(source).startswith(f"{source}: {problem}")


@pytest.mark.parametrize("kept", [2, 10, 40, -9, -1])
def test_a_gzip_file_that_was_cut_off_is_refused(write, kept):
    source = write(gzip.compress(json.dumps(squad2()).encode())[:kept], "data.json.gz")
    assert refusal(source) == f"{source}: the gzip file is damaged or cut off; get it again"


def test_a_gzip_file_with_damaged_bytes_is_refused(write):
    raw = bytearray(gzip.compress(json.dumps(squad2()).encode()))
    raw[20:40] = bytes(20)
    assert refusal(write(bytes(raw), "data.json.gz")).endswith("the gzip file is damaged or cut off; get it again")


@pytest.mark.parametrize("name", ["gone.json", "gone.json.gz", "gone.jsonl"])
def test_a_missing_file_is_named(tmp_path, name):
    source = str(tmp_path / name)
    assert refusal(source).startswith(f"{source}: cannot be read (No such file or directory); give a SQuAD .json")


def test_a_folder_is_no_file(tmp_path):
    assert refusal(str(tmp_path)).startswith(f"{tmp_path}: cannot be read (Is a directory); give a SQuAD .json")


@pytest.mark.parametrize("source", ["squad", "a/b/c/d", "owner/name:train:10", "sample:test", "x" * 300])
def test_what_is_neither_a_file_nor_a_hub_id_is_refused_with_what_can_be_given(source):
    message = refusal(source)
    assert message.startswith(f"{source}: no such file")
    assert all(choice in message for choice in (".json.gz", "sample:train", "sample:dev", "owner/name[:split]"))


# Where something is wrong with one question, everything that leads to it is named.
AT_END = "article 2 ('Mill'), paragraph 1, question 'end'"
AT_WHEN = "article 1 ('Weir'), paragraph 1, question 'when'"


def without(path, key):
    """A change that takes a key away; `path` leads to its object from `data` on."""

    def change(content):
        del object_at(content, path)[key]

    return change


def with_value(path, key, value):
    """A change that sets a key."""

    def change(content):
        object_at(content, path)[key] = value

    return change


def object_at(content, path):
    found = content["data"]
    for step in path:
        found = found[step]
    return found


ARTICLE, PARAGRAPH, END = (1,), (1, "paragraphs", 0), (1, "paragraphs", 0, "qas", 0)
ANSWER = (*END, "answers", 0)
PLACES = ("article 2 ('Mill')", "article 2 ('Mill'), paragraph 1", AT_END)


@pytest.mark.parametrize(
    ("change", "place", "problem"),
    [
        (without(ARTICLE, "paragraphs"), PLACES[0], "`paragraphs` is missing; give a list"),
        (with_value(ARTICLE, "paragraphs", {}), PLACES[0], "`paragraphs` has type dict; give a list"),
        (with_value((), 1, "Mill"), "article 2 ('')", "expected an object with `paragraphs`, got str"),
        (with_value((1, "paragraphs"), 0, []), PLACES[1], "expected an object with `qas`, got list"),
        (without(PARAGRAPH, "context"), PLACES[1], "`context` is missing; give its text"),
        (with_value(PARAGRAPH, "context", ["The mill"]), PLACES[1], "`context` has type list; give its text"),
        (without(PARAGRAPH, "qas"), PLACES[1], "`qas` is missing; give a list"),
        (with_value(PARAGRAPH, "qas", None), PLACES[1], "`qas` has type NoneType; give a list"),
    ],
)
@pytest.mark.parametrize("on_bad", ["fail", "drop"])
def test_a_broken_article_or_paragraph_is_refused_with_its_place(write, change, place, problem, on_bad):
    content = squad2()
    change(content)
    source = write(content)
    assert refusal(source, on_bad=on_bad) == f"{source}: {place}: {problem}"


BAD_QUESTIONS = [
    (without(END, "id"), AT_END.replace("'end'", "number 1"), "`id` is missing; give it as text"),
    (with_value(END, "id", 7), AT_END.replace("'end'", "7"), "`id` has type int; give it as text"),
    (without(END, "question"), AT_END, "`question` is missing; give it as text"),
    (with_value(END, "question", ["When?"]), AT_END, "`question` has type list; give it as text"),
    (without(END, "answers"), AT_END, "`answers` is missing; give a list, empty where there is no answer"),
    (
        with_value(END, "answers", {"text": ["1931"]}),
        AT_END,
        "`answers` has type dict; give a list, empty where there is no answer",
    ),
    (
        with_value(PARAGRAPH, "qas", ["When did it close?"]),
        AT_END.replace("'end'", "number 1"),
        "expected an object with `id`, `question` and `answers`, got str",
    ),
    (with_value(END, "is_impossible", "false"), AT_END, "`is_impossible` has type str; give true or false"),
    (with_value(END, "is_impossible", None), AT_END, "`is_impossible` has type NoneType; give true or false"),
    (
        with_value(END, "is_impossible", True),
        AT_END,
        "`is_impossible` is true but `answers` holds 1; fix one of them",
    ),
    (with_value(END, "answers", []), AT_END, "`is_impossible` is false but `answers` is empty; fix one of them"),
    (with_value((*END, "answers"), 0, "1931"), AT_END, "an answer needs a `text`; give it as text"),
    (without(ANSWER, "text"), AT_END, "an answer needs a `text`; give it as text"),
    (with_value(ANSWER, "text", 1931), AT_END, "an answer needs a `text`; give it as text"),
    (
        with_value(ANSWER, "text", " "),
        AT_END,
        "an answer's text is empty; unanswerable questions have no answers at all",
    ),
    *(
        (
            with_value(path, key, "half \ud83d"),
            AT_END.replace("'end'", repr("half \ud83d") if key == "id" else "'end'"),
            f"its {key} holds half a surrogate pair, which is no text; fix the file",
        )
        for path, key in ((END, "id"), (END, "question"))
    ),
    *(
        (
            change,
            AT_END,
            f"`answer_start` {problem}; give the answer's first character as a number",
        )
        for change, problem in (
            (without(ANSWER, "answer_start"), "is missing"),
            (with_value(ANSWER, "answer_start", "19"), "has type str"),
            (with_value(ANSWER, "answer_start", 19.0), "has type float"),
            (with_value(ANSWER, "answer_start", True), "has type bool"),
        )
    ),
    *(
        (
            with_value(ANSWER, "answer_start", start),
            AT_END,
            f"the answer '1931' is not at answer_start {start}, where {there!r} stands; fix the number",
        )
        for start, there in ((18, " 193"), (-5, "The "), (21, "31."), (400, ""))
    ),
    (
        with_value((0, "paragraphs", 0, "qas", 0, "answers", 1), "answer_start", 20),
        AT_WHEN,
        "the answer 'in 1887' is not at answer_start 20, where 'n 1887 ' stands; fix the number",
    ),
]


@pytest.mark.parametrize(("change", "place", "problem"), BAD_QUESTIONS)
def test_a_bad_question_is_refused_with_its_place_and_what_to_do(write, change, place, problem):
    content = squad2()
    change(content)
    source = write(content)
    assert refusal(source) == f"{source}: {place}: {problem}, or leave it out with {DROP}"


@pytest.mark.parametrize(("change", "place", "problem"), BAD_QUESTIONS)
def test_a_bad_question_can_be_dropped_and_is_counted(write, change, place, problem):
    content = squad2()
    change(content)
    split = read_squad(write(content), on_bad="drop")
    assert split.dropped == 1
    whole = {question.id: question for question in QUESTIONS}
    assert all(question == whole[question.id] for question in split.examples)
    assert ("when" if place == AT_WHEN else "end") not in [question.id for question in split.examples]


@pytest.mark.parametrize("context", ["", " \n\t"])
def test_questions_about_an_empty_context_are_bad(write, context):
    content = squad2()
    content["data"][1]["paragraphs"][0]["context"] = context
    source = write(content)
    assert refusal(source) == (
        f"{source}: {AT_END}: the context is empty; give the text that the question is about "
        f"(2 bad questions; this is the first), or leave it out with {DROP}"
    )
    split = read_squad(source, on_bad="drop")
    assert (split.examples, split.dropped) == (QUESTIONS[:2], 2)


def misplace(content, *ids):
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                if qa["id"] in ids:
                    qa["answers"][0]["answer_start"] += 1
    return content


def test_answers_that_do_not_stand_where_they_say_are_counted_and_the_first_is_named(write):
    source = write(misplace(squad2(), "when", "end", "what"))
    message = refusal(source)
    assert message.startswith(f"{source}: {AT_WHEN}: the answer '1887' is not at answer_start 23, where '887 ' stands")
    assert "(3 bad questions; this is the first)" in message
    assert message.endswith(DROP)


def test_misplaced_answers_can_be_dropped_and_are_counted(write):
    split = read_squad(write(misplace(squad2(), "when", "what")), on_bad="drop")
    assert [question.id for question in split.examples] == ["why", "end"]
    assert split.dropped == 2


def test_a_file_of_which_nothing_is_left_is_refused_and_says_why(write):
    source = write(misplace(squad1(), "when", "end", "what"))
    message = refusal(source, on_bad="drop")
    assert message.startswith(f"{source}: no question in it; all 3 were dropped, the first: {source}: {AT_WHEN}: the")


def test_a_duplicate_id_is_refused_with_the_place_of_the_second_question(write):
    content = squad2()
    qa_of(content, 1, 0, 0)["id"] = "when"
    source = write(content)
    message = refusal(source)
    assert message.startswith(f"{source}: article 2 ('Mill'), paragraph 1, question 'when': duplicate id; give every")


def test_of_two_questions_with_one_id_the_first_is_kept(write):
    content = squad2()
    qa_of(content, 1, 0, 0)["id"] = "when"
    split = read_squad(write(content), on_bad="drop")
    assert split.examples == (*QUESTIONS[:2], QUESTIONS[3])
    assert split.dropped == 1


def test_titles_are_optional(write):
    content = squad2()
    del content["data"][0]["title"]
    assert [question.title for question in read_squad(write(content)).examples] == ["", "", "Mill", "Mill"]


def texts_by_id(split):
    return {question.id: [answer.text for answer in question.answers] for question in split.examples}


def test_for_prediction_answers_are_optional(write):
    content = misplace(squad2(), "when")
    del qa_of(content, 1, 0, 0)["answers"]
    del qa_of(content, 1, 0, 1)["answers"][0]["answer_start"]
    split = read_squad(write(content), answers="optional")
    assert texts_by_id(split) == {"when": ["1887", "in 1887", "1887"], "why": [], "end": [], "what": ["The mill"]}


def test_for_scoring_the_texts_of_answers_are_enough(write):
    content = misplace(squad2(), "when")
    qa_of(content, 1, 0, 0)["is_impossible"] = True  # the official script looks at the answers alone
    del qa_of(content, 1, 0, 1)["answers"][0]["answer_start"]
    split = read_squad(write(content), answers="optional")
    assert texts_by_id(split) == {"when": ["1887", "in 1887", "1887"], "why": [], "end": ["1931"], "what": ["The mill"]}


def test_for_scoring_a_question_needs_answers_and_there_is_no_setting_to_drop_it(write):
    content = squad2()
    del qa_of(content, 1, 0, 0)["answers"]
    source = write(content)
    message = refusal(source, answers="texts")
    assert message == f"{source}: {AT_END}: `answers` is missing; give a list, empty where there is no answer"


def test_both_splits_of_a_task_are_read(write):
    train, dev = write(squad2(), "train.json"), write(misplace(squad1(), "end"), "dev.json.json")
    task = read_task("squad2", DataConfig(train=train, dev=dev, on_bad="drop"))
    assert (task.name, task.kind.has_null) == ("squad2", True)
    assert (task.train.examples, task.train.dropped) == (QUESTIONS, 0)
    assert ([question.id for question in task.dev.examples], task.dev.dropped) == (["when", "what"], 1)


@pytest.mark.parametrize("split", ["train", "dev"])
def test_squad1_refuses_unanswerable_questions_in_either_split(write, split):
    files = {"train": write(squad1(), "fine.json"), "dev": write(squad1(), "fine.json")}
    files[split] = write(squad2(), "two.json")
    with pytest.raises(DataError) as caught:
        read_task("squad1", DataConfig(**files))
    assert message_of(caught) == (
        f"{files[split]}: question 'why' has no answer, which SQuAD 1.1 does not know; use task: squad2, or "
        "leave such questions out with data.on_bad=drop"
    )


def test_squad1_leaves_unanswerable_questions_out_where_bad_ones_are_dropped(write):
    source = write(squad2())
    task = read_task("squad1", DataConfig(train=source, dev=source, on_bad="drop"))
    kept = [question for question in QUESTIONS if question.answers]
    assert (list(task.train.examples), task.train.dropped) == (kept, len(QUESTIONS) - len(kept))
    assert task.train.dropped > 0


def test_squad1_takes_answerable_questions(write):
    source = write(squad1())
    task = read_task("squad1", DataConfig(train=source, dev=source))
    assert (len(task.train.examples), task.kind.has_null) == (3, False)


# The rows of the hub's data sets hold the answers as two lists.
ROWS = [
    {
        "id": question.id,
        "title": question.title,
        "context": question.context,
        "question": question.text,
        "answers": {
            "text": [answer.text for answer in question.answers],
            "answer_start": [answer.start for answer in question.answers],
        },
    }
    for question in QUESTIONS
]


@pytest.mark.parametrize("pack", [list, datasets.Dataset.from_list], ids=["plain", "datasets"])
def test_rows_of_the_hub_give_the_same_questions_as_files(pack):
    assert read_squad_rows(pack(copy.deepcopy(ROWS)), "hub") == Split("hub", QUESTIONS, 0, None)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"context": None}, "the context is empty; give the text that the question is about"),
        ({"question": None}, "`question` has type NoneType; give it as text"),
        ({"answers": None}, "`answers` has type NoneType; give a list, empty where there is no answer"),
        ({"answers": {"text": ["1931"], "answer_start": [18]}}, "the answer '1931' is not at answer_start 18, where"),
        ({"answers": {"text": ["1931"], "answer_start": []}}, "`answers`"),  # one list is longer than the other
        ({"answers": {"text": None, "answer_start": None}}, "`answers`"),
    ],
)
def test_a_bad_row_is_refused_with_its_number_and_can_be_dropped(changed, problem):
    rows = [*ROWS[:2], ROWS[2] | changed, ROWS[3]]
    with pytest.raises(DataError) as caught:
        read_squad_rows(rows, "hub")
    assert message_of(caught).startswith(f"hub: row 3, question 'end': {problem}")
    split = read_squad_rows(rows, "hub", on_bad="drop")
    assert (split.examples, split.dropped) == ((*QUESTIONS[:2], QUESTIONS[3]), 1)


def test_a_row_with_the_id_of_another_is_refused_with_its_number():
    with pytest.raises(DataError) as caught:
        read_squad_rows([*ROWS, ROWS[1]], "hub")
    assert message_of(caught).startswith("hub: row 5, question 'why': duplicate id")


def test_a_data_set_without_rows_is_refused():
    with pytest.raises(DataError, match="hub: no question in it"):
        read_squad_rows([], "hub")


@pytest.mark.parametrize(
    ("source", "options", "asked"),
    [
        ("owner/name:validation", {}, ("owner/name", "validation")),
        ("owner/name", {}, ("owner/name", "train")),
        ("owner/name", {"hub_split": "validation"}, ("owner/name", "validation")),
        ("owner/name:test", {"hub_split": "validation"}, ("owner/name", "test")),
    ],
)
def test_a_hub_id_is_loaded_by_datasets(monkeypatch, source, options, asked):
    calls = []

    def load_dataset(name, *, split):
        calls.append((name, split))
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert read_squad(source, **options) == Split(source, QUESTIONS, 0, None)
    assert calls == [asked]


def test_a_task_reads_the_hubs_train_and_validation_splits(monkeypatch):
    calls = []
    monkeypatch.setattr(datasets, "load_dataset", lambda name, *, split: calls.append((name, split)) or ROWS)
    read_task("squad2", DataConfig(train="owner/name", dev="owner/name"))
    assert calls == [("owner/name", "train"), ("owner/name", "validation")]


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("offline\nmode"),
        ValueError("Unknown split\n'dev'."),
        datasets.exceptions.DatasetNotFoundError("gone\n" * 100),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_data_set_that_cannot_be_loaded_is_refused_in_one_line(monkeypatch, error):
    def load_dataset(name, *, split):
        raise error

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    message = refusal("owner/name:dev")
    assert message.startswith("owner/name: split 'dev' cannot be loaded from the hub (")
    assert str(error).split()[0] in message


@pytest.mark.usefixtures("no_network")
def test_a_hub_id_without_a_network_is_refused_at_once_with_what_to_do():
    with pytest.raises(DataError, match=r"hannah/weirs: .*; the hub cannot be reached .*; give a file$"):
        read_squad("hannah/weirs", hub_split="train")


def test_without_datasets_a_hub_id_asks_for_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # what `import datasets` meets where it is not installed
    with pytest.raises(MissingExtraError) as caught:
        read_squad("owner/name")
    assert message_of(caught) == "this needs the package datasets: pip install 'bertvision[hub]'"


def test_a_file_goes_before_a_hub_id_of_the_same_name(monkeypatch, tmp_path):
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "name").write_text(json.dumps(squad2()))
    monkeypatch.chdir(tmp_path)
    assert read_squad("owner/name").examples == QUESTIONS


def test_a_path_is_named_as_the_caller_names_it(write, tmp_path):
    write(squad2())
    assert read_squad_file(tmp_path / "data.json", name="mine").name == "mine"


@pytest.fixture(scope="module")
def samples():
    """Both splits that ship with the package."""
    return {source: read_squad(source) for source in ("sample:train", "sample:dev")}


def test_the_shipped_data_are_read_without_drops(samples):
    assert [(split.name, split.dropped) for split in samples.values()] == [("sample:train", 0), ("sample:dev", 0)]


def test_the_shipped_data_have_enough_passages_and_questions(samples):
    questions = [question for split in samples.values() for question in split.examples]
    assert len({question.context for question in questions}) >= 60
    assert len(questions) >= 600


@pytest.mark.parametrize("source", ["sample:train", "sample:dev"])
def test_each_shipped_split_has_answerable_and_unanswerable_questions(samples, source):
    assert {question.is_impossible for question in samples[source].examples} == {True, False}


@pytest.mark.parametrize("part", ["context", "title", "id"])
def test_the_shipped_splits_share_nothing(samples, part):
    train, dev = ({getattr(question, part) for question in split.examples} for split in samples.values())
    assert train
    assert dev
    assert train.isdisjoint(dev)


def test_a_task_reads_the_shipped_data_unless_told_otherwise(samples):
    task = read_task("squad2", DataConfig())
    assert [task.train, task.dev] == list(samples.values())
