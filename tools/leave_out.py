"""Leaves articles of some sources out of a SQuAD file: python tools/leave_out.py IN.json.gz OUT.json SOURCE...

The open training file holds articles of SQuAD 1.1's dev set (`squad11-rest`), which must not be learned from before
that set is scored (`python -m studies run no_null`).
"""

import json
from collections.abc import Collection
from pathlib import Path

from arguments import read_arguments

from bertvision.data.squad import load_squad
from bertvision.files import write_text


def leave_out(source: Path, target: Path, sources: Collection[str]) -> int:
    """Write a SQuAD file without the articles whose `source` is one of these, and return how many were left out."""
    content = load_squad(source)
    kept = [article for article in content["data"] if article.get("source") not in sources]
    if len(kept) == len(content["data"]):
        raise SystemExit(f"{source}: no article has the source {' or '.join(sources)}")
    write_text(target, json.dumps({**content, "data": kept}, ensure_ascii=False))
    return len(content["data"]) - len(kept)


if __name__ == "__main__":
    source, target, sources = read_arguments(__doc__, "IN", "OUT", "SOURCE...")
    print(leave_out(Path(source), Path(target), sources), "articles left out")
