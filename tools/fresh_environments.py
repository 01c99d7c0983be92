"""Calls every verb in fresh environments: python tools/fresh_environments.py [core] [serve] [train].

Makes a wheel, and for each name an environment with the wheel and that extra alone. Every verb must do its work or say
in one line which extra it needs; anything else is listed, and the exit code is 1. Prints the size of each environment
and the seconds of a first answer, of the clock and of the CPU. Needs the package index; minutes, and 2 GB for `train`.
"""

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXTRAS = {"core": "", "serve": "[serve]", "train": "[train]"}
TEXT = "The weir at Coyle was built in 1887 by the engineer Hannah Coyle. It is 40 metres long."
ASK = ("ask", "--question", "Who built the weir?", "--context", TEXT)
# What each verb is called with, in one folder and this order; a verb that is not here has its --help called.
CALLS: tuple[tuple[str, ...], ...] = (
    ASK,
    (*ASK, "--layers"),
    ("predict", "default", "--data", "sample:dev[:20]", "--out", "answers"),
    ("score", "squad2", "--gold", "sample:dev[:20]", "--predictions", "answers/predictions.json"),
    ("compare", "answers", "answers", "--task", "squad2", "--gold", "sample:dev[:20]"),
    ("save", "default", "--out", "mine"),
    ("save", "default", "--onnx", "--out", "graph"),
    ("calibrate", "mine", "--data", "sample:dev[:40]", "--write"),
    ("serve", "--help"),  # a server would not end
    ("show", "heads"),
    ("show", "data", "sample:dev", "--task", "squad2"),
    ("analyze", "default", "--layers", "--gold", "sample:dev[:5]"),
    ("run", "sample/heads", "--out", "run", "--set", "finetune.fractions=[]"),
    ("report", str(ROOT / "results" / "ner"), "--out", "page"),
)
ENDS = re.compile(r"pip install 'bertvision\[\w+\]'")  # how a verb names its extra


def main(names: list[str]) -> int:
    """Try the environments; return how many calls did neither their work nor name an extra."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        wheel = _make_wheel(place)
        print(f"wheel: {wheel.stat().st_size / 1e6:.1f} MB")
        for name in names or list(EXTRAS):
            failed += _try(name, wheel, place / name)
    return failed


def _make_wheel(place: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(place), str(ROOT)], check=True, cwd=place
    )
    return next(place.glob("*.whl"))


def _try(name: str, wheel: Path, place: Path) -> int:
    venv.create(place / "venv", with_pip=True)
    program = place / "venv" / "bin" / "bertvision"
    subprocess.run([place / "venv/bin/pip", "install", "-q", f"{wheel}{EXTRAS[name]}"], check=True)
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    _call(program, ASK, place)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{name}: {size / 1e6:.0f} MB; a first answer in {seconds:.2f} s, {cpu:.2f} s of the CPU")
    shown = _call(program, ("--help",), place).stdout
    others = [(verb, "--help") for verb in re.findall(r"^│ ([a-z-]+) ", shown, re.MULTILINE)]
    failed = 0
    for given in (*CALLS, *others):
        done = _call(program, given, place)
        named = ENDS.search(done.stderr)
        is_right = done.returncode == 0 or (named is not None and done.stderr.count("\n") == 1)
        failed += not is_right
        said = "works" if done.returncode == 0 else (done.stderr.strip() or done.stdout.strip()).splitlines()[-1][:140]
        if given[1:] != ("--help",) or not is_right:
            print(f"  {'' if is_right else 'WRONG '}{' '.join(given)[:60]}: {said}")
    return failed


def _call(program: Path, given: tuple[str, ...], place: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [program, *given], cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=600
    )


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
