"""Compares heads with their encoder on GLUE: python tools/glue_comparisons.py OUT DATA RUN [RUN ...].

RUN are run folders, DATA the folder that their `data.dev` is relative to. Writes comparisons.json, what `bertvision
compare` says of each head, score and seed, and comparisons.md, its table. A seed whose predictions a run folder lacks
has the difference of its recorded scores and no interval.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bertvision.evaluate.compare import CompareConfig, compare_files
from bertvision.files import write_json, write_text
from bertvision.records import RunRecord, read_records
from bertvision.report.renderers import to_markdown
from bertvision.run_folder import folder_of_seed
from bertvision.tables import Column, Table
from bertvision.tasks import TASKS, task_name

ENCODER = "encoder"
HEADS = ("adapter_386_shared_skip", "learned_pooling")
NAMES = ("head", "score", "the head is")  # columns of names, beside the first
HEADER = ("task", "head", "seed", "score", "encoder", "head's", "difference", "95% interval", "p", "the head is")
VERDICTS = ("above", "inside", "below")
NEAR = 2.0  # points below the encoder that the heads were asked to stay within


def main(out: Path, data: Path, runs: Sequence[Path]) -> None:
    """Compare, and write both files."""
    compared = [each for run in runs for each in _compare_run(run, data)]
    order = list(TASKS)
    compared.sort(key=lambda each: (order.index(each["task"]), HEADS.index(each["head"]), each["seed"]))
    write_json(out / "comparisons.json", compared)
    write_text(out / "comparisons.md", f"{to_markdown(_table(compared))}\n{_summary(compared)}\n")


def _compare_run(run: Path, data: Path) -> Iterator[dict[str, Any]]:
    records = read_records(run)
    for encoder in (record for record in records if record.model == ENCODER):
        for head in (record for record in records if record.model in HEADS and record.seed == encoder.seed):
            yield from _compare_heads(run, data, encoder, head)


def _compare_heads(run: Path, data: Path, encoder: RunRecord, head: RunRecord) -> Iterator[dict[str, Any]]:
    folder = folder_of_seed(run, head.seed, tuple(head.config["seeds"]), head.fraction)
    a, b = (folder.predictions(each.model) for each in (encoder, head))
    is_kept = (a / "predictions.json").exists() and (b / "predictions.json").exists()
    config = CompareConfig(task=head.task)
    found = compare_files(a, b, str(data / head.config["data"]["dev"]), config).as_dict() if is_kept else {}
    intervals = {each["metric"]: each for each in found.get("differences", ())}
    for metric in TASKS[task_name(head.task)].scores:
        scores = {"a": encoder.scores[metric], "b": head.scores[metric]}
        interval = intervals.get(metric, {**scores, "low": None, "high": None, "p_value": None})
        if (interval["a"], interval["b"]) != (scores["a"], scores["b"]):
            raise SystemExit(
                f"{a} and {b} do not score what their records of seed {head.seed} say: {interval}, {scores}"
            )
        named = {"task": head.task, "head": head.model, "seed": head.seed, "metric": metric}
        kept = {name: interval[name] for name in ("a", "b", "low", "high", "p_value")}
        yield named | kept | {"difference": scores["b"] - scores["a"], "verdict": _verdict(interval)}


def _verdict(interval: dict[str, Any]) -> str | None:
    if interval["low"] is None:
        return None
    return "above" if interval["low"] > 0 else "below" if interval["high"] < 0 else "inside"


def _table(compared: Sequence[dict[str, Any]]) -> Table:
    columns = tuple(Column(head, "left") if head in NAMES else head for head in HEADER)
    return Table("", columns, tuple(map(_row, compared)))


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    named = (each["task"], each["head"], str(each["seed"]), each["metric"])
    scores = (f"{each['a']:.2f}", f"{each['b']:.2f}", f"{each['difference']:+.2f}")
    if each["low"] is None:
        return (*named, *scores, "", "", "")
    return (*named, *scores, f"{each['low']:+.2f} to {each['high']:+.2f}", f"{each['p_value']:.4f}", each["verdict"])


def _summary(compared: Sequence[dict[str, Any]]) -> str:
    """Count verdicts by head, over tasks and seeds, by the score that stands for a task."""
    first = [each for each in compared if each["metric"] == TASKS[each["task"]].scores[0]]
    lines = [_summary_of(head, [each for each in first if each["head"] == head]) for head in HEADS]
    note = "Above, inside, below: where 0 lies outside the interval or in it. Counted by the first score of each task."
    return "\n".join([*lines, "", note])


def _summary_of(head: str, compared: Sequence[dict[str, Any]]) -> str:
    verdicts = Counter(each["verdict"] for each in compared)
    counted = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in VERDICTS)
    with_interval = len(compared) - verdicts[None]
    near = sum(each["difference"] >= -NEAR for each in compared)
    return (
        f"- `{head}`: of {with_interval} comparisons with an interval {counted}; of all {len(compared)} task-seeds "
        f"{near} are within {NEAR:g} points of the encoder or above it."
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [Path(each) for each in sys.argv[3:]])
