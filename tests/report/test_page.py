import re
from html.parser import HTMLParser

import pytest

from bertvision.report.gallery import GALLERY
from bertvision.report.page import write_report

EXPERIMENT_FILE = "EXPERIMENT.yaml"  # part of every command that makes missing records

DRAWN = ("finetuning_curve", "layer_weights", "score_by_parameters", "score_by_training", "score_by_inference")
VOID = {"meta", "wbr", "br", "link", "img", "input", "hr"}


class Outline(HTMLParser):
    """Checks that tags are balanced; keeps attributes and text."""

    def __init__(self):
        super().__init__()
        self.open, self.attributes, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def outline_of(page):
    outline = Outline()
    outline.feed(page.read_text(encoding="utf-8"))
    outline.close()
    assert outline.open == []
    return outline


def files_in(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_report_is_a_page_a_summary_tables_and_figures(written):
    figures = {f"figures/squad2_small-{name}.{kind}" for name in DRAWN for kind in ("svg", "png")}
    assert files_in(written).keys() == {"report.html", "report.md", "tables.tex", *figures}


def test_the_same_records_give_the_same_bytes(tmp_path, records, written):
    assert write_report(list(reversed(records)), tmp_path) == tmp_path / "report.html"
    assert files_in(tmp_path) == files_in(written)


def test_a_page_has_balanced_tags_and_no_id_twice(rich_written):
    outline = outline_of(rich_written / "report.html")
    ids = [value for _, name, value in outline.attributes if name == "id"]
    assert ids
    assert len(ids) == len(set(ids))


def test_a_page_loads_nothing_from_elsewhere(rich_written):
    page = rich_written / "report.html"
    loading = ("src", "href", "xlink:href", "srcset", "data", "action", "poster")
    links = [value for _, name, value in outline_of(page).attributes if name in loading]
    assert links
    assert all(link.startswith("#") for link in links)
    assert re.findall(r"@import|url\((?!#)", page.read_text(encoding="utf-8")) == []


def test_a_page_has_a_language_a_title_and_labelled_pictures(written):
    outline = outline_of(written / "report.html")
    assert ("html", "lang", "en") in outline.attributes
    assert outline.text.count("Results of squad2_small") == 2  # <title> and <h1>
    labels = [value for tag, name, value in outline.attributes if (tag, name) == ("svg", "aria-label")]
    assert len(labels) == len(DRAWN)
    assert "learned_pooling: layer 2 (weight 0.50)" in " ".join(labels)


def test_what_comes_from_records_is_escaped(tmp_path, make_record):
    record = make_record(
        experiment="<script>alert(1)</script>",
        model="<b>",
        layer_weights=[0.5, 0.5],
        notes=["<u>note</u>"],
        config={"name": "</pre><i>"},
    )
    page = write_report([record, make_record(experiment="other")], tmp_path)
    text = page.read_text(encoding="utf-8")
    outline = outline_of(page)
    assert "<script" not in text
    assert "<u>" not in text
    assert "<i>" not in text
    assert "<b>" in "".join(outline.text)
    assert {path.parent.name for path in tmp_path.rglob("*.svg")} == {"figures"}


def test_missing_figures_are_named_with_the_command_that_makes_their_records(tmp_path, make_record):
    page = write_report([make_record(layer_weights=None)], tmp_path)
    text = "".join(outline_of(page).text)
    for written in (text, (tmp_path / "report.md").read_text(encoding="utf-8").replace("`", "")):
        assert re.search(r"layer weights need .*learned_pooling.* bertvision run EXPERIMENT.yaml", written)
        assert re.search(r"fine-tuning curve needs .*two or more fractions.* bertvision run EXPERIMENT.yaml", written)
        assert re.search(r"less-data curve needs .*--set heads.data_fraction=0.1 --out FOLDER/0.1", written)
        assert re.search(r"reliability diagram needs .*probabilities.* bertvision run EXPERIMENT.yaml", written)
    drawn = {f"squad2_small-score_by_{cost}.svg" for cost in ("parameters", "training", "inference")}
    assert {path.name for path in tmp_path.rglob("*.svg")} == drawn


def test_several_experiments_have_a_table_each_and_files_of_their_own(tmp_path, make_record):
    names = ("a b", "a/b", "..")
    outline = outline_of(write_report([make_record(experiment=name) for name in names], tmp_path))
    assert outline.text.count("Where this came from") == 3
    assert [text for text in outline.text if text in names] == sorted(names)
    assert len(list(tmp_path.glob("figures/*-score_by_parameters*.svg"))) == 3


def test_the_summary_links_to_figures_that_exist(written):
    links = re.findall(r"!\[[^]]*\]\(([^)]+)\)", (written / "report.md").read_text(encoding="utf-8"))
    assert len(links) == len(DRAWN)
    assert all((written / link).is_file() for link in links)


@pytest.mark.parametrize(("task", "times"), [("squad2", 2), ("squad1", 0)])
def test_thresholds_are_explained_only_where_no_answer_is_possible(tmp_path, make_record, task, times):
    record = make_record(task=task, scores={"exact_match": 1.0, "f1": 2.0, "best_exact": 3.0, "best_f1": 4.0})
    text = "".join(outline_of(write_report([record], tmp_path)).text)
    assert text.count("it flatters every row") == times


def test_columns_that_no_row_fills_are_left_out_of_tables_and_of_what_they_mean(tmp_path, make_record):
    write_report([make_record(scores={"f1": 50.0})], tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| F1 at 0 |" in text
    assert not re.search("EM at 0|tuned on held-out|95% interval", text)


def test_the_headline_comes_first_and_what_columns_mean_last(rich_written):
    for name in ("report.html", "report.md"):
        text = (rich_written / name).read_text(encoding="utf-8")
        places = [
            text.index(each) for each in ("F1 at 0 48.5", "Scores on squad2", "Where this came from", "How to read")
        ]
        assert places == sorted(places)


def test_figures_of_thresholds_are_not_missed_by_tasks_that_have_none(tmp_path, make_task_records):
    text = "".join(outline_of(write_report(make_task_records("sst2", {"accuracy": 90.0}), tmp_path)).text)
    assert "fine-tuning curve needs" in text
    assert not re.search("(?<!null_)threshold|reliability|risk-coverage", text)  # a setting is shown: null_threshold


def test_a_whole_report_draws_every_figure_and_misses_none(rich_written):
    text = "".join(outline_of(rich_written / "report.html").text)
    assert len(list(rich_written.rglob("*.svg"))) == len(list(rich_written.rglob("*.png"))) == len(GALLERY)
    assert EXPERIMENT_FILE not in text


def test_a_column_that_tasks_take_differently_is_explained_for_each(tmp_path, make_task_records):
    write_report(
        make_task_records("ner", {"f1": 90.0}) + make_task_records("mrpc", {"f1": 80.0, "accuracy": 70.0}), tmp_path
    )
    (line,) = re.findall(r"^- \*\*F1\*\*: (.*)$", (tmp_path / "report.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert line == "of the positive class: harmonic mean of precision and recall (mrpc); harmonic mean of the two (ner)"
