"""A report -> a Markdown page that links to the figures' files."""

from collections.abc import Sequence

from bertvision.records import RunRecord
from bertvision.report.chapters import READING, Chapter, Report, Shown, ending, figure_path, meanings
from bertvision.report.glue import Benchmark
from bertvision.report.renderers import Captioned, markdown_text, to_markdown
from bertvision.report.sources import data_table, facts


def to_summary(report: Report) -> str:
    """Write a report as Markdown: tables, links to the figures, and where the numbers came from."""
    columns = "\n".join(f"- **{markdown_text(head)}**: {text}" for head, text in meanings(report))
    blocks = [
        f"# {markdown_text(report.title)}",
        f"{READING} {ending(report)}",
        columns,
        *(block for benchmark in report.glue for block in _benchmark(benchmark)),
        *(block for chapter in report.chapters for block in _blocks(chapter)),
    ]
    return "\n\n".join(blocks) + "\n"


def _benchmark(benchmark: Benchmark) -> list[str]:
    if benchmark.table is None:
        return [markdown_text(benchmark.problem)]
    return _captioned(Captioned(benchmark.caption, benchmark.table))


def _blocks(chapter: Chapter) -> list[str]:
    return [
        f"## {markdown_text(chapter.experiment)}",
        *(block for captioned in chapter.tables for block in _captioned(captioned)),
        *(_figure(chapter, shown) for shown in chapter.pictures),
        "### Where this came from",
        to_markdown(data_table(chapter.records)).rstrip("\n"),
        _sources(chapter.records),
    ]


def _captioned(captioned: Captioned) -> list[str]:
    note = [markdown_text(captioned.note)] if captioned.note else []
    return [f"{markdown_text(captioned.caption)}:", to_markdown(captioned.table).rstrip("\n"), *note]


def _figure(chapter: Chapter, shown: Shown) -> str:
    picture = shown.picture
    if shown.drawing is None:
        return f"{picture.missing} `{picture.command}`."
    label = markdown_text(f"{picture.title}. {picture.describe(chapter.records)}")
    return f"![{label}]({figure_path(chapter, picture)})\n\n*{picture.caption}*"


def _sources(records: Sequence[RunRecord]) -> str:
    return "\n".join(f"- {markdown_text(fact.head)}: {markdown_text('; '.join(fact.texts))}" for fact in facts(records))
