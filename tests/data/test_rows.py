import gzip
import json
import sys

import pyarrow
import pyarrow.parquet
import pytest

from bertvision.data.example import ColumnsConfig, DataConfig, TextRow
from bertvision.data.rows import RowLayout, read_rows
from bertvision.data.shards import ShardFormat, read_shard
from bertvision.data.text_format import TextFormat
from bertvision.errors import DataError, MissingExtraError
from bertvision.tasks import read_labelled, read_task

REVIEWS = 'review,stars\nGood soup,5\n"Cold, and late",1\nFine,5\n'
ROWS = (TextRow("0", ("Good soup",), 1), TextRow("1", ("Cold, and late",), 0), TextRow("2", ("Fine",), 1))
COLUMNS = ColumnsConfig(text="review", label="stars")


@pytest.fixture
def write(tmp_path):
    """Write a file of text, bytes or JSON lines and give its name."""

    def to_file(name, content):
        path = tmp_path / name
        if isinstance(content, list):
            content = "".join(json.dumps(row) + "\n" for row in content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return to_file


def read(source, task="classification", labels=(), **settings):
    settings.setdefault("columns", COLUMNS)
    return read_labelled(task, source, DataConfig(**settings), labels)


def refusal(source, **settings):
    """Return the message with which a file is refused: one line that names the file."""
    with pytest.raises(DataError) as caught:
        read(source, **settings)
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"{source}: ")


def as_parquet(path, rows):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return str(path)


DICTS = [{"review": "Good soup", "stars": 5}, {"review": "Cold, and late", "stars": 1}, {"review": "Fine", "stars": 5}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", REVIEWS),
        ("a.csv", REVIEWS.replace("\n", "\r\n")),
        ("a.csv", "\ufeff" + REVIEWS.removesuffix("\n")),
        ("a.tsv", "review\tstars\nGood soup\t5\nCold, and late\t1\n\nFine\t5"),
        ("a.txt", "id\treview\tstars\n7\tGood soup\t5\n8\tCold, and late\t1\n9\tFine\t5\n"),
        ("a.jsonl", DICTS),
        ("a.csv.gz", gzip.compress(REVIEWS.encode(), mtime=0)),
    ],
)
def test_every_format_gives_the_same_rows(write, name, content):
    split, labels = read(write(name, content))
    assert (split.examples, split.dropped, labels) == (ROWS, 0, ("1", "5"))


def test_parquet_gives_the_same_rows_also_where_whole_numbers_are_floats(tmp_path):
    split, labels = read(as_parquet(tmp_path / "a.parquet", [row | {"stars": float(row["stars"])} for row in DICTS]))
    assert (split.examples, labels) == (ROWS, ("1", "5"))


def test_parquet_without_pyarrow_asks_for_the_extra(monkeypatch, tmp_path):
    source = as_parquet(tmp_path / "a.parquet", DICTS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtraError, match=r"^this needs the package pyarrow: pip install 'bertvision\[parquet\]'$"
    ):
        read(source)


def test_a_file_that_is_no_parquet_is_refused(write):
    assert refusal(write("a.parquet", "review,stars\n")).startswith("cannot be read as Parquet (")


def test_parquet_whose_text_is_not_utf8_is_refused(tmp_path):
    path, table = tmp_path / "a.parquet", pyarrow.Table.from_pylist([{"review": "Weir", "stars": 1}] * 2)
    pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    path.write_bytes(path.read_bytes().replace(b"Weir", b"\xffeir", 1))
    assert refusal(str(path)).startswith("cannot be read as Parquet ('utf-8' codec can't decode byte 0xff")


def test_parquet_that_becomes_far_more_than_its_bytes_is_refused(tmp_path, monkeypatch):
    source = as_parquet(tmp_path / "a.parquet", [{"review": "Weir", "stars": 1}] * 10_000)
    monkeypatch.setenv("BERTVISION_MAX_UNPACKED", "19999")  # two cells a row
    assert "become more than 19,999 when unpacked" in refusal(source)
    monkeypatch.delenv("BERTVISION_MAX_UNPACKED")
    assert len(read(source)[0].examples) == 10_000


