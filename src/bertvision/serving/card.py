"""A model's settings and records -> its model card."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from bertvision.metrics.squad import Scores
from bertvision.model_config import Calibration, UseConfig
from bertvision.model_folder import ModelConfig
from bertvision.records import RunRecord, tuned_for
from bertvision.tasks import TASKS, task_name
from bertvision.version import VERSION

# Beside a task's own scores, those that say how far the answers can be trusted.
MORE_SCORES = ("tuned_f1", "best_f1", "HasAns_f1", "NoAns_f1", "ece", "ece_calibrated", "risk_coverage_area")


class Measured(NamedTuple):
    """Scores of a model as a command prints them, so that anybody can measure again."""

    command: str
    scores: Scores


class About(NamedTuple):
    """What a card says beside settings and records."""

    title: str | None = None
    name: str = "THIS_FOLDER_OR_HUB_ID"  # what `bertvision.load` takes
    text: str = ""  # in Markdown: what it was trained on, under which licences, and what it cannot do
    measured: tuple[Measured, ...] = ()


def model_card(
    config: ModelConfig, calibration: Calibration, records: Sequence[RunRecord], about: About | None = None
) -> str:
    """Write a Hugging Face model card that says what settings and records say, and what its author adds."""
    about = about or About()
    return "\n".join(
        [
            *_front(config),
            f"# {about.title or f'{config.head.name} for {config.task}'}",
            "",
            f"An encoder with the head `{config.head.name}` ({config.head.pooler.kind}) on its layers' states, trained",
            f"for `{config.task}` by bertvision {VERSION}. Its licence is that of the encoder and of the data that it",
            "was trained on.",
            "",
            "```python",
            "import bertvision",
            "",
            f'model = bertvision.load("{about.name}")',
            TASKS[config.task].kind.usage,
            "```",
            "",
            *([about.text.strip(), ""] if about.text else []),
            *settings_table(config, calibration),
            *(line for measured in about.measured for line in _measured(measured)),
            *(line for record in records for line in _scores(record)),
        ]
    )


def _front(config: ModelConfig) -> list[str]:
    pipeline = TASKS[config.task].kind.pipeline
    return ["---", "library_name: bertvision", f"pipeline_tag: {pipeline}", "tags: [bertvision]", "---", ""]


def settings_table(config: UseConfig, calibration: Calibration) -> list[str]:
    """Return the lines of a card that say how texts are cut and when the model abstains."""
    windows = config.windows
    rows = [
        ("window", f"{windows.max_length} tokens, stride {windows.stride} ({windows.stride_as})"),
        *([("labels", ", ".join(config.labels))] if config.labels else []),
    ]
    if config.task == "squad2":
        rows.append(("null threshold", f"{calibration.threshold:.4f}"))
        rows.append(("null threshold of `predict`", f"{calibration.null_threshold:.4f}"))
    if TASKS[config.task].kind.in_context:
        rows.append(("temperature", f"{calibration.temperature:.4f}"))
    return ["## Settings", "", *_table(("setting", "value"), rows)]


def _measured(measured: Measured) -> list[str]:
    rows = [(name, _number(name, value)) for name, value in measured.scores.items()]
    return ["## Scores", "", "```text", measured.command, "```", "", *_table(("score", "value"), rows)]


def _scores(record: RunRecord) -> list[str]:
    names = [*TASKS[task_name(record.task)].scores, *MORE_SCORES]
    rows = [(name, f"{record.scores[name]:.4g}") for name in dict.fromkeys(names) if name in record.scores]
    data = [
        # The folder is the author's own affair.
        (name, f"`{PurePath(file.name).name}`, {file.questions:,} examples{_sha(file.sha256)}")
        for name, file in record.data.items()
    ]
    made = record.provenance
    commit = "an unknown commit" if made.commit is None else f"commit {made.commit}{' (changed)' if made.dirty else ''}"
    tuned = f"tuned for {tuned_for(record.fraction)}" if record.fraction else "used as given"
    return [
        f"## Scores of {record.run}: {record.row}, seed {record.seed}",
        "",
        *_table(("score on dev", "value"), rows),
        *_table(("data", "file"), data),
        f"The encoder was {tuned}. Made by {commit} on {made.device} in {made.precision}.",
        "",
    ]


def _number(name: str, value: float) -> str:
    return f"{value:,.0f}" if name.endswith("total") else f"{value:.2f}"


def _sha(digest: str | None) -> str:
    return "" if digest is None else f", sha256 {digest[:12]}"


def _table(header: tuple[str, str], rows: Sequence[tuple[str, str]]) -> list[str]:
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in (header, ("---", "---"), *rows)]
    return [*(f"| {line} |" for line in lines), ""]
