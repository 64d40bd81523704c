"""The built web console: its files, and its one page under every address it knows."""

from __future__ import annotations

import mimetypes
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, Response

from benchmax.platform.server.error_responses import problem, required
from benchmax.platform.server.security.scopes import PAGES

BUILT = Path(__file__).resolve().parent.parent / "console"
"""Where an install puts it."""

_FOR_PROGRAMS = ("/v1/", "/api/", "/assets/")
_FOREVER = "public, max-age=31536000, immutable"
_MISSING = """<!doctype html><html lang="en"><meta charset="utf-8"><title>benchmax</title>
<h1>The server runs. Its web console is not built.</h1>
<p>It is made when benchmax is installed, which needs npm's registry. To make it now, in the source folder:</p>
<pre>make console</pre>
<p>Then load this page again. Everything else works meanwhile: try <code>benchmax runs list</code>.</p>"""


def page(folder: Path | None, status: int = 200) -> Response | None:
    """The console's one page; None when it is not built."""
    index = (folder or BUILT) / "index.html"
    return FileResponse(index, status, headers={"Cache-Control": "no-cache"}) if index.is_file() else None


def unknown(folder: Path | None) -> Callable[[Request, Any], Awaitable[Response]]:
    """The answer to an address that is not there: a person gets the console, which says so; a program gets JSON."""

    async def answer(request: Request, error: Any) -> Response:
        person = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        shown = page(folder, 404) if person and not request.url.path.startswith(_FOR_PROGRAMS) else None
        return shown or problem(404, str(error.detail), dict(error.headers or {}))

    return answer


def pages(folder: Path | None) -> APIRouter:
    """Routes for the console in `folder` (`index.html`, `assets/…`), or for the one that was installed."""
    router = APIRouter(include_in_schema=False)
    assets = (folder or BUILT) / "assets"

    @router.get("/assets/{path:path}")
    def asset(request: Request, path: str) -> FileResponse:
        file = required(_inside(assets, path), "There is no such file.")
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        headers = {"Cache-Control": _FOREVER, "Vary": "Accept-Encoding"}
        small = _inside(assets, f"{path}.gz")
        if small is not None and "gzip" in request.headers.get("accept-encoding", ""):
            return FileResponse(small, headers={**headers, "Content-Encoding": "gzip"}, media_type=kind)
        return FileResponse(file, headers=headers, media_type=kind)

    @router.get("/")
    def index() -> Response:
        return page(folder) or HTMLResponse(_MISSING, 503)

    for name in PAGES:
        router.add_api_route(f"/{name}", index, methods=["GET"])
        router.add_api_route(f"/{name}/{{path:path}}", index, methods=["GET"])
    return router


def _inside(root: Path, path: str) -> Path | None:
    """The file at `path`, if it is one and does not lead out of `root`."""
    if "\0" in path:
        return None
    root = root.resolve()
    try:
        file = (root / path).resolve()
        return file if file.is_relative_to(root) and file.is_file() else None
    except OSError:  # a name longer than a file may have
        return None
