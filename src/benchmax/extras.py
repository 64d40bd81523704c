"""What is installed with benchmax: its extras, the error for one that is missing, and how its programs are called."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from benchmax.errors import UsageError

MODULES = {
    "data": ("datasets", "pyarrow"),
    "train": (
        "torch", "transformers", "peft", "safetensors", "gguf", "numpy", "matplotlib", "tokenizers",
        "huggingface_hub",
    ),
    "platform": (
        "fastapi", "sqlalchemy", "alembic", "argon2", "cryptography", "pynvml", "starlette", "structlog", "uvicorn",
    ),
    "mcp": ("mcp", "yaml"),
    "postgres": ("psycopg",),
    "envs": (
        "math_verify", "reasoning_gym", "simple_salesforce", "requests", "sympy", "openpyxl", "ironcalc", "pandas",
    ),
}  # fmt: skip
"""The modules benchmax imports from each extra, the best known first."""

_EXTRA_OF = {module: extra for extra, modules in MODULES.items() for module in modules}


def install(*extras: str) -> str:
    """The command that installs extras beside this benchmax, from where it came from."""
    pip, names, origin = spelled("pip") or "pip", f"[{','.join(extras)}]", _origin()
    url = origin.get("url", "")
    if origin.get("dir_info", {}).get("editable"):
        folder = unquote(url.removeprefix("file://"))
        return f"{pip} install -e {shlex.quote(folder + names)}"
    if vcs := origin.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f"{pip} install {shlex.quote(f'benchmax{names} @ {url}' if url else f'benchmax{names}')}"


def _origin() -> dict[str, Any]:
    """What pip noted of the directory or repository that benchmax was installed from; nothing for a package index."""
    try:
        noted = distribution("benchmax").read_text("direct_url.json")
    except PackageNotFoundError:
        return {}
    origin: dict[str, Any] = json.loads(noted) if noted else {}
    return origin if "url" in origin and ("dir_info" in origin or "vcs_info" in origin) else {}


def missing(extra: str) -> list[str]:
    """Modules of an extra that are not installed."""
    return [module for module in MODULES[extra] if find_spec(module) is None]


def require(what: str, *extras: str) -> None:
    """Raises UsageError unless the extras that `what` needs are installed."""
    absent = [extra for extra in extras if missing(extra)]
    if absent:
        packages = ", ".join(missing(extra)[0] for extra in absent)
        raise UsageError(f"{what} needs packages that are not installed ({packages}). Run: {install(*absent)}")


def explain(error: ImportError) -> str | None:
    """How to install what could not be imported; None when it is installed, or belongs to no extra."""
    module = (error.name or "").partition(".")[0]
    if module not in _EXTRA_OF or find_spec(module) is not None:
        return None
    return f"This needs the package {module!r}, which is not installed. Run: {install(_EXTRA_OF[module])}"


def spelled(program: str) -> str | None:
    """How the shell in use calls a program that was installed with benchmax; None for one that was not.

    By its name, or by its path where the name means nothing there, or another program.
    """
    own = Path(sys.executable).with_name(program)
    if not own.exists():
        return None
    found = shutil.which(program)
    if found is not None and os.path.samefile(found, own):
        return program
    here = Path.cwd()
    return shlex.quote(str(own.relative_to(here) if own.is_relative_to(here) else own))
