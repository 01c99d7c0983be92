"""Writes the generated parts of the models' cards, of README.md and of pages of docs/, and every committed study.md.

A test holds the pages to it.
"""

import sys
from functools import partial
from pathlib import Path

import elsewhere
import long_documents
import typer.main
from probabilities import models_table, read_answers, trust_section
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.encoder.load import SHIPPED
from bertvision.files import read_json, write_text
from bertvision.hub import CARD
from bertvision.model_config import CALIBRATION
from bertvision.records import BenchRecord, read_bench_records
from bertvision.report.renderers import to_markdown
from bertvision.tables import Table, in_time

sys.path.append(str(Path(__file__).parents[1]))  # benchmarks and studies are in no wheel
from benchmarks.plan import ANSWERED, Stage
from studies.claims import claims_page, settle_claims
from studies.records import STUDY_FILE, read_study_records
from studies.run import study_page
from studies.study import find_study

DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- written by make pages -->\n", "<!-- end of what make pages wrote -->\n"
MEASURED = DOCS.parent / "results/default_model"
TABLE = MEASURED / "decoders.md"
DECODERS = """## How it abstains

`load`, `ask` and `serve` use another decoder than `predict` ([how](howto/answer.md#questions)). This table compares
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


NVLINK, NETWORK = 450.0, 50.0  # gigabytes a second, inside a machine of 8 GPUs and between several
PASSAGES = 100_000_000
PLANNED = """For example {encoder}: tuned for {epochs} epochs on as many questions as SQuAD 2.0's training set has, then
read by 20 heads in one pass; and an answer for each of {passages:,} passages. Measured on one {device} in steps of
{tokens:,} tokens (`make bench NAME=plan`); 8 add up at {nvlink:g} GB/s, 64 at {network:g} GB/s.
"""
CHECKED = """**What came of a plan**: {encoder} on {questions} questions in one process and in two, on a CPU, one thread
each (`make bench NAME=processes`). The plan was given the speed at which the two added up, {link:.2f} GB/s; a message
took {message:.0f} microseconds.
"""


def scale_page() -> str:
    """Return what large runs would take, and how a plan compares with what was measured."""
    records = read_bench_records(DOCS.parent / "results" / "bench")
    plans = [planned(each) for each in records if each.name == "plan"]
    return "\n".join([*plans, *(_checked(each) for each in records if each.name == "processes")])


def planned(record: BenchRecord) -> str:
    """Return what a large run would take on 1, 8 and 64 devices."""
    told = {**record.settings, "device": record.provenance.device, "passages": PASSAGES}
    stages = [
        Stage(
            side.name,
            side.seconds[0],
            int(record.figures[f"{side.name}: steps"]),
            int(1e6 * record.figures[f"{side.name}: MB of gradients"]),
        )
        for side in record.sides
    ]
    *training, answering = stages
    passages = Stage(f"{PASSAGES:,} passages", PASSAGES / ANSWERED * answering.seconds)
    columns = ("stage", "1", "8", "64", "efficiency of 8", "of 64")
    rows = tuple(_scaled(stage) for stage in (*training, passages))
    return f"{PLANNED.format(**told, nvlink=NVLINK, network=NETWORK)}\n{to_markdown(Table('', columns, rows))}"


def _scaled(stage: Stage) -> tuple[str, ...]:
    counted = [(8, stage.seconds_in(8, NVLINK)), (64, stage.seconds_in(64, NETWORK))]
    efficiency = [f"{stage.seconds / (count * seconds):.0%}" for count, seconds in counted]
    return stage.name, *map(in_time, (stage.seconds, *(seconds for _, seconds in counted))), *efficiency


def _checked(record: BenchRecord) -> str:
    figures = record.figures
    told = {**record.settings, "link": figures["link: GB/s"], "message": figures["link: microseconds a message"]}
    columns = ("stage", "processes", "foreseen", "measured", "measured / foreseen")
    rows = []
    for side in record.sides:
        stage, processes = side.name.rsplit(", ", 1)
        foreseen, ratio = (figures[f"{side.name}: {what}"] for what in ("foreseen seconds", "measured / foreseen"))
        rows.append((stage, processes, in_time(foreseen), in_time(side.seconds[0]), f"{ratio:.2f}"))
    return f"{CHECKED.format(**told)}\n{to_markdown(Table('', columns, tuple(rows)))}"


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
    for each in PAGES:
        write_text(each, written(each))
    for path, text in study_pages().items():
        write_text(path, text)