LONG = "weir " * 20_000  # 100 kB
BOMBS = {  # each a few hundred bytes that become 100 MB or more
    "a text": ([LONG] * 1000, {}),
    "a text in lists": ([[LONG] * 10] * 100, {}),
    "a text in one list": ([[LONG] * 1000], {}),
    "a text in a part of a cell": ([{"a": LONG}] * 1000, {}),
    "a text that begins as the one before": ([LONG] * 1000, {"column_encoding": {"review": "DELTA_BYTE_ARRAY"}}),
    "a list of texts that begin so": (
        [[LONG] * 1000],
        {"column_encoding": {"review.list.element": "DELTA_BYTE_ARRAY"}},
    ),
    "no text a million times": ([[None] * 6_000_000], {}),
}


@pytest.mark.parametrize("name", BOMBS)
def test_parquet_that_names_one_text_many_times_is_refused_before_it_is_written_out(tmp_path, monkeypatch, name):
    cells, encoding = BOMBS[name]
    path, table = tmp_path / "a.parquet", pyarrow.table({"review": cells, "stars": [1] * len(cells)})
    options = {"use_dictionary": False, **encoding} if encoding else {"dictionary_pagesize_limit": 2**20}
    pyarrow.parquet.write_table(table, path, compression="zstd", data_page_size=2**30, **options)
    assert path.stat().st_size < 20_000
    monkeypatch.setenv("BERTVISION_MAX_UNPACKED", "20000000")
    assert "become more than 20,000,000 when unpacked" in refusal(str(path))
    if name == "a text that begins as the one before":  # a shard may: it is read a few rows at a time
        return
    with pytest.raises(DataError, match="become more than 20,000,000 when unpacked"):
        list(read_shard(path, ShardFormat(TextFormat()), lambda more: None))


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_parquet_in_any_encoding_gives_the_same_rows(tmp_path, encoding):
    rows = [{"review": f"Weir {n}", "stars": n % 5} for n in range(3000)]
    path, table = tmp_path / "a.parquet", pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(
        table, path, use_dictionary=False, column_encoding={"review": encoding, "stars": "PLAIN"}
    )
    assert [row.texts for row in read(str(path))[0].examples] == [(row["review"],) for row in rows]


def test_columns_are_text_and_label_unless_told_otherwise(write):
    split, labels = read(write("a.csv", "label,text\nb,x\na,y\nb,z\n"), columns=None)
    assert [(row.texts, labels[row.label]) for row in split.examples] == [(("x",), "b"), (("y",), "a"), (("z",), "b")]


def test_without_header_columns_have_numbers_from_0(write):
    source = write("a.tsv", "1\tone\tuno\n0\ttwo\tdue\n1\tsix\tsei\n")
    split, _ = read(source, columns=ColumnsConfig(text=(1, 2), label=0))
    assert [row.texts for row in split.examples] == [("one", "uno"), ("two", "due"), ("six", "sei")]
    assert [row.label for row in split.examples] == [1, 0, 1]


def test_numbers_can_go_with_a_header(write):
    split, labels = read(write("a.csv", REVIEWS), columns=ColumnsConfig(text=0, label=1), header=True)
    assert (split.examples, labels) == (ROWS, ("1", "5"))


def test_a_header_that_would_become_a_class_is_refused(write):
    message = refusal(write("a.csv", REVIEWS), columns=ColumnsConfig(text=0, label=1))
    assert message.startswith("line 1: no other line has its label 'stars'; is it a header? Say data.header=true")
    split, labels = read(write("b.csv", "x,b\ny,a\nz,a\n"), columns=ColumnsConfig(text=0, label=1), header=False)
    assert (len(split.examples), labels) == (3, ("a", "b"))


def test_ids_are_those_of_their_column(write):
    source = write("a.csv", "key,review,stars\nx7,Good,5\nx8,Bad,1\n")
    split, _ = read(source, columns=ColumnsConfig(text="review", label="stars", id="key"))
    assert [row.id for row in split.examples] == ["x7", "x8"]


