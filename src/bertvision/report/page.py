"""Records -> `report.html`, `report.md`, `tables.tex` and figures; the same bytes from the same records.

With where their numbers came from, as plain text.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bertvision.files import locked, write_bytes, write_text
from bertvision.records import DataFile, DifferenceRecord, Mistake, MistakesRecord, Provenance, RunRecord
from bertvision.report.chapters import (
    READING,
    Chapter,
    Contents,
    Report,
    ShownPicture,
    ending,
    figure_path,
    glue_chapters,
    make_report,
    meanings,
)
from bertvision.report.pictures import NO_FIGURES, Drawing, Picture, can_draw, for_file, for_page
from bertvision.report.renderers import markdown_text, to_html, to_latex_file, to_markdown
from bertvision.report.tables import ExampleList
from bertvision.tables import Cell, Column, Number, Table, without_empty_columns

Value = TypeVar("Value")
DATA = "Data as they were read"
SHORT_HASH = 12
UNSHOWN = ("encoder", "data", "seeds")  # parts of a config that have a line or a table of their own


class Fact(NamedTuple):
    """A line of "Where this came from"; records that differ have several texts."""

    head: str
    texts: list[str]


def data_table(records: Sequence[RunRecord]) -> Table:
    """List the data files that were read, with their counts."""
    counts = ("examples", "near misses", "dropped", "windows")
    columns = ("split", Column("file", "left"), *counts, Column("sha256", "left"))
    rows = _distinct(_data_cells(split, file) for record in records for split, file in record.data.items())
    return without_empty_columns(Table(DATA, columns, tuple(rows)))


def facts(records: Sequence[RunRecord]) -> list[Fact]:
    """Say which encoder, settings, seeds, machine and code made the records."""
    origins = [record.provenance for record in records]
    return [
        Fact("Encoder", _distinct(_encoder_text(record) for record in records if record.kind != "baseline")),
        *_setting_facts(records),
        Fact("Seeds", [", ".join(map(str, sorted({record.seed for record in records})))]),
        *_schedule_facts(records),
        Fact("Device", _distinct(origin.device for origin in origins)),
        Fact("Precision", _distinct(origin.precision for origin in origins)),
        Fact("Versions", _distinct(map(_versions_text, origins))),
        Fact("Code", _distinct(map(_commit_text, origins))),
        *([Fact("Notes", remarks)] if (remarks := notes(records)) else []),
    ]


def notes(records: Sequence[RunRecord]) -> list[str]:
    """Gather the records' notes, each once, with the rows it is about unless it is about all of them."""
    everyone = _distinct(record.model for record in records)
    texts = _distinct(note for record in records for note in record.notes)
    rows_by_note = {text: _distinct(record.model for record in records if text in record.notes) for text in texts}
    return [text if rows == everyone else f"{text} ({', '.join(rows)})" for text, rows in rows_by_note.items()]


def config_texts(records: Sequence[RunRecord]) -> list[str]:
    """Write out every different config among the records."""
    return _distinct(json.dumps(record.config, indent=2, ensure_ascii=False) for record in records)


def _data_cells(split: str, file: DataFile) -> tuple[Cell, ...]:
    made = sum(file.near_misses.values())
    dropped, windows = Number(file.dropped, ","), Number(file.windows, ",")
    examples, near_misses = Number(file.examples, ","), Number(made, ",") if made else ""
    return (split, file.name, examples, near_misses, dropped, windows, (file.sha256 or "")[:SHORT_HASH])


def _encoder_text(record: RunRecord) -> str:
    given = _setting_text(record.config.get("encoder"))
    size = f"{record.parameters.encoder:,} parameters, fingerprint {record.encoder_fingerprint[:SHORT_HASH]}"
    return f"{given}; {size}" if given else size


def _setting_facts(records: Sequence[RunRecord]) -> list[Fact]:
    shown = [{key: value for key, value in record.config.items() if key not in UNSHOWN} for record in records]
    single = [{key: value for key, value in config.items() if not isinstance(value, dict)} for config in shown]
    sections = _distinct(key for config in shown for key, value in config.items() if isinstance(value, dict))
    found = [
        Fact("Experiment", _distinct(map(_setting_text, single))),
        *(Fact(name, _distinct(_setting_text(config.get(name)) for config in shown)) for name in sections),
    ]
    return [fact for fact in found if any(fact.texts)]


def _setting_text(value: Any) -> str:  # noqa: ANN401 (a config holds anything)
    if value is None or value == {}:
        return ""
    if not isinstance(value, dict):
        return _value_text(value)
    return ", ".join(f"{key}={_value_text(leaf)}" for key, leaf in _leaves(value))


