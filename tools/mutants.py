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
import signal
import subprocess
import sys
import tempfile
import time
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
UNCHANGED = ":0:0:  -> "  # ends the name of a mutant that is none
LIMIT = 600.0  # seconds after which a mutant that hangs counts as caught
SWAPPED: dict[type, str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.And: "or",
    ast.Or: "and",
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "maximum": "minimum", "minimum": "maximum"}


class Mutant(NamedTuple):
    """A stretch of a file and what takes its place."""

    file: str  # below the tree
    line: int
    start: int  # bytes
    stop: int
    old: str
    new: str

    @property
    def area(self) -> str:
        """The package that it is in."""
        return Path(self.file).parts[2]

    @property
    def name(self) -> str:
        """What it is called in the list of results; the same change of another source is another one."""
        return f"{self.file}:{self.line}:{self.start}: {self.old} -> {self.new}"


class Finder(ast.NodeVisitor):
    """Collects the changes that can be made to a module."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        lines = source.splitlines(keepends=True)
        self.starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
        self.found: list[tuple[ast.AST, str]] = []

    def bounds(self, node: Any) -> tuple[int, int]:  # noqa: ANN401 (any node with a place)
        """Return where a node begins and ends, in bytes."""
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def text(self, node: ast.AST) -> str:
        """Return the source of a node."""
        start, stop = self.bounds(node)
        return self.source[start:stop].decode()

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:  # noqa: N802 (ast's name)
        """Leave f-strings alone: they describe, and their places are not told."""

    def visit_Raise(self, node: ast.Raise) -> None:  # noqa: N802 (ast's name)
        """Leave messages of errors alone."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:  # noqa: N802 (ast's name)
        """Leave the annotation alone."""
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:  # noqa: N802 (ast's name)
        """Leave annotations and decorators alone."""
        for each in [*node.args.defaults, *node.args.kw_defaults, *node.body]:
            if each is not None:
                self.visit(each)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:  # noqa: N802 (ast's name)
        """Leave imports alone."""

    def visit_Compare(self, node: ast.Compare) -> None:  # noqa: N802 (ast's name)
        """Change each comparison of a chain."""
        sides = [node.left, *node.comparators]
        for place, operator in enumerate(node.ops):
            words = [self.text(side) for side in sides]
            signs = [sign_of(each) for each in node.ops]
            signs[place] = SWAPPED[type(operator)]
            rest = (f" {sign} {word}" for sign, word in zip(signs, words[1:], strict=True))
            self.found.append((node, words[0] + "".join(rest)))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:  # noqa: N802 (ast's name)
        """Change an operation."""
        if type(node.op) in SWAPPED:
            self.found.append((node, f"{self.text(node.left)} {SWAPPED[type(node.op)]} {self.text(node.right)}"))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:  # noqa: N802 (ast's name)
        """Turn `and` into `or`, or the other way round."""
        self.found.append((node, f" {SWAPPED[type(node.op)]} ".join(f"({self.text(each)})" for each in node.values)))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:  # noqa: N802 (ast's name)
        """Leave a `not`, a `-` or a `~` out."""
        self.found.append((node, f"({self.text(node.operand)})"))
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:  # noqa: N802 (ast's name)
        """Turn a condition round."""
        self.found.append((node.test, f"not ({self.text(node.test)})"))
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:  # noqa: N802 (ast's name)
        """Turn a condition round."""
        self.found.append((node.test, f"not ({self.text(node.test)})"))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:  # noqa: N802 (ast's name)
        """Change a number or a truth value."""
        if isinstance(node.value, bool):
            self.found.append((node, str(not node.value)))
        elif isinstance(node.value, int | float):
            self.found.append((node, repr(node.value + 1)))

    def visit_Call(self, node: ast.Call) -> None:  # noqa: N802 (ast's name)
        """Exchange `min` and `max`, `any` and `all`."""
        named = node.func
        word = named.id if isinstance(named, ast.Name) else named.attr if isinstance(named, ast.Attribute) else ""
        if word in CALLS:
            self.found.append((named, self.text(named).removesuffix(word) + CALLS[word]))
        self.generic_visit(node)


def sign_of(operator: ast.cmpop) -> str:
    """Return how a comparison is written."""
    shown = ast.unparse(ast.Compare(ast.Name("a"), [operator], [ast.Name("b")]))
    return shown[2:-2]


def find_mutants(path: Path, tree: Path) -> Iterator[Mutant]:
    """Give every mutant of a module that still compiles."""
    source = path.read_bytes()
    finder = Finder(source)
    finder.visit(ast.parse(source))
    for node, new in finder.found:
        start, stop = finder.bounds(node)
        try:
            ast.parse(source[:start] + new.encode() + source[stop:])
        except SyntaxError:
            continue
        line = source.count(b"\n", 0, start) + 1
        yield Mutant(str(path.relative_to(tree)), line, start, stop, source[start:stop].decode(), new)