def test_an_id_that_occurs_twice_is_refused(write):
    source = write("a.csv", "key,review,stars\nx7,Good,5\nx7,Bad,1\n")
    message = refusal(source, columns=ColumnsConfig(text="review", label="stars", id="key"))
    assert message.startswith("line 3: duplicate id; give every row an id of its own")


def test_rows_keep_their_numbers_when_others_are_dropped(write):
    split, _ = read(write("a.csv", "review,stars\nGood,5\n,5\nBad,1\n"), on_bad="drop")
    assert ([row.id for row in split.examples], split.dropped) == (["0", "2"], 1)


@pytest.mark.parametrize(
    ("labels", "in_order"),
    [(["10", "9", "9"], ("9", "10")), (["b", "a", "10"], ("10", "a", "b")), (["2.5", "-1", "3"], ("-1", "2.5", "3"))],
)
def test_labels_are_sorted_as_numbers_where_all_are_numbers(write, labels, in_order):
    source = write("a.csv", "review,stars\n" + "".join(f"x,{label}\n" for label in labels))
    assert read(source).labels == in_order


def test_the_order_of_labels_can_be_given(write):
    split, labels = read(write("a.csv", REVIEWS), labels=("5", "3", "1"))
    assert ([row.label for row in split.examples], labels) == ([0, 2, 0], ("5", "3", "1"))


GOOD = {"a.csv": b'review,stars\n"two\nlines",5\n', "a.tsv": b"review\tstars\nGood\t5\n"}
GOOD["a.jsonl"] = b'{"review": "Good", "stars": 5}\n'


@pytest.mark.parametrize(
    ("name", "row", "problem"),
    [
        ("a.csv", b"  ,1\n", "line 4: column `review` is empty; give a text"),
        ("a.csv", b"Bad,\n", "line 4: column `stars` is empty; give a label"),
        ("a.csv", b"Bad\n", "line 4: 1 fields, and the header names 2; fix the line"),
        ("a.csv", b"Bad, and cold,1\n", "line 4: 3 fields, and the header names 2; fix the line"),
        ("a.csv", b"Caf\xe9,1\n", "line 4: column `review` is not UTF-8 text; save the file as UTF-8"),
        ("a.tsv", b"Bad\t\xff\n", "line 3: column `stars` is not UTF-8 text"),
        ("a.jsonl", b'{"stars": 1}', "line 2: column `review` is empty"),
        ("a.jsonl", b'{"review": "Bad", "stars": null}', "line 2: column `stars` is empty"),
        ("a.jsonl", b'{"review": "Bad", "stars": NaN}', "line 2: column `stars` is empty"),
        ("a.jsonl", b'{"review": \n', "line 2: not JSON ("),
        ("a.jsonl", b'{"review": "Bad", "stars": 1, "stars": 2}', "line 2: not JSON (the key 'stars' stands twice"),
        ("a.jsonl", b'["Bad", 1]', "line 2: expected an object with columns as keys, got list"),
        ("a.jsonl", b'{"review": 7, "stars": 1}', "line 2: column `review` has type int; give it as text"),
        (
            "a.jsonl",
            b'{"review": "Bad", "stars": [1]}',
            "line 2: column `stars` has type list; give a text or a number",
        ),
        ("a.jsonl", b'{"review": "\\ud83d", "stars": 1}', "line 2: column `review` is not UTF-8 text"),
    ],
)
def test_a_bad_row_is_refused_with_line_and_column_and_can_be_dropped(write, name, row, problem):
    source = write(name, GOOD[name] + row)
    message = refusal(source)
    assert message.startswith(problem)
    assert message.endswith("or leave it out with `data.on_bad=drop`")
    split = read(source, on_bad="drop").split
    assert ([each.id for each in split.examples], split.dropped) == (["0"], 1)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.csv", "text,stars\nGood,5\n", "no column `review` in it; it has the columns text, stars; say with"),
        ("a.csv", "review,label\nGood,5\n", "no column `stars` in it; it has the columns review, label"),
        (
            "a.txt",
            "The weir. " * 50,
            "no column `review` in it; it has the columns The weir. The weir. The weir. The weir. ...;",
        ),
        ("a.csv", "review,stars,stars\nGood,5,5\n", "two columns are called 'stars'"),
        ("a.csv", 'review,stars\nGood,5\n"never closed,1\nx,5\n', "line 3: not quoted as CSV is ("),
        ("a.csv", "", "the file is empty"),
        ("a.csv", "review,stars\n", "no row in it"),
        ("a.jsonl", "[]\n", "no row in it; "),
        ("a.csv.gz", b"\x1f\x8b", "the gzip file is damaged"),
        ("a.xlsx", "PK", "cannot tell its format from its name; give a .csv"),
    ],
)
def test_a_bad_file_is_refused(write, name, content, problem):
    assert refusal(write(name, content), on_bad="drop").startswith(problem)


