"""Writes the generated parts of the models' cards, of README.md and of pages of docs/, and every committed study.md.

A test holds the pages to it.
"""

import sys
from functools import partial
from pathlib import Path

import elsewhere
import long_documents
import typer.main
from arguments import read_arguments
from probabilities import models_table, read_answers, trust_section
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.files import read_json, write_text
from bertvision.hub import CARD
from bertvision.model_config import CALIBRATION, SHIPPED
from bertvision.records import BenchRecord, read_bench_records
from bertvision.report.renderers import to_markdown
from bertvision.tables import Table, in_time

sys.path.append(str(Path(__file__).parents[1]))  # benchmarks and studies are in no wheel
from studies.claims import claims_page, settle_claims
from studies.records import STUDY_FILE, read_study_records
from studies.run import study_page
from studies.study import find_study

DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- written by make pages -->\n", "<!-- end of what make pages wrote -->\n"
MEASURED = DOCS.parent / "results/default_model"
TABLE = MEASURED / "decoders.md"
DECODERS = """## How it abstains

A model in use decides by another rule than the official decoder ([how](howto/answer.md#questions)). This table compares
both on questions of SQuAD 2.0's dev set. Threshold and temperature of each were fitted on the held-out questions.
"Best F1" is at the threshold that is best in hindsight. ECE and Brier score judge the probability of the returned
answer, and that of "no answer". `tools/decoders.py` makes the table from the logits of `bertvision predict default`.
"""
# What --help reads of its surroundings: 80 columns, no colours, whatever the terminal or the CI.
PLAIN = {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}


def commands_page() -> str:
    """Return every verb's --help."""
    names = list(typer.main.get_command(app).commands)
    return "\n".join([_help("bertvision"), *(_help(name, name) for name in names)])


def default_model_page() -> str:
    """Return the default model's card, and how its decoders compare."""
    return f"{_card('default')}\n{DECODERS}\n{TABLE.read_text(encoding='utf-8')}"


def elsewhere_page() -> str:
    """Return what the models that ship score on text that is not Wikipedia."""
    return elsewhere.results(read_json(elsewhere.RECORD))


def _card(name: str) -> str:
    """Return the card of a model that ships, without what only the hub reads."""
    _, _, card = written(SHIPPED[name] / CARD).split("---\n", 2)
    return card.replace(BEGIN, "").replace(END, "").strip() + "\n"


def measured_part(name: str) -> str:
    """Return what a card says of a model's answers, as far as they were measured."""
    dev, others = read_answers(name), read_json(elsewhere.RECORD)
    parts = [trust_section(dev)] if dev is not None else []
    parts += [elsewhere.section(others[name])] if name in others else []
    long = [read_json(path) for path in sorted(MEASURED.glob(f"long-{name}*.json"))]
    return "\n".join([*parts, long_documents.section(long, read_json(SHIPPED[name] / CALIBRATION))])


def claims_section() -> str:
    """Return every claim of the papers with what the committed records say of it."""
    return claims_page(settle_claims(DOCS.parent / "results"))


MEASURED_TOGETHER = """{encoder} on {questions} questions, on a CPU with one thread a process (`make bench
NAME=processes`). The two added up at {link:.2f} GB/s; a message took {message:.0f} microseconds.
"""


def scale_page() -> str:
    """Return what a run takes in one process and in several."""
    records = read_bench_records(DOCS.parent / "results" / "bench")
    return "\n".join(_in_processes(each) for each in records if each.name == "processes")


def _in_processes(record: BenchRecord) -> str:
    told = {**record.settings, "link": record.figures["link: GB/s"]}
    text = MEASURED_TOGETHER.format(**told, message=record.figures["link: microseconds a message"])
    rows = []
    for alone, together in zip(record.sides[::2], record.sides[1::2], strict=True):
        (one,), (several,) = alone.seconds, together.seconds
        stage = alone.name.rsplit(", ", 1)[0]
        rows.append((stage, in_time(one), in_time(several), f"{one / several:.2f}"))
    columns = ("stage", "1 process", f"{record.settings['count']} processes", "times as fast")
    return f"{text}\n{to_markdown(Table('', columns, tuple(rows)))}"


PAGES = {
    **{folder / CARD: partial(measured_part, name) for name, folder in SHIPPED.items()},
    DOCS.parent / "README.md": lambda: models_table("docs/"),
    DOCS / "index.md": models_table,
    DOCS / "commands.md": commands_page,
    DOCS / "default_model.md": default_model_page,
    DOCS / "base_model.md": partial(_card, "base"),
    DOCS / "elsewhere.md": elsewhere_page,
    DOCS / "claims.md": claims_section,
    DOCS / "howto" / "scale.md": scale_page,
}


def study_pages() -> dict[Path, str]:
    """Return every committed study.md as its record and today's rule have it; verdicts stay those of its run."""
    records = {path: read_study_records(path.parent)[0] for path in sorted((DOCS.parent / "results").rglob(STUDY_FILE))}
    return {path.with_name("study.md"): study_page(find_study(each.study), each) for path, each in records.items()}


def written(page: Path) -> str:
    """Return a page with its generated part made anew."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{PAGES[page]()}\n{END}{after}"


def _help(title: str, *verb: str) -> str:
    shown = CliRunner().invoke(app, [*verb, "--help"], prog_name="bertvision", env=PLAIN, catch_exceptions=False)
    lines = [line.rstrip() for line in shown.stdout.strip().splitlines()]
    return f"## {title}\n\n```text\n" + "\n".join(lines) + "\n```\n"


if __name__ == "__main__":
    read_arguments(__doc__)
    for each in PAGES:
        write_text(each, written(each))
    for path, text in study_pages().items():
        write_text(path, text)
