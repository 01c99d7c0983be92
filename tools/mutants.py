"""Says which share of small faults in scoring, predictions and windows the tests notice.

    python tools/mutants.py [TREE] [--count 200] [--seed 1] [--processes 2] [--out runs/mutants.jsonl]

Draws COUNT mutants from a fixed seed. Each changes one place of the source, such as `<` to `<=`, `+` to `-`, `and` to
`or`, 1 to 2. It is written into a copy of TREE, and the tests of its area run until one fails. Results are added to
OUT, a line for each; the same command goes on where it was stopped. Prints the share that was caught, by area, and
every mutant that was not. What only names or describes is left alone: annotations, messages of errors, f-strings.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
# Packages of src/bertvision, and the tests that are theirs, quickest first; what a tree does not have is left out.
COMMANDS = [f"tests/test_cli_{name}.py" for name in ("score", "score_rows", "compare", "compare_rows")]
AREAS: dict[str, list[str]] = {
    "windows": ["tests/windows", "tests/kinds"],
    "predictions": ["tests/predictions", "tests/evaluate", "tests/kinds"],
    "metrics": ["tests/metrics", "tests/evaluate"],
    "analysis": ["tests/analysis", "tests/evaluate", *COMMANDS],
    "scoring": ["tests/scoring", "tests/metrics", "tests/analysis", "tests/evaluate", *COMMANDS],
    "kinds": ["tests/kinds", "tests/evaluate", *COMMANDS],
    "evaluate": ["tests/evaluate", *COMMANDS],
}
COPIED = ("src", "tests", "tools", "benchmarks", "pyproject.toml")  # the rest of a tree is linked
PYTEST = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist"]
NONE = -1  # the number of the mutant that changes nothing
LIMIT = 600.0  # seconds after which a mutant that hangs counts as caught
PAIRS = [(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)]
PAIRS += [(ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.BitAnd, ast.BitOr), (ast.And, ast.Or)]
SWAPPED: dict[type, type] = {**dict(PAIRS), **{other: one for one, other in PAIRS}}
SWAPPED |= {ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "maximum": "minimum", "minimum": "maximum"}
LEFT_ALONE = ("annotation", "returns", "decorator_list")  # fields of a node; and:
DESCRIBES = (ast.JoinedStr, ast.Raise)


class Change(NamedTuple):
    """A field of a node and what takes its place."""

    node: Any  # of the tree that is changed
    field: str
    new: Any


class Mutant(NamedTuple):
    """One of the changes that can be made to a file."""

    area: str  # the package that it is in
    file: str  # below the tree
    number: int
    shown: str  # line, old and new source


def changes_below(node: ast.AST) -> Iterator[Change]:
    """Give every change that can be made to a piece of source, in order."""
    if isinstance(node, DESCRIBES):
        return
    yield from _changes_of(node)
    for name, value in ast.iter_fields(node):
        for each in value if isinstance(value, list) else [value]:
            if name not in LEFT_ALONE and isinstance(each, ast.AST):
                yield from changes_below(each)


def _changes_of(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=ops):
            for place, each in enumerate(ops):
                yield Change(node, "ops", [*ops[:place], SWAPPED[type(each)](), *ops[place + 1 :]])
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPPED:
            yield Change(node, "op", SWAPPED[type(op)]())
        case ast.UnaryOp(op=op, operand=operand):  # twice is not at all
            yield Change(node, "operand", ast.UnaryOp(op, operand))
        case ast.If(test=test) | ast.IfExp(test=test):
            yield Change(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.Constant(value=bool(value)):
            yield Change(node, "value", not value)
        case ast.Constant(value=int(value) | float(value)):
            yield Change(node, "value", value + 1)
        case ast.Call(func=ast.Name(id=word) as name) if word in CALLS:
            yield Change(name, "id", CALLS[word])
        case ast.Call(func=ast.Attribute(attr=word) as name) if word in CALLS:
            yield Change(name, "attr", CALLS[word])


def make_mutant(source: str, number: int) -> str:
    """Return a module's source with one change made to it."""
    tree = ast.parse(source)
    if number != NONE:
        change = list(changes_below(tree))[number]
        setattr(change.node, change.field, change.new)
    return ast.unparse(tree)