def test_a_missing_file_is_not_taken_for_a_hub_id():
    assert refusal("data/reviews.csv").startswith("cannot be read (No such file or directory); give a .csv")


def test_names_are_of_no_use_where_there_is_no_header(write):
    assert refusal(write("a.csv", REVIEWS), header=False).startswith("no column `review` in it; it has 2 columns")


def test_tsv_is_quoted_only_if_said_so(write):
    source = write("a.tsv", 'review\tstars\n"a ""b"""\t5\n"c\t1\n')
    assert [row.texts[0] for row in read(source).split.examples] == ['"a ""b"""', '"c']
    source = write("b.tsv", 'review\tstars\n"a ""b"""\t5\nc\t1\n')
    assert [row.texts[0] for row in read(source, quoted=True).split.examples] == ['a "b"', "c"]


def test_only_newlines_end_a_line(write):
    split, _ = read(write("a.tsv", "review\tstars\none\u2028two\x85three\x0b\t5\nx\t1\n"))
    assert split.examples[0].texts == ("one\u2028two\x85three\x0b",)


@pytest.mark.parametrize("text", ["nan", "inf", "five", "", "1,5"])
def test_a_number_that_is_none_is_refused(write, text):
    source = write("a.tsv", f"review\tstars\nGood\t4.5\nBad\t{text}\n")
    message = refusal(source, task="regression")
    assert message.startswith("line 3: column `stars` is ")
    assert "give a number" in message


@pytest.mark.parametrize("text", ["nan", " NaN "])
def test_what_programs_write_for_a_missing_label_is_no_class(write, text):
    source = write("a.csv", f"review,stars\nGood,high\nBad,{text}\n")
    assert refusal(source).startswith(f"line 3: column `stars` is '{text.strip()}', as programs write what is missing")


def test_regression_reads_numbers(write):
    split, labels = read(
        write("a.jsonl", [{"review": "x", "stars": 4}, {"review": "y", "stars": "-2.5e1"}]), "regression"
    )
    assert ([row.label for row in split.examples], labels) == ([4.0, -25.0], ())


@pytest.mark.parametrize(
    ("name", "content", "columns", "separator"),
    [
        ("a.csv", 'text,label\nx,"b,a"\ny,\nz, c\n', None, ","),
        ("a.tsv", "text\tlabel\nx\tb | a\ny\t\nz\tc\n", None, "|"),
        ("a.tsv", 'text\tlabel\nx\t["b", "a"]\ny\t[]\nz\t["c"]\n', None, ","),
        (
            "a.jsonl",
            [{"text": "x", "label": ["a", "b"]}, {"text": "y", "label": []}, {"text": "z", "label": "c"}],
            None,
            ",",
        ),
        ("a.csv", "text,a,b,c\nx,1,1,0\ny,0,0,0\nz,0,false,true\n", ColumnsConfig(label=("a", "b", "c")), ","),
    ],
)
def test_several_labels_of_a_row_are_read_from_a_cell_or_from_columns(write, name, content, columns, separator):
    split, labels = read(write(name, content), "multilabel", columns=columns, label_separator=separator)
    assert labels == ("a", "b", "c")
    assert [row.label for row in split.examples] == [(1, 1, 0), (0, 0, 0), (0, 0, 1)]


