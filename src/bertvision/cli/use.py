"""Verbs that answer with a model: questions about a text, or a whole file."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertvision.cli.console import (
    MODEL,
    AllowOutside,
    Json,
    ProcessCount,
    Quiet,
    Set,
    in_one_line,
    is_done_by_several,
    passing_progress,
    print_csv,
    print_json,
    progress_for,
    results,
    settings_of,
)
from bertvision.errors import DataError, SettingsError
from bertvision.files import check_file, check_folder
from bertvision.tables import counted

if TYPE_CHECKING:
    from bertvision.serving.answers import Answer
    from bertvision.serving.predict import FilePredictions
    from bertvision.serving.reader import Asked


@in_one_line
def ask(
    questions: Annotated[
        list[str], typer.Option("--question", help="What you want to know; several times for several questions.")
    ],
    model: Annotated[
        str, typer.Option("--model", help="default, base, a MODEL_DIR, a checkpoint or a hub id.")
    ] = "default",
    context: Annotated[str | None, typer.Option("--context", help="The text that may hold the answer.")] = None,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--file", metavar="FILE", help="A text file (UTF-8) instead, or several times; - for standard input."
        ),
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", help="How many answers to show.", min=1)] = 3,
    null_threshold: Annotated[
        float | None, typer.Option("--null-threshold", help="Abstain where the null odds exceed it; inf: never.")
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Show what each layer adds to the answer's score.")] = False,
    allow_outside: AllowOutside = False,
    as_json: Json = False,
) -> None:
    """Answer a question about a text, or several of them.

    Shows the answer in its sentence, how likely it is, how likely it is that the text holds no answer, and the next
    best answers. Of several files all are read, and it says in which file and line the answer stands. Long texts are
    read in parts; on a terminal a bar shows how far it is.

    Example: bertvision ask --question "Who built the weir?" --file weir.txt
    """
    if (context is None) == (not files):
        raise SettingsError("give the context in one way: --context TEXT, or --file FILE (- for standard input)")
    texts = [context] if context is not None else [_read_text(name) for name in files or ()]
    import bertvision
    from bertvision.serving.reader import Asking, Reader, pair_questions

    reader = bertvision.load(model, allow_outside=allow_outside)
    if not isinstance(reader, Reader):
        raise SettingsError(
            f"{model}: is a model of {reader.served.config.task}, which answers no questions; use `bertvision predict`"
        )
    asking = Asking(top_k, null_threshold, layers=layers)
    ratio = reader.null_ratio(null_threshold) if null_threshold is not None and reader.has_null else None
    names = [_name_of(each) for each in files or ()]
    pairs: list[Asked] = []
    for question in questions:
        pairs += pair_questions(question, texts[0] if len(texts) == 1 else texts)[0]
    found = []
    answered = zip(pairs, reader.answer_each(pairs, asking, passing_progress(quiet=False)), strict=True)
    for number, (pair, answers) in enumerate(answered):
        if as_json:
            found.append({"question": pair[0], "answers": [_as_json(each, texts, names) for each in answers]})
            continue
        if number:
            results.print()
        _show_answers(pair[0] if len(pairs) > 1 else "", answers, texts, names, ratio)
    if as_json:
        print_json(found)


def _show_answers(
    question: str,
    answers: "Sequence[Answer]",
    texts: Sequence[str],
    names: Sequence[str],
    null_ratio: float | None,
) -> None:
    from bertvision.serving.answers import answer_lines

    if question:
        results.print(f"{question}\n", markup=False, emoji=False)
    shown = names if len(names) > 1 else ()
    for line in answer_lines(answers, texts, shown, is_terminal=results.is_terminal, null_ratio=null_ratio):
        results.print(line, markup=False, emoji=False)


def _as_json(answer: "Answer", texts: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Return an answer with the file and the line that it stands in, where files were read and it stands anywhere."""
    from bertvision.serving.answers import line_of

    if not names or not answer.text:
        return answer.as_dict()
    return {**answer.as_dict(), "file": names[answer.context], "line": line_of(answer, texts)}


def _name_of(file: str) -> str:
    return "standard input" if file == "-" else file


def _read_text(file: str) -> str:
    """Return what a text file holds, or standard input."""
    name = _name_of(file)
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror}); give a text file") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    if not text.strip():
        raise DataError(f"{name}: holds no text; give a file that does")
    return text


