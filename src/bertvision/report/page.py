"""Records -> `report.html`, `report.md`, `tables.tex` and figures; the same bytes from the same records."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from pathlib import Path

from bertvision.files import write_bytes, write_text
from bertvision.records import RunRecord
from bertvision.report.beside import Beside
from bertvision.report.chapters import (
    DATA,
    NOTHING,
    READING,
    Chapter,
    Report,
    ending,
    figure_path,
    make_report,
    meanings,
)
from bertvision.report.drawing import Drawing, for_file, for_page
from bertvision.report.gallery import Picture
from bertvision.report.glue import Benchmark
from bertvision.report.latex import to_latex_file
from bertvision.report.renderers import Captioned, Table, to_html
from bertvision.report.sources import Fact, config_texts, data_table, facts
from bertvision.report.summary import to_summary


def write_report(records: Iterable[RunRecord], folder: Path, beside: Beside = NOTHING) -> Path:
    """Write a report into a folder and hand back its page: one file that needs no other."""
    report = make_report(records, beside)
    for chapter in report.chapters:
        for picture, drawing in chapter.pictures:
            if drawing is not None:
                write_text(folder / figure_path(chapter, picture), for_file(drawing.svg))
                write_bytes(folder / figure_path(chapter, picture, "png"), drawing.png)
    write_text(folder / "report.md", to_summary(report))
    write_text(folder / "tables.tex", to_latex_file(_all_tables(report)))
    page = folder / "report.html"
    write_text(page, to_page(report))
    return page


def to_page(report: Report) -> str:
    """Write a report as one HTML page, everything that comes from records escaped."""
    title = escape(report.title)
    style = resources.files("bertvision.report").joinpath("page.css").read_text(encoding="utf-8")
    several = len(report.chapters) > 1
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{_reading(report)}
{"".join(map(_benchmark, report.glue))}{
        "".join(_chapter(chapter, has_heading=several) for chapter in report.chapters)
    }</main>
</body>
</html>
"""


def _reading(report: Report) -> str:
    columns = "".join(_fact(Fact(head, [text])) for head, text in meanings(report))
    return f"""<p class="reading">{escape(READING)} {escape(ending(report))}</p>
<dl class="columns">
{columns}</dl>"""


def _benchmark(benchmark: Benchmark) -> str:
    if benchmark.table is None:
        return f'<p class="missing">{escape(benchmark.problem)}</p>\n'
    return f"<section>\n<h2>GLUE</h2>\n{_scrolling(benchmark.table, benchmark.caption)}\n</section>\n"


def _chapter(chapter: Chapter, *, has_heading: bool) -> str:
    level = 3 if has_heading else 2
    tables = "\n".join(map(_captioned, chapter.tables))
    heading = f"<h2>{escape(chapter.experiment)}</h2>\n" if has_heading else ""
    return f"""<section>
{heading}<h{level}>Scores</h{level}>
{tables}
<h{level}>Figures</h{level}>
{_figures(chapter)}
<h{level}>Where this came from</h{level}>
{_sources(chapter.records)}
</section>
"""


def _scrolling(table: Table, caption: str) -> str:
    # A box that scrolls has to be reachable by keyboard, and whatever can be reached needs a name.
    opening = f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">'
    return f"{opening}\n{to_html(table, caption)}</div>"


def _captioned(captioned: Captioned) -> str:
    scrolling = _scrolling(captioned.table, captioned.caption)
    return f'{scrolling}\n<p class="reading">{escape(captioned.note)}</p>' if captioned.note else scrolling


def _figures(chapter: Chapter) -> str:
    drawn = [_figure(chapter, picture, drawing) for picture, drawing in chapter.pictures if drawing is not None]
    missing = [_missing(picture) for picture, drawing in chapter.pictures if drawing is None]
    grid = ['<div class="figures">', *drawn, "</div>"] if drawn else []
    return "\n".join([*grid, *missing])


def _figure(chapter: Chapter, picture: Picture, drawing: Drawing) -> str:
    prefix = f"{chapter.slug}-{picture.name}"
    label = f"{picture.title}. {picture.describe(chapter.records)}"
    words = f"<b>{escape(picture.title)}.</b> {escape(picture.caption)}"
    return f"""<figure aria-labelledby="{prefix}-caption">
{for_page(drawing.svg, prefix, label)}<figcaption id="{prefix}-caption">{words}</figcaption>
</figure>"""


def _missing(picture: Picture) -> str:
    return f'<p class="missing">{escape(picture.missing)} <code>{escape(picture.command)}</code>.</p>'


def _sources(records: Sequence[RunRecord]) -> str:
    parts = [
        _scrolling(data_table(records), DATA),
        f"<dl>\n{''.join(map(_fact, facts(records)))}</dl>",
        *map(_config, config_texts(records)),
    ]
    return "\n".join(parts)


def _fact(fact: Fact) -> str:
    texts = "".join(f"<dd>{escape(text)}</dd>" for text in fact.texts)
    return f"<div><dt>{escape(fact.head)}</dt>{texts}</div>\n"


def _config(text: str) -> str:
    return f'<details><summary>Full configuration</summary>\n<pre tabindex="0">{escape(text)}</pre>\n</details>'


def _all_tables(report: Report) -> list[tuple[str, Table]]:
    return [
        *((each.caption, each.table) for each in report.glue if each.table is not None),
        *(
            (f"{chapter.experiment}: {caption}{f'. {note}' if note else ''}", table)
            for chapter in report.chapters
            for caption, table, note in chapter.tables
        ),
        *((f"{chapter.experiment}: {DATA}", data_table(chapter.records)) for chapter in report.chapters),
    ]