@pytest.mark.parametrize(
    ("cell", "columns", "problem"),
    [
        ('"[""a"', ColumnsConfig(), "line 3: column `label` is no JSON list"),
        ("2", ColumnsConfig(label=("label",)), "line 3: column `label` is '2'; give 0 or 1"),
    ],
)
def test_labels_that_cannot_be_read_are_refused(write, cell, columns, problem):
    assert refusal(write("a.csv", f"text,label\nx,1\ny,{cell}\n"), task="multilabel", columns=columns).startswith(
        problem
    )


@pytest.mark.parametrize(("task", "cell"), [("classification", "4"), ("multilabel", '"5,4"')])
def test_a_label_of_dev_that_train_lacks_is_refused_with_line_and_column(write, task, cell):
    train, dev = write("train.csv", REVIEWS), write("dev.csv", f"review,stars\nGood,5\nOdd,{cell}\n")
    with pytest.raises(DataError) as caught:
        read_task(task, DataConfig(train=train, dev=dev, columns=COLUMNS))
    assert str(caught.value).startswith(f"{dev}: line 3: column `stars`: '4' is no label; expected '1', '5' (all that ")
    more = read_task(task, DataConfig(train=train, dev=dev, columns=COLUMNS, labels=("1", "4", "5")))
    assert more.dev.examples[1].label in (1, (0, 1, 1))


@pytest.mark.parametrize(
    ("task", "content", "labels"),
    [
        ("classification", "text,label\na,x\nb, \n", [0, None]),
        ("regression", "text,label\na,2.5\nb,\n", [2.5, None]),
        ("multilabel", "text,x,y\na,1,0\nb,,\n", [(1, 0), None]),
    ],
)
def test_labels_to_be_filled_in_are_read_for_prediction_alone(write, task, content, labels):
    columns = {"columns": ColumnsConfig(label=("x", "y"))} if task == "multilabel" else {}
    path, data = write("new.csv", content), DataConfig(**columns)
    found = read_labelled(task, path, data, ("x", "y") if task != "regression" else (), need="optional")
    assert [row.label for row in found.split.examples] == labels
    with pytest.raises(DataError, match="line 3"):
        read_labelled(task, path, data, ("x", "y") if task != "regression" else ())


def test_labels_that_a_model_does_not_know_are_not_advised_to_be_dropped_with_their_rows(write):
    source = write("new.csv", "text,label\na,good\nb,bad\n")
    with pytest.raises(DataError, match="line 2: column `label`: 'good' is no label; expected 'x', 'y'") as caught:
        read_labelled("classification", source, DataConfig(), ("x", "y"), need="optional")
    assert "on_bad" not in str(caught.value)
    assert str(caught.value).endswith("(data.labels), or leave the cells empty to go without scores")
    with pytest.raises(DataError, match="on_bad=drop"):
        read_labelled("classification", source, DataConfig(), ("x", "y"))


def test_a_table_without_labels_can_be_read_for_prediction(write):
    source = write("a.csv", "review\nGood\nBad\n")
    split, labels = read_labelled("classification", source, DataConfig(columns=COLUMNS), ("1", "5"), need="optional")
    assert [row.label for row in split.examples] == [None, None]
    assert labels == ("1", "5")


def test_a_table_without_ids_is_numbered_for_prediction_and_refused_for_training(write):
    columns = ColumnsConfig(text="review", label="stars", id="key")
    source = write("a.csv", "review,stars\nGood,5\nBad,1\n")
    split, _ = read_labelled("classification", source, DataConfig(columns=columns), ("1", "5"), need="optional")
    assert [row.id for row in split.examples] == ["0", "1"]
    told = refusal(source, columns=columns)
    assert told.endswith(
        "no column `key` in it; it has the columns review, stars; correct data.columns.id, or number "
        "the rows with data.columns.id=null"
    )


def test_one_class_alone_is_refused(write):
    source = write("a.csv", "review,stars\nx,5\ny,5\n")
    with pytest.raises(DataError, match="all its labels are '5'; there is nothing to tell apart"):
        read_task("classification", DataConfig(train=source, dev=source, columns=COLUMNS))


