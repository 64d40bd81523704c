"""Which scope each route needs, and the check of it. A route that is not in the list keeps the app from starting.

`open` needs no credentials, `public` shows public runs without them, the rest needs a key with that scope, or a login,
which has all. Whose run it is, is decided in `run_access`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import Mount, compile_path

from benchmax.platform.server.error_responses import Refused
from benchmax.platform.server.security.authentication import NEEDS_KEY, Principal, unauthenticated

Level: TypeAlias = Literal["open", "public", "read", "write", "admin"]

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""They change nothing."""
PAGES = ("experiments", "train", "datasets", "environments", "playground", "settings", "device")
"""Addresses of the console, as in `console/src/router.tsx`; all return its one page."""


def _routes(table: str) -> frozenset[str]:
    """`METHOD path`, for each method of each line of a table."""
    rows = (line.split() for line in table.strip().splitlines())
    return frozenset(f"{method} {path}" for *methods, path in rows for method in methods)


# The token in an upload's address is the credential, and works once; a device that asks for a code has nothing yet.
# A model session's routes also take its own key, which opens nothing else.
ACCESS: dict[Level, frozenset[str]] = {
    "open": _routes("""
        GET       /healthz
        GET POST  /login
        PUT       /v1/storage/uploads/{token}
        POST      /api/auth/device/code
        POST      /api/auth/device/token
        GET       /
        GET       /assets/{path:path}
    """) | {f"GET /{page}{rest}" for page in PAGES for rest in ("", "/{path:path}")},
    "public": _routes("""
        GET  /v1/train/runs/{run_id}
        GET  /v1/train/runs/{run_id}/details
        GET  /v1/train/runs/{run_id}/events
        GET  /v1/train/runs/{run_id}/scalars
        GET  /v1/train/runs/{run_id}/environment-logs
        GET  /v1/train/runs/{run_id}/stream
        GET  /v1/train/runs/{run_id}/alerts
        GET  /v1/train/runs/{run_id}/checkpoints
        GET  /v1/train/runs/{run_id}/external-eval
        GET  /v1/train/runs/{run_id}/rollouts
        GET  /v1/train/runs/{run_id}/rollouts/outline
        GET  /v1/train/runs/{run_id}/rollouts/search
        GET  /v1/train/runs/{run_id}/rollouts/summary
        GET  /v1/train/runs/{run_id}/rollouts/heatmap
        GET  /v1/train/runs/{run_id}/rollouts/mode-average
        GET  /v1/train/runs/{run_id}/rollouts/component-averages
        GET  /v1/train/runs/{run_id}/rollouts/comparison
        GET  /v1/train/runs/{run_id}/rollouts/comparison/summary
        GET  /v1/train/runs/{run_id}/rollouts/{rollout_id}/details
        GET  /v1/train/runs/{run_id}/config
        GET  /v1/train/runs/{run_id}/system
    """),
    "read": _routes("""
        GET   /openapi.json
        GET   /v1/whoami
        POST  /logout
        GET   /api/auth/token
        GET   /v1/models
        GET   /v1/models/{name:path}
        GET   /v1/sessions/{session_id}/models
        POST  /v1/sessions/{session_id}/collect
        GET   /v1/train/launch-args
        GET   /v1/train/runs
        GET   /v1/train/runs.csv
        GET   /v1/train/curves
        GET   /v1/playground/sessions/{session_id}
        GET   /v1/train/runs/{run_id}/logs
        GET   /v1/train/runs/{run_id}/doctor
        GET   /v1/train/runs/{run_id}/checkpoints/{name}/download
        GET   /v1/storage/files
        GET   /v1/datasets
        GET   /v1/datasets/preview
        GET   /v1/environments
        GET   /v1/environments/{environment_id:path}
        GET   /v1/environments/{environment_id:path}/doctor
        GET   /v1/environments/{environment_id:path}/doctor/{report_id}
        GET   /v1/corpora
        GET   /v1/corpora/{corpus_id}
        GET   /v1/corpora/{corpus_id}/chunks
        POST  /v1/corpora/{corpus_id}/search
    """),
    "write": _routes("""
        GET           /v1/storage/upload-url
        POST DELETE   /v1/datasets
        POST          /v1/datasets/rows
        POST          /v1/environments/{environment_id:path}/doctor
        POST          /v1/train/runs/launch
        POST          /v1/train/runs/sft
        POST          /v1/chat/completions
        PUT DELETE    /v1/sessions/{session_id}
        POST          /v1/sessions/{session_id}/chat/completions
        POST          /v1/rollout/stream
        POST          /v1/rollout/batch/stream
        POST          /rollout/stream
        POST          /rollout/batch/stream
        POST          /v1/playground/sessions
        DELETE        /v1/playground/sessions/{session_id}
        POST          /v1/playground/sessions/{session_id}/messages
        PATCH DELETE  /v1/train/runs/{run_id}
        POST          /v1/train/runs/{run_id}/cancel
        POST          /v1/train/runs/{run_id}/resume
        POST          /v1/train/runs/{run_id}/fork
        POST          /v1/train/runs/{run_id}/rescore
        POST          /v1/train/runs/{run_id}/external-eval
        POST          /v1/corpora
        DELETE        /v1/corpora/{corpus_id}
        POST          /v1/corpora/{corpus_id}/chunks
    """),
    "admin": _routes("""
        GET POST    /v1/keys
        DELETE      /v1/keys/{key_id}
        GET         /v1/secrets
        PUT DELETE  /v1/secrets/{name}
        GET POST    /v1/endpoints
        DELETE      /v1/endpoints/{endpoint_id}
        GET POST    /v1/webhooks
        DELETE      /v1/webhooks/{webhook_id}
        GET         /v1/webhooks/{webhook_id}/deliveries
        POST        /v1/webhooks/{webhook_id}/test
        GET         /v1/audit
        GET POST    /v1/users
        DELETE      /v1/users/{user_id}
        POST        /v1/password
        POST        /v1/sign-out
        GET         /api/auth/device
        POST        /api/auth/device/approve
    """),
}  # fmt: skip

