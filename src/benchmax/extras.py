"""The extras of the package: which modules each installs, and the error for one that is missing."""

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
    """The command that installs extras."""
    return f"pip install 'benchmax[{','.join(extras)}]'"


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
