"""The verb that answers questions about one text."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertvision.cli.console import in_one_line, passing_progress, print_json, results
from bertvision.cli.options import Json, Quiet
from bertvision.errors import DataError, SettingsError
from bertvision.serving.answer import Answer
from bertvision.serving.shown import answer_lines


@in_one_line
def ask(
    questions: Annotated[
        list[str], typer.Option("--question", help="What you want to know; several times for several questions.")
    ],
    source: Annotated[str | None, typer.Argument(metavar="-", help="Read the context from standard input.")] = None,
    model: Annotated[str, typer.Option("--model", help="The default model, a MODEL_DIR or a hub id.")] = "default",
    context: Annotated[str | None, typer.Option("--context", help="The text that may hold the answer.")] = None,
    file: Annotated[str | None, typer.Option("--file", metavar="FILE", help="A text file (UTF-8) instead.")] = None,
    top_k: Annotated[int, typer.Option("--top-k", help="How many answers to show.", min=1)] = 3,
    null_threshold: Annotated[
        float | None, typer.Option("--null-threshold", help="Abstain where the null odds exceed it; inf: never.")
    ] = None,
    max_answer_length: Annotated[int | None, typer.Option("--max-answer-length", help="In tokens.", min=1)] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Show what each layer adds to the answer's score.")] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Answer a question about a text, or several of them.

    Shows the answer in its sentence, how likely it is, how likely it is that the text holds no answer, and the next
    best answers. Long texts are read in parts; on a terminal a bar shows how far it is.
    """
    text = _context(source, context, file)
    import bertvision
    from bertvision.serving.reader import Reader

    reader = bertvision.load(model, device=device)
    if not isinstance(reader, Reader):
        raise SettingsError(f"{model}: is a model of {reader.served.config.task}, which answers no questions")
    answered = reader(
        questions if len(questions) > 1 else questions[0],  # an error about the only one does not count
        text,
        top_k=top_k,
        null_threshold=null_threshold,
        max_answer_length=max_answer_length,
        layers=layers,
        progress=passing_progress(quiet),
    )
    answered = answered if len(questions) > 1 else [answered]
    if as_json:
        print_json(_as_json(questions, answered))
        return
    ratio = reader.null_ratio(null_threshold) if null_threshold is not None and reader.has_null else None
    for question, answers in zip(questions, answered, strict=True):
        if len(questions) > 1:
            results.print(f"{question}\n", markup=False, emoji=False)
        for line in answer_lines(answers, text, is_terminal=results.is_terminal, null_ratio=ratio):
            results.print(line, markup=False, emoji=False)
        if question is not questions[-1]:
            results.print()


def _as_json(questions: Sequence[str], answered: Sequence[Sequence[Answer]]) -> Any:  # noqa: ANN401 (JSON)
    """Return a question with its answers, or a list of these where several were asked."""
    found = [
        {"question": question, "answers": [answer.as_dict() for answer in answers]}
        for question, answers in zip(questions, answered, strict=True)
    ]
    return found[0] if len(found) == 1 else found


def _context(source: str | None, context: str | None, file: str | None) -> str:
    """Give the context from the one place that was named."""
    if source not in (None, "-"):
        raise SettingsError(f"got {source!r}; give --context TEXT, --file FILE, or - for standard input")
    if (source is not None) + (context is not None) + (file is not None) != 1:
        raise SettingsError("give the context in one way: --context TEXT, --file FILE, or - for standard input")
    if context is not None:
        return context
    name = "standard input" if file is None else file
    try:
        content = sys.stdin.buffer.read() if file is None else Path(file).read_bytes()
        return content.decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror}); give a text file") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