_LEVELS: dict[str, Level] = {route: level for level, routes in ACCESS.items() for route in routes}


class AccessTable:
    """The level of every request; RuntimeError for an app with a route that is in no list."""

    def __init__(self, app: FastAPI) -> None:
        self._routes = []
        for method, path in routes_of(app):
            level = _LEVELS.get(f"{method} {path}")
            if level is None:
                raise RuntimeError(f"The route {method} {path} is in no list of {__name__}. Say there who may call it.")
            self._routes.append((compile_path(path)[0], method, level))

    def find(self, method: str, path: str) -> tuple[Level, str | None]:
        """The level a request needs, and the id of the run it names, if it names one.

        What matches no route needs credentials too, so a 404 reveals nothing without them.
        """
        for regex, allowed, level in self._routes:
            if allowed == method and (match := regex.match(path)):
                return level, match.groupdict().get("run_id")
        return "read", None


def routes_of(app: FastAPI) -> list[tuple[str, str]]:
    """Every (method, path) of an app, HEAD left out: it needs credentials everywhere."""
    found = []
    for route in iter_route_contexts(app.routes):
        if isinstance(route.original_route, Mount) or route.methods is None:
            raise RuntimeError(f"The route {route.path} has no methods of its own; add plain routes, not mounts.")
        found += [(method, route.path or "") for method in sorted(route.methods) if method != "HEAD"]
    return found


def check_scope(principal: Principal | None, level: Level) -> None:
    """Raise Refused when the caller has no credentials (401), or not the scope that this level needs (403)."""
    if level in ("open", "public"):
        return
    if principal is None:
        raise unauthenticated(NEEDS_KEY)
    if level not in principal.scopes:
        scopes = ", ".join(sorted(principal.scopes))
        raise Refused(403, f"This needs a key with the scope {level!r}; yours has {scopes}. Use or make another key.")
