"""Writes the generated parts of docs/commands.md, claims.md and the models' pages; a test holds the pages to it."""

from pathlib import Path

import typer.main
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.encoder.load import SHIPPED
from bertvision.files import write_text
from bertvision.report.renderers import to_markdown
from bertvision.studies.claims import claims_tables, count_statuses, settle_claims

DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- written by make pages -->\n", "<!-- end of what make pages wrote -->\n"
MEASURED = DOCS.parent / "results/default_model"
TABLE = MEASURED / "decoders.md"
DECODERS = """## How it abstains

`load`, `ask` and `serve` decode otherwise than `predict` ([how](howto/answer.md#questions)). Here are both decoders on
questions of SQuAD 2.0's dev set. Threshold and temperature of each were fitted on the held-out questions. "Best F1" is
that of the best threshold in hindsight. ECE and Brier score judge the probability of what is given, and that of "no
answer". `tools/decoders.py` makes the table from the logits of `bertvision predict default`.
"""
LONG = """## Long documents

Questions of SQuAD 2.0's dev set are asked about their own paragraph, about their whole article, and about texts of 1 to
50 pages (500 words each), in which their paragraph stands anywhere among those of other articles. Scores are those at
the model's own threshold. An answer comes "from its paragraph" where it stands in the one that the question was written
for. In an article, another paragraph may answer what this one does not, so `NoAns F1` is a lower bound there. Seconds
and memory are those of one document. `tools/long_documents.py` makes the table.
"""
# What --help reads of its surroundings: 80 columns, no colours, whatever the terminal or the CI.
PLAIN = {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}


def commands_page() -> str:
    """Return every verb's --help."""
    names = list(typer.main.get_command(app).commands)
    return "\n".join([_help("bertvision"), *(_help(name, name) for name in names)])


def default_model_page() -> str:
    """Return the default model's card, how its decoders compare, and how it does on long documents."""
    return f"{_card('default')}\n{DECODERS}\n{TABLE.read_text(encoding='utf-8')}{_long('default')}"


def base_model_page() -> str:
    """Return the base model's card, and how it does on long documents."""
    return f"{_card('base')}{_long('base')}"


def _long(name: str) -> str:
    """Return what was measured on long documents, if it was."""
    path = MEASURED / f"long-{name}.md"
    return f"\n{LONG}\n{path.read_text(encoding='utf-8')}" if path.is_file() else ""


def _card(name: str) -> str:
    """Return the card of a model that ships, without what only the hub reads."""
    _, _, card = (SHIPPED[name] / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return card.lstrip()


def claims_page() -> str:
    """Return every claim of the papers with what the committed records say of it."""
    settled = settle_claims(DOCS.parent / "results")
    counts = ", ".join(f"{count} {status}" for status, count in count_statuses(settled).items())
    tables = [f"## {table.title}\n\n{to_markdown(table)}" for table in claims_tables(settled)]
    return "\n".join([f"Of {len(settled)} claims: {counts}.\n", *tables])


PAGES = {
    DOCS / "commands.md": commands_page,
    DOCS / "default_model.md": default_model_page,
    DOCS / "base_model.md": base_model_page,
    DOCS / "claims.md": claims_page,
}


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
