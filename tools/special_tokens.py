"""Shows why heads that read low layers abstain more often: encoders whose special tokens have one state in common.

    python tools/special_tokens.py states ENCODER DATA OUT.json [--questions 100]
    python tools/special_tokens.py explain STUDY...
    python tools/special_tokens.py draw STUDY OUT.json...

`states` measures, layer by layer, how far the states of the separators lie from the first token's, relative to its
norm, and how far those of the context do. From a layer on in which they are equal, they stay so whatever the weights
above: attention and all else treat equal states alike. A head that reads such layers alone gives all three tokens the
same score, so that each gets a third of what "no answer" deserves, and its null odds are 2 ln 3 too low: ln 3 at the
start and at the end. `explain` tests that number on records of `python -m studies`: heads at threshold 0 against
controls at 0 and at -2 ln 3, by their threshold curves; into STUDY/explained.md.
`draw` shows both as STUDY/special_tokens.png.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from bertvision.data.squad import read_squad_file
from bertvision.encoder.load import Encoder, load_encoder
from bertvision.files import read_json, write_json, write_text
from bertvision.records import RunRecord, read_records
from bertvision.report.renderers import to_markdown
from bertvision.tables import Table
from bertvision.windows.window import WindowConfig, cut_windows

sys.path.append(str(Path(__file__).parents[1]))  # benchmarks and studies are in no wheel
from studies.study_tables import interval_text
from studies.verdicts import estimate

THIRD = -2 * log(3)  # a null threshold: the score of "no answer", shared by three tokens at the start and at the end
CONTROLS = ("encoder", "last_adapter")
DIGITS = 4
# The same adapter by the layers that it reads; blue where the embeddings are among them.
READS = {
    "adapter_386_shared": "0 to 12",
    "adapter_not_last": "0 to 11",
    "adapter_ends": "0 and 12",
    "adapter_last_7": "6 to 12",
    "adapter_last_4": "9 to 12",
    "adapter_last_2": "11 and 12",
    "adapter_last": "12",
    "adapter_copies": "12, thirteen times",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure states, or explain a study's records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    states = commands.add_parser("states")
    states.add_argument("encoder")
    states.add_argument("data", type=Path)
    states.add_argument("out", type=Path)
    states.add_argument("--questions", type=int, default=100)
    explain = commands.add_parser("explain")
    explain.add_argument("study", type=Path, nargs="+")
    draw = commands.add_parser("draw")
    draw.add_argument("study", type=Path)
    draw.add_argument("states", type=Path, nargs="+")
    given = parser.parse_args(arguments)
    if given.command == "states":
        layers = distances(load_encoder(given.encoder), given.data, given.questions)
        write_json(given.out, {"encoder": Path(given.encoder).name, "questions": given.questions, "layers": layers})
    elif given.command == "draw":
        draw_figure(given.study, [read_json(each) for each in given.states])
    else:
        for study in given.study:
            write_text(study / "explained.md", to_markdown(explained(study)))


def distances(encoder: Encoder, data: Path, count: int) -> list[dict[str, float]]:
    """Return the mean distance from the first token's state, of the separators and of the context, for every layer."""
    questions = random.Random(1).sample(list(read_squad_file(data).examples), count)
    windows = cut_windows(questions, encoder.tokenizer, WindowConfig(), labelled=False)
    model, separator = encoder.model.eval(), encoder.tokenizer.sep_token_id
    found = []
    for window in windows:
        ids = torch.tensor(np.array(window.ids, dtype=np.int64))[None]
        with torch.no_grad():
            states = torch.stack(model(input_ids=ids, output_hidden_states=True).hidden_states)[:, 0].float()
        apart = (states - states[:, :1]).norm(dim=-1) / states[:, 0].norm(dim=-1, keepdim=True)
        separators = torch.tensor([at for at, each in enumerate(window.ids) if each == separator])
        context = apart[:, window.context_at : -1].mean(dim=1)
        found.append(torch.stack([apart[:, separators[0]], apart[:, separators[-1]], context], dim=1))
    names = ("first separator", "last separator", "context")
    means = torch.stack(found).mean(dim=0).tolist()
    return [dict(zip(names, (round(each, DIGITS) for each in layer), strict=True)) for layer in means]


def explained(study: Path) -> Table:
    """Lay out how far heads at threshold 0 are above controls at 0 and at -2 ln 3."""
    above = [f"{control} at {at}" for control in CONTROLS for at in ("0", "-2 ln 3")]
    return Table("", ("head", "epochs", "F1 at 0", *(f"above {each}" for each in above)), tuple(_rows(study)))


def _rows(study: Path) -> Iterator[tuple[str, ...]]:
    records = read_records(study)
    rows = dict.fromkeys((each.row, each.fraction) for each in records if each.row not in CONTROLS)
    for row, fraction in rows:
        by_row = {
            name: {each.seed: each for each in records if (each.row, each.fraction) == (name, fraction)}
            for name in (row, *CONTROLS)
        }
        own = by_row[row]
        apart = [
            estimate([own[seed].scores["f1"] - f1_at(by_row[control][seed], at) for seed in own])
            for control, at in product(CONTROLS, (0.0, THIRD))
        ]
        f1 = estimate([each.scores["f1"] for each in own.values()])
        yield (row, f"{fraction:g}", f"{f1.mean:.1f}", *(interval_text(each, "+") for each in apart))


def f1_at(record: RunRecord, threshold: float) -> float:
    """Read F1 at a null threshold off a record's curve; at 0 it is the score itself."""
    if threshold == 0:
        return record.scores["f1"]
    assert record.curves is not None, f"{record.row}: has no threshold curve"
    places, _, f1 = zip(*record.curves.threshold, strict=True)
    return float(np.interp(threshold, places, f1))


def draw_figure(study: Path, measured: Sequence[Mapping[str, Any]]) -> None:
    """Draw how far the separators lie from the first token, and what the same adapter scores on some of the layers."""
    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.1))
    for each in measured:
        apart = [fmean((layer["first separator"], layer["last separator"])) for layer in each["layers"]]
        left.plot(range(len(apart)), apart, marker="o", markersize=3, label=each["encoder"])
    left.set(xlabel="layer (0: embeddings)", ylabel="norm of the first token's state = 1", ylim=(0, None))
    left.set(xticks=range(0, 13, 2), title="Distance of [SEP] from [CLS]")
    left.legend(frameon=False, fontsize=8)
    records = read_records(study)
    means = [fmean(each.scores["f1"] for each in records if each.row == row) for row in READS]
    right.scatter(means, range(len(READS)), color=["C0" if name.startswith("0") else "0.5" for name in READS.values()])
    right.set_yticks(range(len(READS)), list(READS.values()), fontsize=8)
    right.set(xlabel="F1 at threshold 0, mean of 3 seeds", title="gte-small: layers the adapter reads")
    right.grid(axis="x", alpha=0.3)
    right.invert_yaxis()
    figure.savefig(study / "special_tokens.png", dpi=150)


if __name__ == "__main__":
    main()
