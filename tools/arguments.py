"""Reads the arguments of a tool that takes places alone; `--help` prints what the tool's own first lines say."""

import argparse
from typing import Any

NARGS = {"[]": "?", "...": "+", "[...]": "*"}


def read_arguments(about: str | None, *names: str) -> list[Any]:
    """Return the value of each argument: a text, None for a missing [NAME], a list for NAME... or [NAME...]."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in names:
        word = name.strip("[.]")
        parser.add_argument(word, nargs=NARGS.get(name.replace(word, "")))
    return list(vars(parser.parse_args()).values())