def test_cells_may_be_longer_than_python_s_own_limit(write):
    split, _ = read(write("a.csv", f"review,stars\n{'long ' * 40_000},5\nx,1\n"))
    assert len(split.examples[0].texts[0]) == 200_000


@pytest.mark.parametrize(("label", "is_hinted"), [("2.5", True), ("many", False)])
def test_numbers_that_train_lacks_are_told_of_regression(write, label, is_hinted):
    told = refusal(write("a.csv", f"review,stars\nx,{label}\n"), labels=("1", "5"))
    assert ("say task: regression" in told) == is_hinted


def test_a_number_is_no_label_of_own_data_unless_it_is_its_name(write):
    source = write("a.csv", "review,stars\nx,5\ny,0\n")
    assert refusal(source, labels=("1", "5")).startswith("line 3: column `stars`: '0' is no label; expected '1', '5'")


JSON_LINES = "".join(f"{json.dumps(row)}\n" for row in DICTS)
SEMICOLONS = 'review;stars\nGood soup;5\n"Cold, and late";1\nFine;5\n'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", SEMICOLONS),
        ("a.csv", SEMICOLONS.replace("\n", "\r\n")),
        ("a.csv", SEMICOLONS.replace("\n", "\r")),
        ("a.csv", '"review";"stars"\nGood soup;5\nCold, and late;1\nFine;5\n'),
        ("a.txt", SEMICOLONS),
        ("a.tsv", REVIEWS),
        ("a.csv", SEMICOLONS.replace(";", "\t")),
        ("a.csv", "stars;note, or none;review\n5;;Good soup\n1;a, b;Cold, and late\n5;x;Fine\n"),
    ],
)
def test_what_stands_between_cells_is_known_by_the_header(write, name, content):
    split, labels = read(write(name, content))
    assert (split.examples, split.dropped, labels) == (ROWS, 0, ("1", "5"))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-8"])
@pytest.mark.parametrize(("name", "content"), [("a.csv", REVIEWS), ("a.csv", SEMICOLONS), ("a.jsonl", JSON_LINES)])
def test_a_byte_order_mark_tells_the_encoding(write, encoding, name, content):
    source = write(name, f"\ufeff{content}".replace("Good soup", "S\xf4upe \u65e5").encode(encoding))
    assert read(source).split.examples == (TextRow("0", ("S\xf4upe \u65e5",), 1), *ROWS[1:])
    assert read(source, encoding="cp1252") == read(source)  # named for another of the run's files


def test_a_row_with_the_other_delimiter_in_a_text_is_refused_and_not_cut(write):
    message = refusal(write("a.csv", "review;stars\nGood; soup;5\nFine;1\n"))
    assert message.startswith("line 2: 3 fields, and the header names 2; fix the line")


def test_texts_full_of_semicolons_in_a_table_of_one_column_stay_whole(write):
    source = write("a.csv", "review\ncold; late; dear\nwarm; fine; kind\n")
    split, _ = read_labelled("classification", source, DataConfig(columns=COLUMNS), ("1", "5"), need="optional")
    assert [row.texts[0] for row in split.examples] == ["cold; late; dear", "warm; fine; kind"]


@pytest.mark.parametrize(
    ("content", "columns", "told"),
    [
        (
            SEMICOLONS,
            ColumnsConfig(text="text"),
            '; with `;` between cells it has 2 columns (review, stars): correct data.columns, or `data.delimiter=";"`',
        ),
        (
            "x;b\ny;a\nz;a\n",
            ColumnsConfig(text=0, label=1),
            "it has 1 columns; with `;` between cells it has 2 columns (x, b): ",
        ),
        (
            "x\tb\ny\ta\n",
            ColumnsConfig(text=0, label=1),
            'with a tab between cells it has 2 columns (x, b): correct data.columns, or `data.delimiter="\\t"`',
        ),
        ("x|b\ny|a\n", ColumnsConfig(text=0, label=1), "it has 1 columns; say with data.columns"),
    ],
)
def test_columns_that_are_not_found_name_the_setting_of_the_delimiter(write, content, columns, told):
    assert told in refusal(write("a.csv", content), columns=columns)