@in_one_line
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL)],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts instead of a file; - for standard input, one on each line."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="A file of the model's task, answers in it are optional; or shards: a folder, 'DIR/*.jsonl.gz'.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="FILE.csv, or a folder for predictions.json and what goes with it."),
    ] = None,
    overrides: Set = None,
    allow_outside: AllowOutside = False,
    processes: ProcessCount = None,
    on_ray: Annotated[bool, typer.Option("--ray", help="Let actors of a Ray cluster answer shards instead.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Answer a file or texts with a trained model.

    A .csv gets texts, labels by name and a probability of each (or words and their tags); without --out it is
    printed. Standard input is a text on each line, CSV with the model's columns, or JSON lines. A folder gets
    predictions.json and probabilities.json, GLUE's file for its test sets and CoNLL columns. Questions are answered as
    `ask` answers them; their folder also gets logits.safetensors and, in `official`, what the official decoder says:
    predictions.json, nbest_predictions.json and null_odds.json as run_qa writes them. Prints the scores where the file
    has answers: for questions those of the official decoder, and as reader_* those of the answers that are given.

    Shards (a folder, a pattern in quotes, or --data several times) may hold millions of rows, as JSON lines or tables.
    Each gets a shard of predictions in the folder --out, and one of its bad rows; the same command goes on where it was
    stopped.

    Example: bertvision predict default --data sample:dev --out answers
    """
    from bertvision.serving.predict import is_table, predict_file, predict_stream, predict_texts
    from bertvision.serving.shards import are_shards

    if bool(texts) == bool(data):
        raise SettingsError("give texts, - for standard input, or --data FILE")
    if data and are_shards(data):
        _predict_shards(model, data, out, overrides, allow_outside, processes, on_ray, quiet, as_json)
        return
    if processes is not None or on_ray:
        raise SettingsError("--processes and --ray are for shards; give a folder or a pattern")
    target = out if out is None else check_file(out) if is_table(out) else check_folder(out)
    progress = progress_for(quiet) if data or texts == ["-"] else passing_progress(quiet)
    given = (target, settings_of(overrides), progress)
    if data:
        answered = predict_file(model, data[0], *given, allow_outside=allow_outside)
    elif texts == ["-"]:
        answered = predict_stream(model, sys.stdin.buffer.read(), *given, allow_outside=allow_outside)
    else:
        answered = predict_texts(model, texts or (), *given, allow_outside=allow_outside)
    _show_predictions(answered, out, as_json)


def _predict_shards(
    model: Path,
    data: Sequence[str],
    out: Path | None,
    overrides: Sequence[str] | None,
    allow_outside: bool,
    processes: int | None,
    on_ray: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    from bertvision.serving.shards import predict_on_ray, predict_shards, read_counts

    if out is None or out.suffix.lower() == ".csv":
        raise SettingsError("shards need a folder for their predictions: --out FOLDER")
    given = (model, data, out, settings_of(overrides), progress_for(quiet))
    if on_ray:
        found = predict_on_ray(*given, allow_outside=allow_outside, actors=processes or 1)
    elif is_done_by_several(processes):
        found = read_counts(data, out)
    else:
        found = predict_shards(*given, allow_outside=allow_outside)
        if processes is not None and processes > 1:
            return  # as one of several, whose results are told together
    if as_json:
        counts = {name: getattr(found, name) for name in ("rows", "bad", "cut", "busy")}
        print_json({"shards": len(found.shards), **counts, "out": str(out)})
        return
    read = f"{counted(found.rows, 'row')} in {counted(len(found.shards), 'shard')}"
    told = f"{read}, {counted(found.bad, 'bad row')} set aside"
    told += f", {counted(found.cut, 'row')} longer than the model reads" if found.cut else ""
    busy = f"; another process is working on {counted(found.busy, 'shard')}" if found.busy else ""
    results.print(f"{told}; predictions in {out}{busy}", markup=False)


def _show_predictions(answered: "FilePredictions", out: Path | None, as_json: bool) -> None:
    """Print where predictions are and their scores or, where they are nowhere, the predictions themselves."""
    if out is None:
        if as_json:
            print_json(answered.lines)
        else:
            print_csv(answered.lines)
        return
    if as_json:
        print_json({"examples": len(answered.predictions), "out": str(out), "scores": answered.scores})
        return
    written = out if out.is_file() else out / "predictions.json"
    results.print(f"{answered.summary}; predictions in {written}", markup=False)
    if answered.scores is not None:
        print_json(answered.scores)