def draw_mutants(tree: Path, count: int, seed: int, areas: list[str]) -> list[Mutant]:
    """Draw mutants of some packages, the same ones for the same source and seed."""
    package = tree / "src" / "bertvision"
    paths = [path for area in areas for path in sorted((package / area).rglob("*.py"))]
    every = sorted({mutant for path in paths for mutant in find_mutants(path, tree)})
    return random.Random(seed).sample(every, min(count, len(every)))


def unchanged(mutant: Mutant) -> Mutant:
    """Return the file of a mutant as it is, whose tests have to pass."""
    return Mutant(f"src/bertvision/{mutant.area}/__init__.py", 0, 0, 0, "", "")


# One process holds torch and transformers and forks for each mutant, so that these are imported once.


def copy_tree(tree: Path, folder: Path) -> None:
    """Copy what mutants and tests are in, and link the rest."""
    for each in tree.iterdir():
        if each.name in COPIED and each.is_dir():
            shutil.copytree(each, folder / each.name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        elif each.name in COPIED:
            shutil.copy(each, folder / each.name)
        elif each.name not in (".git", "runs"):
            (folder / each.name).symlink_to(each)


def serve_mutants() -> None:
    """Read mutants from standard input, and print for each whether the tests of the current folder notice it."""
    import pytest  # noqa: F401 (before forking)
    import torch  # noqa: F401
    import transformers

    assert transformers.BertModel  # loaded when it is named
    assert transformers.BertTokenizerFast
    for number, line in enumerate(sys.stdin):
        mutant = Mutant(*json.loads(line))
        path = Path(mutant.file)
        source = path.read_bytes()
        path.write_bytes(source[: mutant.start] + mutant.new.encode() + source[mutant.stop :])
        stamp(path, 2 * number)
        tests = [each for each in AREAS[mutant.area] if Path(each).exists()]
        began = time.monotonic()
        status = run_forked(tests)
        path.write_bytes(source)
        stamp(path, 2 * number + 1)
        found = {"mutant": mutant.name, "area": mutant.area, "status": status, "seconds": time.monotonic() - began}
        print(json.dumps(found | {"by": failed_test()}), flush=True)


def stamp(path: Path, number: int) -> None:
    """Give a file a time of its own, so that what was compiled before is not taken for it."""
    os.utime(path, (1e9 + 10 * number, 1e9 + 10 * number))


def run_forked(tests: list[str]) -> int | None:
    """Run tests in a child until one fails; return pytest's status, or None where it took too long."""
    child = os.fork()
    if child == 0:
        os.setsid()
        with open("mutant.log", "w") as log:  # noqa: PTH123 (its number is needed)
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            import pytest

            options = [
                "-x",
                "-q",
                "--no-header",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
                "-W",
                "ignore::pytest.PytestAssertRewriteWarning",
            ]
            os._exit(int(pytest.main([*options, *tests])))
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def failed_test() -> str:
    """Return the line in which pytest names the test that failed."""
    lines = Path("mutant.log").read_text(errors="replace").splitlines()
    return next((line for line in reversed(lines) if line.startswith(("FAILED", "ERROR"))), " ".join(lines[-3:]))[:300]


class Server:
    """A copy of a tree, and a process that tries mutants in it."""

    def __init__(self, tree: Path, folder: Path) -> None:
        folder.mkdir()
        copy_tree(tree, folder)
        environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            cwd=folder,
            env=environment | {"CUDA_VISIBLE_DEVICES": "", "CI": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def try_out(self, mutant: Mutant) -> dict[str, Any]:
        """Return what became of a mutant."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(mutant) + "\n")
        self.process.stdin.flush()
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """Return the results of earlier commands, by mutant."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return {row["mutant"]: row for row in rows}


def report(results: list[dict[str, Any]]) -> None:
    """Print what was not caught, and the shares."""
    for row in results:
        if row["status"] == 0:
            print(f"not caught: {row['mutant']}")
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
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    results = read_results(asked.out)
    left = [*dict.fromkeys(map(unchanged, mutants)), *mutants]  # first without any fault
    left = [mutant for mutant in left if mutant.name not in results]
    servers: SimpleQueue[Server] = SimpleQueue()
    with tempfile.TemporaryDirectory() as name, asked.out.open("a") as file:
        for number in range(min(asked.processes, len(left))):
            servers.put(Server(tree, Path(name) / str(number)))

        def try_out(mutant: Mutant) -> dict[str, Any]:
            server = servers.get()
            try:
                return server.try_out(mutant)
            finally:
                servers.put(server)

        with ThreadPoolExecutor(asked.processes) as pool:
            for found in pool.map(try_out, left):
                if found["mutant"].endswith(UNCHANGED) and found["status"] != 0:
                    pool.shutdown(cancel_futures=True)
                    raise SystemExit(f"{found['area']}: its tests fail without a fault: {found['by']}")
                file.write(json.dumps(found) + "\n")
                file.flush()
                results[found["mutant"]] = found
        while not servers.empty():
            process = servers.get().process
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
    report([results[mutant.name] for mutant in mutants])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve_mutants()
    else:
        main()
