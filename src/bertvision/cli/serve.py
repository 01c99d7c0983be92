"""The verb that answers over HTTP."""

import logging
import os
from typing import Annotated

import typer

from bertvision.console import in_one_line, messages
from bertvision.errors import MissingExtraError, SettingsError

LOOPBACK = ("127.0.0.1", "localhost")
TOKEN = "BERTVISION_TOKEN"


@in_one_line
def serve(
    models: Annotated[
        list[str],
        typer.Option("--model", metavar="NAME=DIR", help="A MODEL_DIR or hub id, and its name; any number of them."),
    ],
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = LOOPBACK[0],
    port: Annotated[int, typer.Option("--port", min=0, max=65535)] = 8000,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    max_queue: Annotated[int, typer.Option("--max-queue", help="Requests that may wait.", min=1)] = 64,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds until a request is given up.", min=0.1)] = 30.0,
) -> None:
    """Answer over HTTP.

    POST /answer, /classify and /tag, GET /health, /models and /openapi.json. Only this machine can reach it unless
    --host says otherwise; with BERTVISION_TOKEN in the environment, requests must carry it as a bearer token.
    """
    named = [_named(each) for each in models]
    if len({name for name, _ in named}) < len(named):
        raise SettingsError("two models have the same name; give every --model its own")
    token = os.environ.get(TOKEN)
    if token is not None and not token.isascii() or token == "":
        raise SettingsError(f"{TOKEN} is empty or not ASCII; set another one, or none")
    try:
        import uvicorn

        from bertvision.serving.app import build_app
        from bertvision.serving.schema import ServeConfig
    except ModuleNotFoundError:
        raise MissingExtraError("fastapi", "serve") from None
    import bertvision

    config = ServeConfig(
        max_queue=max_queue, timeout=timeout, token=token, hosts=LOOPBACK if host in LOOPBACK else ("*",)
    )
    app = build_app({name: bertvision.load(place, device=device) for name, place in named}, config)
    if host not in LOOPBACK:
        messages.print(_warning(host, token), markup=False)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    # uvicorn's own lines would hold whole addresses, in which users may have written text.
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=round(timeout) + 1,
    )


def _named(given: str) -> tuple[str, str]:
    name, equals, place = given.partition("=")
    if not equals or not name or not place:
        raise SettingsError(f"--model {given}: expected NAME=DIR, such as --model reader=runs/mine/heads/1/last_linear")
    return name, place


def _warning(host: str, token: str | None) -> str:
    who = "those who know the token" if token else f"anyone (set {TOKEN} to ask for a token)"
    return f"warning: listening on {host}, where other machines may reach it; answers go to {who}, unencrypted"
