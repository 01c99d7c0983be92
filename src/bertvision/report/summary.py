"""Chapters -> a Markdown page that links to the figures' files."""

from collections.abc import Sequence

from bertvision.records import RunRecord
from bertvision.report.chapters import MODELS, READING, Chapter, caption_of, ending, figure_path, meanings, title_of
from bertvision.report.gallery import Picture
from bertvision.report.sources import data_table, facts
from bertvision.report.tables import markdown_text, to_markdown


def to_summary(chapters: Sequence[Chapter]) -> str:
    """Write chapters as Markdown: tables, links to the figures, and where the numbers came from."""
    columns = "\n".join(f"- **{head}**: {text}" for head, text in meanings(chapters))
    blocks = [
        f"# {markdown_text(title_of(chapters))}",
        f"{READING} {ending(chapters)}",
        columns,
        *(block for chapter in chapters for block in _blocks(chapter)),
    ]
    return "\n\n".join(blocks) + "\n"


def _blocks(chapter: Chapter) -> list[str]:
    return [
        f"## {markdown_text(chapter.experiment)}",
        f"{markdown_text(caption_of(chapter))}:",
        to_markdown(chapter.table).rstrip("\n"),
        *([f"{MODELS}:", to_markdown(chapter.models).rstrip("\n")] if chapter.models is not None else []),
        *(_figure(chapter, picture, is_drawn=svg is not None) for picture, svg in chapter.pictures),
        "### Where this came from",
        to_markdown(data_table(chapter.records)).rstrip("\n"),
        _sources(chapter.records),
    ]


def _figure(chapter: Chapter, picture: Picture, *, is_drawn: bool) -> str:
    if not is_drawn:
        return f"{picture.missing} `{picture.command}`."
    label = markdown_text(f"{picture.title}. {picture.describe(chapter.records)}")
    return f"![{label}]({figure_path(chapter, picture)})\n\n*{picture.caption}*"


def _sources(records: Sequence[RunRecord]) -> str:
    return "\n".join(f"- {markdown_text(fact.head)}: {markdown_text('; '.join(fact.texts))}" for fact in facts(records))
