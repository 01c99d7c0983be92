"""Tables of a model's card; no torch in here, so that calibrating can write them anew."""

from collections.abc import Sequence

from bertvision.model_config import Calibration, UseConfig
from bertvision.tasks import TASKS


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
        if calibration.min_accuracy is not None:
            rows.append(("chosen so that answers are right in", f"{calibration.min_accuracy:.0%}"))
    if TASKS[config.task].kind.in_context:
        rows.append(("temperature", f"{calibration.temperature:.4f}"))
    return ["## Settings", "", *card_table(("setting", "value"), rows)]


def card_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    dashes = ("---",) * len(header)
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in (header, dashes, *rows)]
    return [*(f"| {line} |" for line in lines), ""]
