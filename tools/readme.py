"""Runs the quickstart as `make quickstart` does and puts the end of what it printed into README.md."""

import os
import shutil
import subprocess
import time
from pathlib import Path

from arguments import read_arguments

from bertvision.files import write_text

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- quickstart: written by make readme -->", "<!-- end of quickstart -->"


def main() -> None:
    """Replace the excerpt."""
    shutil.rmtree(ROOT / "runs" / "quickstart", ignore_errors=True)  # a finished run would not be done again
    started = time.perf_counter()
    command = [".venv/bin/bertvision", "quickstart"]
    printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    seconds = time.perf_counter() - started
    lines = [line.rstrip() for line in printed.strip().splitlines()]
    table = max(number for number, line in enumerate(lines) if line == "quickstart")
    excerpt = "\n".join(lines[table:])
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    shown = f"\n```text\n{excerpt}\n```\n\n({seconds:.0f} seconds on {os.cpu_count()} CPU cores.)\n"
    write_text(readme, before + BEGIN + shown + END + after)


if __name__ == "__main__":
    read_arguments(__doc__)
    main()
