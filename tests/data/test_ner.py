import pytest

from bertvision.data.conll import read_ner, to_iob2
from bertvision.data.example import DataConfig, Sentence
from bertvision.errors import DataError
from bertvision.tasks import read_task

CONLL = """-DOCSTART- -X- O O

Anna NNP B-NP B-PER
Berg NNP I-NP I-PER
left VBD B-VP O

Leeds NNP B-NP B-LOC

-DOCSTART- -X- O O

Hm UH O O
"""
SENTENCES = (
    Sentence("0", ("Anna", "Berg", "left"), ("B-PER", "I-PER", "O"), 0),
    Sentence("1", ("Leeds",), ("B-LOC",), 0),
    Sentence("2", ("Hm",), ("O",), 1),
)


@pytest.fixture
def write(tmp_path):
    def to_file(content, name="train.conll"):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(tmp_path / name)

    return to_file


@pytest.mark.parametrize(
    "content",
    [
        CONLL,
        CONLL.replace(" ", "\t"),
        CONLL.replace("\n", "\r\n"),
        "\ufeff" + CONLL.rstrip("\n"),
        CONLL.replace("\n\n", "\n \n\n"),
        CONLL.removeprefix("-DOCSTART- -X- O O\n\n"),
    ],
)
def test_words_tags_sentences_and_documents_are_read(write, content):
    split = read_ner(write(content))
    assert (split.examples, split.dropped) == (SENTENCES, 0)


# The same three entities, two of one type side by side; after Ramshaw and Marcus (1995) and Tjong Kim Sang (1999).
IOB1 = ("I-PER", "I-PER", "B-PER", "O", "I-LOC")
IOB2 = ("B-PER", "I-PER", "B-PER", "O", "B-LOC")
BIOES = ("B-PER", "E-PER", "S-PER", "O", "S-LOC")


@pytest.mark.parametrize("tags", [IOB1, IOB2, BIOES], ids=["iob1", "iob2", "bioes"])
def test_every_way_of_tagging_becomes_iob2(tags):
    assert to_iob2(tags) == IOB2


def test_an_inside_of_another_type_begins_an_entity():
    assert to_iob2(("B-PER", "I-LOC", "E-PER", "I-PER")) == ("B-PER", "B-LOC", "B-PER", "B-PER")


def test_a_type_may_have_a_hyphen():
    assert to_iob2(("S-MISC-I", "I-MISC-I")) == ("B-MISC-I", "B-MISC-I")


def in_columns(tags):
    return "".join(f"w{number} {tag}\n" for number, tag in enumerate(tags))


@pytest.mark.parametrize(("tagging", "tags"), [("iob1", IOB1), ("iob2", IOB2), ("bioes", BIOES)])
def test_the_way_of_tagging_can_be_named(write, tagging, tags):
    assert read_ner(write(in_columns(tags)), tagging=tagging).examples[0].tags == IOB2


@pytest.mark.parametrize(
    ("tagging", "tags", "problem"),
    [
        ("iob2", IOB1, "line 1: 'I-PER' after 'O' is not IOB2"),
        ("iob1", IOB2, "line 1: 'B-PER' after 'O' is not IOB1"),
        ("iob2", BIOES, "line 2: 'E-PER' is no tag of IOB2"),
        ("bioes", IOB1, "line 1: 'I-PER' after 'O' is not BIOES"),
        ("auto", ("O", "PER"), "line 2: 'PER' is no tag of IOB or BIOES; give O or such as B-PER"),
        ("auto", ("O", "B-"), "line 2: 'B-' is no tag of"),
        ("auto", ("o",), "line 1: 'o' is no tag of"),
    ],
)
def test_tags_of_another_kind_are_refused_with_their_line(write, tagging, tags, problem):
    source = write(in_columns(tags))
    with pytest.raises(DataError) as caught:
        read_ner(source, tagging=tagging)
    assert str(caught.value).startswith(f"{source}: {problem}")


def test_a_malformed_line_is_refused_with_its_number_and_takes_its_sentence_along(write):
    source = write(CONLL.replace("Berg NNP I-NP I-PER", "Berg;"))
    with pytest.raises(DataError) as caught:
        read_ner(source)
    assert str(caught.value) == (
        f"{source}: line 4: only 'Berg;' on it; give a word and its tag, or leave it out with `data.on_bad=drop`"
    )
    split = read_ner(source, on_bad="drop")
    assert (split.examples, split.dropped) == (SENTENCES[1:], 1)


def test_bytes_that_are_no_text_are_refused_with_their_line(write):
    with pytest.raises(DataError, match="line 3: not UTF-8 text; save the file as UTF-8"):
        read_ner(write(CONLL.encode().replace(b"Anna", b"Ann\xe9")))


def test_words_alone_are_read_for_prediction(write):
    source = write("Anna\nleft\n\nHm\n")
    assert [each.tags for each in read_ner(source, needs_labels=False).examples] == [None, None]
    with pytest.raises(DataError, match="line 1: only 'Anna' on it"):
        read_ner(source)


def test_a_task_has_both_tags_of_every_type_of_train_and_refuses_others_in_dev(write):
    train = write(CONLL)
    task = read_task("ner", DataConfig(train=train, dev=train))
    assert (task.kind.name, task.labels) == ("tags", ("O", "B-LOC", "I-LOC", "B-PER", "I-PER"))
    dev = write(CONLL + "\nNato B-ORG\n", "dev.conll")
    with pytest.raises(DataError, match=r"line 13: tag 'B-ORG' is unknown; known: B-LOC, B-PER, I-LOC, I-PER, O"):
        read_task("ner", DataConfig(train=train, dev=dev))


def test_an_empty_or_missing_file_is_refused(write):
    with pytest.raises(DataError, match="no sentence in it"):
        read_ner(write("\n\n"))
    with pytest.raises(DataError, match=r"cannot be read \(No such file or directory\); give a CoNLL file"):
        read_ner("missing.conll")