def draw_mutants(tree: Path, count: int, seed: int, areas: list[str]) -> list[Mutant]:
    """Draw mutants of some packages, the same ones for the same source and seed."""
    every = []
    for area in areas:
        for path in sorted((tree / "src" / "bertvision" / area).rglob("*.py")):
            changes = list(changes_below(ast.parse(path.read_text(encoding="utf-8"))))
            for number, (node, field, new) in enumerate(changes):
                before, old = getattr(node, field), ast.unparse(node).partition("\n")[0]
                setattr(node, field, new)
                shown = f"{node.lineno}: {old} -> {ast.unparse(node)}".partition("\n")[0]
                setattr(node, field, before)
                every.append(Mutant(area, str(path.relative_to(tree)), number, shown))
    return random.Random(seed).sample(every, min(count, len(every)))


def copy_tree(tree: Path, folder: Path) -> Path:
    """Copy what mutants and tests are in, and link the rest."""
    folder.mkdir()
    for each in tree.iterdir():
        if each.name in COPIED and each.is_dir():
            shutil.copytree(each, folder / each.name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        elif each.name in COPIED:
            shutil.copy(each, folder / each.name)
        elif each.name not in (".git", "runs"):
            (folder / each.name).symlink_to(each)
    return folder


def try_out(mutant: Mutant, folder: Path) -> dict[str, Any]:
    """Run the tests of a mutant's area in a copy of the tree, and return what became of it."""
    path, tests = folder / mutant.file, [each for each in AREAS[mutant.area] if (folder / each).exists()]
    source = path.read_text(encoding="utf-8")
    path.write_text(make_mutant(source, mutant.number), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1", "CI": ""}
    environment |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "pytest", *PYTEST, *tests]
    try:
        ended = subprocess.run(
            command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=LIMIT
        )
        status, lines = ended.returncode, ended.stdout.splitlines()
    except subprocess.TimeoutExpired:
        status, lines = None, []
    path.write_text(source, encoding="utf-8")
    by = next((line for line in reversed(lines) if line.startswith(("FAILED", "ERROR"))), " ".join(lines[-3:]))
    return {**mutant._asdict(), "status": status, "by": by[:300]}


def read_results(path: Path) -> dict[Mutant, dict[str, Any]]:
    """Return the results of earlier commands, by mutant."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    return {Mutant(*(row[name] for name in Mutant._fields)): row for row in rows}


def report(results: list[dict[str, Any]]) -> None:
    """Print what was not caught, and the shares."""
    for row in results:
        if row["status"] == 0:
            print(f"not caught: {row['file']}:{row['shown']}")
    for area in [*AREAS, "all"]:
        rows = [row for row in results if area in (row["area"], "all")]
        if rows:
            caught = sum(row["status"] != 0 for row in rows)
            print(f"{area:12} {caught:4} of {len(rows):4} caught, {100 * caught / len(rows):.1f}%")


def main(arguments: list[str] | None = None) -> None:
    """Try mutants that have not been tried, and report on all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, nargs="?", default=ROOT, metavar="TREE", help="[default: this one]")
    parser.add_argument("--count", type=int, default=200, help="of mutants [default: 200]")
    parser.add_argument("--seed", type=int, default=1, help="that they are drawn from [default: 1]")
    parser.add_argument("--processes", type=int, default=2, help="side by side [default: 2]")
    parser.add_argument("--area", action="append", choices=AREAS, help="draw from this package alone; repeatable")
    parser.add_argument("--first", type=int, help="try so many of them now; the next command goes on")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "runs" / "mutants.jsonl", help="[default: runs/mutants.jsonl]"
    )
    asked = parser.parse_args(arguments)
    tree = asked.tree.resolve()
    mutants = draw_mutants(tree, asked.count, asked.seed, asked.area or list(AREAS))[: asked.first]
    areas = dict.fromkeys(mutant.area for mutant in mutants)
    whole = [Mutant(area, f"src/bertvision/{area}/__init__.py", NONE, "without a fault") for area in areas]
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    results = read_results(asked.out)
    left = [mutant for mutant in [*whole, *mutants] if mutant not in results]
    copies: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as name, asked.out.open("a", encoding="utf-8") as file:
        for number in range(min(asked.processes, len(left))):
            copies.put(copy_tree(tree, Path(name) / str(number)))

        def try_in_a_copy(mutant: Mutant) -> dict[str, Any]:
            folder = copies.get()
            try:
                return try_out(mutant, folder)
            finally:
                copies.put(folder)

        with ThreadPoolExecutor(asked.processes) as pool:
            for mutant, found in zip(left, pool.map(try_in_a_copy, left), strict=True):
                if mutant.number == NONE and found["status"] != 0:
                    pool.shutdown(cancel_futures=True)
                    raise SystemExit(f"{mutant.area}: its tests fail without a fault: {found['by']}")
                file.write(json.dumps(found) + "\n")
                file.flush()
                results[mutant] = found
    report([results[mutant] for mutant in mutants])


if __name__ == "__main__":
    main()