@pytest.mark.parametrize("delimiter", ["|", ";", "\t"])
def test_a_delimiter_can_be_named(write, delimiter):
    source = write("a.csv", delimiter.join("x5") + "\n" + delimiter.join("y1") + "\n" + delimiter.join("z1") + "\n")
    split, labels = read(source, columns=ColumnsConfig(text=0, label=1), header=False, delimiter=delimiter)
    assert ([row.texts[0] for row in split.examples], labels) == (["x", "y", "z"], ("1", "5"))


def test_an_encoding_can_be_named(write):
    raw = "review,stars\n“Café”,5\nfine,1\n".encode("cp1252")
    assert "line 2: column `review` is not UTF-8 text; save the file as UTF-8, or name its encoding" in refusal(
        write("a.csv", raw)
    )
    assert "`data.encoding=cp1252`" in refusal(write("a.csv", raw))
    assert read(write("a.csv", raw), encoding="Windows-1252").split.examples[0].texts == ("“Café”",)


def test_a_row_that_is_not_utf8_is_named_also_behind_a_byte_order_mark(write):
    told = refusal(write("a.csv", b"\xef\xbb\xbfreview,stars\nfine,1\nCaf\xe9,5\n"))
    assert told.startswith("line 3: column `review` is not UTF-8 text")


def test_a_header_that_is_not_utf8_names_the_setting(write):
    told = refusal(write("a.csv", "café,stars\nfine,1\n".encode("latin-1")), columns=ColumnsConfig(text="café"))
    assert "its header is not UTF-8 text; save the file as UTF-8, or name its encoding" in told


@pytest.mark.parametrize("order", ["le", "be"])
def test_utf16_without_a_mark_names_the_setting(write, order):
    source = write("a.csv", REVIEWS.encode(f"utf-16-{order}"))
    told = refusal(source)
    assert told.startswith("looks like UTF-16 without a byte order mark; save the file as UTF-8, or say `")
    assert told.endswith(f"data.encoding=utf-16-{order}`")
    assert read(source, encoding=f"utf-16-{order}").split.examples == ROWS


def test_bytes_that_are_not_of_their_encoding_are_refused(write):
    told = refusal(write("a.csv", REVIEWS.encode("utf-16")[:-1]))
    assert told.startswith("is not utf-16 text (")
    assert told.endswith("or name its encoding, such as `data.encoding=cp1252`")


@pytest.mark.parametrize("given", ["utf-99", "base64", "a\0b", "rot13"])
def test_an_unknown_encoding_is_refused(given):
    with pytest.raises(ValueError, match="no encoding .*; give one such as cp1252"):
        DataConfig(encoding=given)


def test_utf8_by_name_is_the_default():
    assert DataConfig(encoding="UTF8") == DataConfig()


@pytest.mark.parametrize("given", ["", ";;", "\n", '"'])
def test_what_cannot_stand_between_cells_is_refused(given):
    with pytest.raises(ValueError, match="delimiter"):
        DataConfig(delimiter=given)


@pytest.mark.parametrize(("text", "names"), [("a", ("a",)), (("a", "b"), ("a", "b")), (("a", 1), ()), ((0, "b"), ())])
def test_texts_have_names_where_each_of_them_has_one(text, names):
    assert ColumnsConfig(text=text).text_names == names


def test_a_label_of_dev_that_train_lacks_is_named_where_it_is_dropped(tmp_path):
    (tmp_path / "dev.csv").write_text("text,label\na,good\nb,odd\nc,odd\n")
    layout = RowLayout("class", (ColumnsConfig(),), labels=("bad", "good"))
    split = read_rows(str(tmp_path / "dev.csv"), layout, on_bad="drop").split
    assert (split.dropped, len(split.examples)) == (2, 1)
    assert split.first_bad.startswith("line 3: column `label`: 'odd' is no label; expected 'bad', 'good'")
