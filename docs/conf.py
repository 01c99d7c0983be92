"""Sphinx settings; the tables of heads, measures and benchmarks are written from the program itself at every build."""

from pathlib import Path

from benchmarks.tables import bench_chapter
from bertvision.heads.build import list_heads
from bertvision.heads.catalog import CATALOG, KINDS
from bertvision.records import MAIN_SCORES, read_bench_records
from bertvision.report.measures import TASKS
from bertvision.version import VERSION

project = "bertvision"
author = "the bertvision authors"
version = release = VERSION
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]  # no math: its fonts and scripts would come from the network
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"bertvision {VERSION}"
exclude_patterns = ["_build", "_generated"]
autodoc_typehints = "none"
suppress_warnings = ["myst.header"]  # included report pages begin with their own title

GENERATED = Path(__file__).parent / "_generated"
RESULTS = Path(__file__).parent.parent / "results"


def heads_page() -> str:
    """Write the catalog at BERT-large's shape."""
    rows = [
        f"| `{size.name}` | {size.origin} | {size.scores} | {size.trainable:,} | {size.total:,} | "
        f"{size.percent_of_encoder:.3f} | {size.about} |"
        for size in list_heads().heads
    ]
    head = (
        "| head | from | scores | trained | total | % of BERT-large | what it reads |\n"
        "| --- | --- | --- | ---: | ---: | ---: | --- |"
    )
    return "\n".join([head, *rows]) + "\n"


def measures_page() -> str:
    """Write what each task is measured by, the main measure in bold."""
    rows = []
    for task, columns in TASKS.items():
        shown = [f"**{each.head}**" if each.key == MAIN_SCORES[task] else each.head for each in columns]
        rows.append(f"| {task} | {', '.join(shown)} |")
    return "\n".join(["| task | columns |", "| --- | --- |", *rows]) + "\n"


def kinds_page() -> str:
    """Write which head serves which kind of task."""
    head = [f"| head | {' | '.join(KINDS)} |", f"| --- |{' :---: |' * len(KINDS)}"]
    rows = [
        f"| `{name}` | {' | '.join('yes' if kind in entry.kinds else '' for kind in KINDS)} |"
        for name, entry in CATALOG.items()
    ]
    return "\n".join([*head, *rows]) + "\n"


def benchmarks_page() -> str:
    """Write every benchmark that was recorded."""
    return "\n".join(map(bench_chapter, read_bench_records(RESULTS / "bench")))


GENERATED.mkdir(exist_ok=True)
(GENERATED / "heads.md").write_text(heads_page())
(GENERATED / "kinds.md").write_text(kinds_page())
(GENERATED / "benchmarks.md").write_text(benchmarks_page())
(GENERATED / "measures.md").write_text(measures_page())
