"""The web pages: files that lie in the package, and the headers that keep everything else out of it."""

from collections.abc import Mapping
from importlib.resources import files

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
PAGES = {"index.html": "/", "docs.html": "/docs"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # a new version of the package is a new page
}


def read_page() -> Mapping[str, tuple[bytes, dict[str, str]]]:
    """Return the pages' files by path, each with its headers."""
    found = {file.name: file.read_bytes() for file in files("bertvision.serving").joinpath("page").iterdir()}
    named = {PAGES.get(name, f"/{name}"): (name, content) for name, content in found.items()}
    return {path: (content, HEADERS | {"Content-Type": _type(name)}) for path, (name, content) in named.items()}


def _type(name: str) -> str:
    return TYPES[name.rpartition(".")[2]]
