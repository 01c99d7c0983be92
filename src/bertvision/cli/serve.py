"""Verbs that offer a model to others: over HTTP, or as a folder that stands alone."""

import ipaddress
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from bertvision.cli.console import (
    MODEL,
    AllowOutside,
    Json,
    in_one_line,
    messages,
    print_json,
    results,
)
from bertvision.errors import MissingExtraError, SettingsError
from bertvision.files import exists
from bertvision.serving.http.config import ServeConfig

LOOPBACK = ("127.0.0.1", "localhost")
TOKEN = "BERTVISION_TOKEN"


@in_one_line
def serve(
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="[NAME=]DIR",
            help="default, base, a MODEL_DIR, checkpoint or hub id, named as its folder or by NAME; any number. "
            "Without any, default.",
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = LOOPBACK[0],
    port: Annotated[int, typer.Option("--port", help="0: any that is free.", min=0, max=65535)] = 8000,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[
        Literal["auto", "float32", "bf16"],
        typer.Option(
            "--precision", help="bf16 is faster on a CPU with AVX512-BF16 or AMX; auto takes it on a GPU alone."
        ),
    ] = "auto",
    allow_outside: AllowOutside = False,
    max_queue: Annotated[
        int, typer.Option("--max-queue", help="Requests that may wait for their turn.", min=1)
    ] = ServeConfig.max_queue,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds for a request to arrive, and for its answer.", min=0.1)
    ] = ServeConfig.timeout,
    max_body: Annotated[
        int, typer.Option("--max-body", help="Bytes of a request; 50 pages are about 150,000.", min=1)
    ] = ServeConfig.max_body,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", help="Of a request, as the model reads them: in overlapping windows.", min=1)
    ] = ServeConfig.max_tokens,
) -> None:
    """Answer over HTTP.

    A web page at /, POST /answer, /xray, /classify and /tag, GET /health, /models, /metrics (for Prometheus) and
    /openapi.json (all of these). Only this machine can reach it unless --host says otherwise; with BERTVISION_TOKEN in
    the environment, requests must carry it as a bearer token (the page asks for it). Put nginx or Caddy in front of it
    where the internet can reach it.

    Example: bertvision serve --model default --model mine=runs/mine
    """
    places, token = _places_by_name(models or ("default",)), _token()
    try:
        from bertvision.serving.http.app import build_app, build_server
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "fastapi", "serve") from None
    import bertvision

    loaded = {
        name: bertvision.load(place, device=device, precision=precision, allow_outside=allow_outside)
        for name, place in places.items()
    }
    listening = _listen(host, port)
    own = _own_address(listening)
    config = ServeConfig(
        max_body=max_body,
        max_tokens=max_tokens,
        max_queue=max_queue,
        timeout=timeout,
        token=token,
        hosts=("*",) if own is None else tuple(dict.fromkeys((*LOOPBACK, host.lower(), own))),
    )
    if own is None:
        messages.print(_warning(host, token), markup=False)
    messages.print(f"the page is at {_address(host, listening)}", markup=False, soft_wrap=True)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        server = build_server(build_app(loaded, config), config)
    except BaseException:
        listening.close()
        raise
    server.run(sockets=[listening])


@in_one_line
def save(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL)],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The new folder to write.")],
    onnx: Annotated[bool, typer.Option("--onnx", help="As one ONNX graph, which onnxruntime runs.")] = False,
    int8: Annotated[
        bool, typer.Option("--int8", help="With --onnx: round products to int8: smaller, faster, less exact.")
    ] = False,
    allow_outside: AllowOutside = False,
    as_json: Json = False,
) -> None:
    """Write a model into a folder that stands alone.

    DIR holds encoder, tokenizer, head, settings, calibration, model card and the sha256 of each: all that
    bertvision.load, ask, predict and serve need, wherever it is moved to. The card has the scores of the model's run.

    With --onnx, encoder and head become one graph for any batch and length, which needs no torch. The graph's logits
    are compared with PyTorch's on random batches first, and nothing is written where they differ by more than 1e-4.

    Example: bertvision save runs/mine --onnx --out mine-onnx
    """
    if int8 and not onnx:
        raise SettingsError("--int8 rounds an ONNX graph; give --onnx too")
    if onnx:
        from bertvision.serving.onnx_export import export_onnx

        found = export_onnx(model, out, int8=int8, allow_outside=allow_outside)
        lines = found.as_lines()
        content = found.as_dict()
        bytes_written = found.bytes
    else:
        import bertvision

        loaded = bertvision.load(model, device="cpu", allow_outside=allow_outside)
        sizes = {path.name: path.stat().st_size for path in sorted(loaded.save_pretrained(out).iterdir())}
        width = max(map(len, sizes))
        lines = [f"  {name:<{width}}  {size:>13,}" for name, size in sizes.items()]
        content = {"place": str(out), "files": sizes}
        bytes_written = sum(sizes.values())
    if as_json:
        print_json(content)
        return
    results.print(f"{out}: {bytes_written / 1e6:.1f} MB", markup=False)
    for line in lines:
        results.print(line, markup=False)


def _places_by_name(models: Sequence[str]) -> dict[str, str]:
    """Return where each model lies, by its name; refuse names that two share."""
    named = [_named(each) for each in models]
    names = [name for name, _ in named]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise SettingsError(f"two models are called {repeated[0]!r}; name them apart: --model NAME=DIR")
    return dict(named)


def _token() -> str | None:
    """Return the token that requests must carry, if any."""
    token = os.environ.get(TOKEN)
    if token is not None and not token.isascii() or token == "":
        raise SettingsError(f"{TOKEN} is empty or not ASCII; set another one, or none")
    return token


def _listen(host: str, port: int) -> socket.socket:
    """Take the port before anything is printed about it."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]  # Python says once more what was tried
        raise SettingsError(f"cannot listen on {host}, port {port}: {reason}; give another --host or --port") from None


def _own_address(listening: socket.socket) -> str | None:
    """Return the address of this machine alone that is listened on, as a Host header has it; None: others reach it."""
    address = ipaddress.ip_address(listening.getsockname()[0])
    if not address.is_loopback:
        return None
    return f"[{address}]" if address.version == 6 else str(address)


def _address(host: str, listening: socket.socket) -> str:
    """Return the address to open on this machine."""
    name = "localhost" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{listening.getsockname()[1]}/"


def _named(given: str) -> tuple[str, str]:
    """Return a model's name and place; a place without a name has that of its folder."""
    if given in ("default", "base"):
        return given, given
    name, equals, place = given.partition("=")
    if not equals or exists(given):  # a folder may be called lr=1e-3
        name, place = Path(given).resolve().name, given
    if not name or not place:
        raise SettingsError(
            f"--model {given}: expected a folder or NAME=DIR, such as --model reader=runs/mine/heads/1/last_linear"
        )
    return name, place


def _warning(host: str, token: str | None) -> str:
    who = "those who know the token" if token else f"anyone (set {TOKEN} to ask for a token)"
    return f"warning: listening on {host}, where other machines may reach it; answers go to {who}, unencrypted"
