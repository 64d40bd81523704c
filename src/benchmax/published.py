"""Module paths of the published packages, as aliases of the modules that have their names here.

An environment that a published client pickled refers to classes and functions by these paths, and so do scripts of that
time. `HOMES` is the only place that knows them; a finder creates the modules when they are imported, so that no file is
needed for each. `GONE` has the names that are of no use here: importing one ends in a sentence that says what to use
instead, and a bundle that needs one is refused with it when it is launched.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from benchmax.errors import McpError, NotFoundError

_MCP = "benchmax.envs.mcp"

HOMES: dict[str, tuple[str, ...]] = {
    "benchmax.envs.base": ("benchmax.envs.base_env", "benchmax.envs.types"),
    f"{_MCP}.parallel_mcp_env": (f"{_MCP}.env",),
    f"{_MCP}.server_pool": (f"{_MCP}.pool", "benchmax.published"),
    f"{_MCP}.luggage": (f"{_MCP}.packed_workdir",),
    f"{_MCP}.provisioners.base_provisioner": (f"{_MCP}.provisioners.base",),
    f"{_MCP}.provisioners.local_provisioner": (f"{_MCP}.provisioners.local",),
    f"{_MCP}.provisioners.manual_provisioner": (f"{_MCP}.provisioners.manual",),
    f"{_MCP}.provisioners.skypilot_provisioner": (f"{_MCP}.provisioners.skypilot",),
    "benchmax.envs.postgres_search": ("benchmax.envs.search",),
    "benchmax.envs.postgres_search.search_env": ("benchmax.envs.search.search_env",),
    "benchmax.envs.wikipedia.utils": ("benchmax.envs.wikipedia.articles.live",),
    "benchmax.platform.credentials": ("benchmax.platform.sdk.credentials", "benchmax.config"),
    "benchmax.platform.device_auth": ("benchmax.platform.sdk.credentials", "benchmax.platform.sdk.exceptions"),
    "benchmax.platform.login": ("benchmax.platform.sdk.credentials",),
    "benchmax.rubrics.adaptive": ("benchmax.rubrics.evaluate", "benchmax.rewards.adaptive"),
    "benchmax.rubrics.reward_fns": ("benchmax.rubrics.functions",),
    "benchmax.rubrics.rubric": ("benchmax.rewards.rubric", "benchmax.rubrics.evaluate"),
    "env_tracking": ("benchmax.envs.logging",),
    # Of earlier versions of this package: environments that extend these classes name their modules when packed.
    "benchmax.envs.crm.base": ("benchmax.envs.crm.crm_env",),
    "benchmax.envs.excel.base": ("benchmax.envs.excel.excel_env",),
    "benchmax.utils": ("benchmax.published",),
    "benchmax.utils.checkpoint": ("benchmax.published",),
}
"""A published module, and the modules here that have its names; the first that has a name provides it."""

_TRACKING = "Leave it out: log lines and rewards are stored with their rollout, wherever it is played."
_SERVERS = (
    "ParallelMcpEnv leases servers by itself: init_rollout and release_rollout begin and end a lease, "
    "run_tool calls its tools, and state() shows every machine."
)
_TOKENS = "Every rollout has a token of its own, and ParallelMcpEnv keeps it: use run_tool and compute_reward."
_FILES = "Use copy_to_workspace, copy_content_to_workspace and copy_from_workspace of ParallelMcpEnv."
_MACHINES = (
    "Give the workdir to LocalProvisioner or SkypilotProvisioner, which copies it and starts its servers by itself."
)
_TRAIN = (
    'Use main({"MyEnv": MyEnv}) of benchmax.adapters.skyrl.entrypoint, or, in a script of your own, '
    "register of benchmax.adapters.skyrl.text_env; neither needs an actor."
)

GONE: dict[str, str] = {
    "benchmax.adapters.benchmax_wrapper": (
        "An environment needs no Ray actor: use `async with EnvHost(MyEnv) as host:`, or, without asyncio, EnvSession "
        "of benchmax.adapters.env_session."
    ),
    "benchmax.adapters.skyrl.skyrl_adapter": _TRAIN,
    "benchmax.envs.excel.data_utils": (
        "Use ExcelEnv.load_dataset, which makes rows and reads SpreadsheetBench, or load_rows of "
        "benchmax.envs.excel.spreadsheetbench, for a folder of it."
    ),
    "benchmax.envs.postgres_search.linker_env": (
        "It belongs to the generation of datasets from documents. For a model that searches, use SearchEnv of "
        "benchmax.envs.search."
    ),
    f"{_MCP}.server_pool.ServerInfo": _SERVERS,
    f"{_MCP}.generate_jwt_token": _TOKENS,
    f"{_MCP}.get_auth_headers": _TOKENS,
    f"{_MCP}.convert_tool_definitions": "Use list_tools of ParallelMcpEnv, which keeps to allowed_tools.",
    f"{_MCP}.upload_form": _FILES,
    f"{_MCP}.download_file": _FILES,
    **{
        f"{_MCP}.provisioners.{name}": _MACHINES
        for name in ("setup_sync_dir", "cleanup_dir", "get_setup_command", "get_run_command")
    },
    "benchmax.multi_model": "Run `benchmax eval` with each model, and `benchmax compare` on two evaluations.",
    "benchmax.rag": (
        "Rows are not generated from documents here: write them to a file, and search documents with benchmax.search."
    ),
    "benchmax.traces": "Rows are not taken from traces here: write them to a file that load_examples reads.",
    **{f"env_tracking.{name}": _TRACKING for name in ("TrackingConfig", "tracking_context", "with_tracking")},
}
"""What has no use here, a module or a name in one, and what to use instead."""


def advice_on(name: str) -> str:
    """What to use instead of a name that is gone, or of one in a package that is; empty for every other."""
    return GONE.get(name) or (advice_on(name.rpartition(".")[0]) if name else "")


ServerAcquisitionError = McpError
"""What ends the wait for an MCP server."""


class GoneImport(NotFoundError, ImportError):
    """An import of what is gone."""


class GoneName(NotFoundError, AttributeError):
    """Use of what is gone."""


class GoneMethod:
    """Stands in a class for a method that the published one had; using it says what to use instead."""

    def __init__(self, advice: str) -> None:
        self._advice = advice

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise GoneName(_gone(f"{owner.__name__}.{self._name}", self._advice))


class OlderEnvMethods:
    """Methods that environments of the older style call on themselves."""

    enable_tracking = GoneMethod(_TRACKING)

    def log_env(self, rollout_id: str, message: str) -> None:
        """Log a line for one rollout."""
        import_module("benchmax.envs.logging").log_env(rollout_id, message)


class OlderPoolMethods:
    """Methods of the published ServerPool."""

    __slots__ = ()
    acquire_server = GoneMethod(_SERVERS)
    get_server = GoneMethod(_SERVERS)
    add_server_once_ready = GoneMethod(_SERVERS)
    add_server_to_available_pool = GoneMethod(_SERVERS)
    release_server = GoneMethod(_SERVERS)
    report_server_failure = GoneMethod(_SERVERS)
    shutdown = GoneMethod(_SERVERS)


def _gone(name: str, advice: str) -> str:
    """The sentence that names what is gone, and what to use instead."""
    return f"{name} is not in this benchmax. {advice}"


def ensure_safe_python_version() -> None:
    """Does nothing: bundles are opened by the Python they were made with."""


class CheckpointBase:
    """Work that goes on where it was: a JSON state in a file, which is replaced as a whole."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def exists(self) -> bool:
        return self.path.exists()

    def load(self) -> Any:
        """What was saved last; None when nothing was."""
        try:
            return json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return None

    def save(self, state: Any) -> None:
        from benchmax.files.atomic import write_text  # not needed to import benchmax

        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, json.dumps(state))

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)


class _Alias(ModuleType):
    """A module that gets each name from the module that has it now."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            for home in HOMES[self.__name__]:
                found = getattr(import_module(home), name, None)
                if found is not None:
                    setattr(self, name, found)
                    return found
        if (advice := GONE.get(f"{self.__name__}.{name}")) is not None:
            raise GoneName(_gone(f"{self.__name__}.{name}", advice))
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        homes = [dir(import_module(home)) for home in HOMES[self.__name__]]
        return sorted({name for names in homes for name in names if not name.startswith("_")})


class AliasFinder:
    """Finds the modules of the table, after all finders of files."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name in GONE:  # a module, or a name that `from module import name` looked for in vain
            error = GoneImport(_gone(name, GONE[name]))
            error.name = name
            raise error
        if name not in HOMES:
            return None
        return ModuleSpec(name, self, is_package=any(other.startswith(f"{name}.") for other in (*HOMES, *GONE)))  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Alias(spec.name, f"{spec.name}, by its published path.")

    def exec_module(self, module: ModuleType) -> None:
        """Names are resolved when they are accessed."""


def install() -> None:
    """Make the published paths importable."""
    if not any(isinstance(each, AliasFinder) for each in sys.meta_path):
        sys.meta_path.append(AliasFinder())
