"""Runs the quickstart and puts what it printed into README.md, between the marks."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- quickstart: written by make readme -->", "<!-- end of quickstart -->"


def main() -> None:
    """Replace the excerpt."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bertvision", "quickstart", "--out", "runs/quickstart"]
        started = time.perf_counter()
        environment = {**os.environ, "COLUMNS": "80"}
        printed = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        seconds = time.perf_counter() - started
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = [line.rstrip() for line in printed.stdout.strip().splitlines()]
    excerpt = "\n".join(lines[_last_table(lines) :])
    shown = f"\n```text\n{excerpt}\n```\n\n({seconds:.0f} seconds on {os.cpu_count()} CPU cores.)\n"
    README.write_text(before + BEGIN + shown + END + after, encoding="utf-8")


def _last_table(lines: list[str]) -> int:
    return max(number for number, line in enumerate(lines) if line.startswith("quickstart, "))


main()
