"""The extras of the package: which modules each brings, and the words for one that is not installed."""

from __future__ import annotations

from importlib.util import find_spec

from benchmax.errors import UsageError

MODULES = {
    "data": ("datasets", "pyarrow"),
    "train": (
        "torch", "transformers", "peft", "safetensors", "gguf", "numpy", "matplotlib", "tokenizers", "filelock",
        "huggingface_hub",
    ),
    "platform": (
        "fastapi", "sqlalchemy", "alembic", "argon2", "cryptography", "starlette", "structlog", "uvicorn",
    ),
    "mcp": ("mcp", "yaml"),
    "postgres": ("psycopg",),
}  # fmt: skip
"""What benchmax imports of each, the most telling first."""

_EXTRA_OF = {module: extra for extra, modules in MODULES.items() for module in modules}


def install(*extras: str) -> str:
    """The command that installs extras."""
    return f"pip install 'benchmax[{','.join(extras)}]'"


def missing(extra: str) -> list[str]:
    """Modules of an extra that are not installed."""
    return [module for module in MODULES[extra] if find_spec(module) is None]


def require(what: str, *extras: str) -> None:
    """UsageError unless the extras that `what` needs are installed."""
    lost = [extra for extra in extras if missing(extra)]
    if lost:
        packages = ", ".join(missing(extra)[0] for extra in lost)
        raise UsageError(f"{what} needs packages that are not installed ({packages}). Run: {install(*lost)}")


def explain(error: ImportError) -> str | None:
    """How to install what could not be imported; None when it is installed, or no extra brings it."""
    module = (error.name or "").partition(".")[0]
    if module not in _EXTRA_OF or find_spec(module) is not None:
        return None
    return f"This needs the package {module!r}, which is not installed. Run: {install(_EXTRA_OF[module])}"