def _leaves(section: dict[str, Any], path: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in section.items():
        found.extend(_leaves(value, f"{path}{key}.") if isinstance(value, dict) else [(f"{path}{key}", value)])
    return found


def _value_text(value: Any) -> str:  # noqa: ANN401 (a config holds anything)
    if isinstance(value, list):
        return f"[{', '.join(_value_text(part) for part in value)}]"
    if isinstance(value, dict):  # one of a list of named things, such as heads; the rest is in the full config
        return str(value["name"]) if "name" in value else json.dumps(value, ensure_ascii=False)
    return value if isinstance(value, str) else json.dumps(value)


def _schedule(record: RunRecord) -> str:
    schedule: str = record.config.get("finetune", {}).get("optim", {}).get("schedule", "")
    return {"linear": "a linear decay", "constant": "a warmup"}.get(schedule, "a schedule")


def _schedule_facts(records: Sequence[RunRecord]) -> list[Fact]:
    found = _distinct((record.schedule_horizon, _schedule(record)) for record in records if record.schedule_horizon)
    texts = [
        f"{schedule} with its end at fraction {horizon:g}; fractions before that were taken on the way, so their rates "
        "are not those of a run planned for them"
        for horizon, schedule in found
    ]
    return [Fact("Schedule", texts)] if texts else []


def _versions_text(origin: Provenance) -> str:
    return ", ".join([f"Python {origin.python}", *(f"{name} {version}" for name, version in origin.versions.items())])


def _commit_text(origin: Provenance) -> str:
    if origin.commit is None:
        return "unknown commit (installed without its repository)"
    return f"commit {origin.commit[:SHORT_HASH]}{' with uncommitted changes' if origin.dirty else ''}"


def _distinct(values: Iterable[Value]) -> list[Value]:
    return list(dict.fromkeys(values))


DEFINITIONS = "How to read this"
UNFOLDED = 10  # examples of a list
CHAPTERS = Contents(overviews=(glue_chapters,))


def write_report(
    records: Iterable[RunRecord],
    folder: str | Path,
    differences: Sequence[DifferenceRecord] = (),
    mistakes: Sequence[MistakesRecord] = (),
    *,
    chapters: Contents = CHAPTERS,
) -> Path:
    """Write `report.html`, `report.md`, `tables.tex` and figures into a folder, and return the page.

    `differences` are what `bertvision compare --variants` left in a run folder; `mistakes` are examples to read, which
    lie with its predictions (`bertvision.records.read_mistakes`). `chapters` says which tables and figures stand in the
    chapters and what stands before them, in place of the usual ones.
    """
    report, folder = make_report(records, differences, mistakes, chapters), Path(folder)
    with locked(folder, "report"):
        for chapter in report.chapters:
            for picture, drawing in chapter.pictures:
                if drawing is not None:
                    write_text(folder / figure_path(chapter, picture), for_file(drawing.svg))
                    write_bytes(folder / figure_path(chapter, picture, "png"), drawing.png)
        write_text(folder / "report.md", to_summary(report))
        write_text(folder / "tables.tex", to_latex_file(_all_tables(report)))
        write_text(folder / "report.html", to_page(report))
    return folder / "report.html"


def to_summary(report: Report) -> str:
    """Write a report as Markdown: tables, links to the figures, where the numbers came from, and what columns mean."""
    columns = "\n".join(f"- **{markdown_text(head)}**: {text}" for head, text in meanings(report))
    blocks = [
        f"# {markdown_text(report.title)}",
        *(block for chapter in (*report.overviews, *report.chapters) for block in _markdown_chapter(chapter)),
        f"## {DEFINITIONS}",
        f"{READING} {ending(report)}",
        columns,
    ]
    return "\n\n".join(blocks) + "\n"


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
{"".join(map(_overview, report.overviews))}{
        "".join(_chapter(chapter, has_heading=several) for chapter in report.chapters)
    }{_reading(report)}
</main>
</body>
</html>
"""


def _markdown_chapter(chapter: Chapter) -> list[str]:
    blocks = [f"## {markdown_text(chapter.title)}", *([markdown_text(chapter.problem)] if chapter.problem else [])]
    if chapter.headline:
        best, *others = map(markdown_text, chapter.headline)
        blocks.append(" ".join([f"**{best}**", *others]))
    for table in chapter.tables:
        blocks += [f"{markdown_text(table.title)}:", to_markdown(table).rstrip("\n")]
        blocks += [markdown_text(table.note)] if table.note else []
    blocks += [block for each in chapter.examples for block in _markdown_examples(each)]
    blocks += [_markdown_figure(chapter, shown) for shown in chapter.pictures]
    blocks += [NO_FIGURES] if chapter.records and not can_draw() else []
    return [*blocks, *_markdown_sources(chapter.records)] if chapter.records else blocks


def _markdown_examples(listed: ExampleList) -> list[str]:
    lines = [
        f"{number}. {' / '.join(map(markdown_text, each.texts.values()))} ({markdown_text(_opinions(each))})"
        for number, each in enumerate(listed.examples, start=1)
    ]
    return [f"### {markdown_text(listed.title)}", markdown_text(listed.note), "\n".join(lines)]


def _opinions(each: Mistake) -> str:
    sure = "" if each.probability is None else f", {100 * each.probability:.0f}% sure"
    return f"true: {each.gold}; predicted: {each.predicted}{sure}; {each.split} {each.id}"


def _markdown_figure(chapter: Chapter, shown: ShownPicture) -> str:
    picture = shown.picture
    if shown.drawing is None:
        return f"{picture.missing} `{picture.command}`."
    label = markdown_text(f"{picture.title}. {picture.describe(chapter.records)}")
    return f"![{label}]({figure_path(chapter, picture)})\n\n*{picture.caption}*"


def _markdown_sources(records: Sequence[RunRecord]) -> list[str]:
    lines = (f"- {markdown_text(fact.head)}: {markdown_text('; '.join(fact.texts))}" for fact in facts(records))
    return ["### Where this came from", to_markdown(data_table(records)).rstrip("\n"), "\n".join(lines)]


def _reading(report: Report) -> str:
    columns = "".join(_fact(Fact(head, [text])) for head, text in meanings(report))
    return f"""<section>
<h2>{DEFINITIONS}</h2>
<p class="reading">{escape(READING)} {escape(ending(report))}</p>
<dl class="columns">
{columns}</dl>
</section>"""


def _overview(chapter: Chapter) -> str:
    problem = [f'<p class="missing">{escape(chapter.problem)}</p>'] if chapter.problem else []
    parts = [f"<h2>{escape(chapter.title)}</h2>", *problem, *map(_table, chapter.tables)]
    return "\n".join(["<section>", *parts, "</section>"]) + "\n"


def _chapter(chapter: Chapter, *, has_heading: bool) -> str:
    level = 3 if has_heading else 2
    tables = "\n".join(map(_table, chapter.tables))
    heading = f"<h2>{escape(chapter.title)}</h2>\n" if has_heading else ""
    examples = "".join(_examples(each, level) for each in chapter.examples)
    return f"""<section>
{heading}{_headline(chapter.headline)}<h{level}>Scores</h{level}>
{tables}
{examples}<h{level}>Figures</h{level}>
{_figures(chapter)}
<h{level}>Where this came from</h{level}>
{_sources(chapter.records)}
</section>
"""


def _headline(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    best, *others = map(escape, sentences)
    return "\n".join(
        ['<div class="headline">', f"<p><b>{best}</b></p>", *(f"<p>{each}</p>" for each in others), "</div>\n"]
    )


def _examples(listed: ExampleList, level: int) -> str:
    first, more = listed.examples[:UNFOLDED], listed.examples[UNFOLDED:]
    folded = f"<details><summary>{len(more)} more</summary>\n{_items(more, UNFOLDED + 1)}</details>\n" if more else ""
    return f"""<h{level}>{escape(listed.title)}</h{level}>
<p class="reading">{escape(listed.note)}</p>
{_items(first, 1)}{folded}"""


def _items(examples: Sequence[Mistake], start: int) -> str:
    return "\n".join([f'<ol class="examples" start="{start}">', *map(_example, examples), "</ol>\n"])


def _example(each: Mistake) -> str:
    several = len(each.texts) > 1
    texts = (f"<i>{escape(name)}:</i> {escape(text)}" if several else escape(text) for name, text in each.texts.items())
    return f"<li>{'<br>'.join(texts)}<small>{escape(_opinions(each))}</small></li>"


def _table(table: Table) -> str:
    # A box that scrolls has to be reachable by keyboard, and whatever can be reached needs a name.
    opening = f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.title)}">'
    scrolling = f"{opening}\n{to_html(table)}</div>"
    return f'{scrolling}\n<p class="reading">{escape(table.note)}</p>' if table.note else scrolling


def _figures(chapter: Chapter) -> str:
    drawn = [_figure(chapter, picture, drawing) for picture, drawing in chapter.pictures if drawing is not None]
    missing = [_missing(picture) for picture, drawing in chapter.pictures if drawing is None]
    grid = ['<div class="figures">', *drawn, "</div>"] if drawn else []
    untold = [] if can_draw() else [f'<p class="missing">{escape(NO_FIGURES)}</p>']
    return "\n".join([*grid, *missing, *untold])


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
        _table(data_table(records)),
        f"<dl>\n{''.join(map(_fact, facts(records)))}</dl>",
        *map(_config, config_texts(records)),
    ]
    return "\n".join(parts)


def _fact(fact: Fact) -> str:
    texts = "".join(f"<dd>{escape(text)}</dd>" for text in fact.texts)
    return f"<div><dt>{escape(fact.head)}</dt>{texts}</div>\n"


def _config(text: str) -> str:
    return f'<details><summary>Full configuration</summary>\n<pre tabindex="0">{escape(text)}</pre>\n</details>'


def _all_tables(report: Report) -> list[Table]:
    """Return every table, those of experiments under their names, and last what was read."""
    named = [(chapter, table) for chapter in report.chapters for table in chapter.tables]
    named += [(chapter, data_table(chapter.records)) for chapter in report.chapters]
    overviews = [table for chapter in report.overviews for table in chapter.tables]
    return [*overviews, *(replace(table, title=f"{chapter.title}: {table.title}") for chapter, table in named)]
