"""The records of finished runs in this repository."""

import json
import lzma
from pathlib import Path

from bertvision.records import read_bench_records, read_differences, read_records
from studies.cost_records import read_costs

RESULTS = Path(__file__).parents[2] / "results"


def texts_of(path):
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes()).decode().splitlines()
    return [path.read_text(encoding="utf-8")]


def keys_given_twice(path):
    found = []

    def note(pairs):
        names = [name for name, _ in pairs]
        found.extend(name for name in set(names) if names.count(name) > 1)
        return dict(pairs)

    for text in texts_of(path):
        json.loads(text, object_pairs_hook=note)
    return found


def test_every_committed_record_can_be_read():
    assert len(read_records(RESULTS)) > 700
    assert read_costs(RESULTS)
    assert read_differences(RESULTS)
    assert read_bench_records(RESULTS / "bench")


def test_no_committed_record_has_a_key_twice():
    """A merge of two branches can leave both of their lines, and the last would count."""
    paths = sorted([*RESULTS.rglob("*.json"), *RESULTS.rglob("records.jsonl.xz")])
    assert {path.suffix for path in paths} == {".json", ".xz"}
    assert {str(path): found for path in paths if (found := keys_given_twice(path))} == {}


def test_methods_and_rates_of_committed_variants_are_fields():
    variants = [record for record in read_records(RESULTS / "squad2" / "efficiency") if record.kind == "encoder"]
    assert variants
    assert all(record.method and record.encoder_lr for record in variants)
    assert {record.run for record in variants} == {f"efficiency-{record.variant}" for record in variants}
