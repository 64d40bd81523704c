"""The folder that defines an environment of MCP servers: which to start, how to score, what to install.

my_env/
  mcp_config.yaml    the servers, in the format of all MCP clients (or mcp_config.yml); see server_config.py
  reward_fn.py       reward_functions = {"name": function, …}
  setup.sh           installs what the servers need; run once for its content; may be empty
  …                  server code, data, anything else
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmax import extras
from benchmax.envs.mcp.server_config import ServerSpec, parse_config
from benchmax.errors import EnvDefinitionError, NotFoundError

CONFIG_NAMES = ("mcp_config.yaml", "mcp_config.yml")
_OTHER_NAMES = ("mcp_config.json", "mcp.json", ".mcp.json", "claude_desktop_config.json")
"""What other clients call the configuration."""
REWARD_FILE = "reward_fn.py"
SETUP_FILE = "setup.sh"
PRIVATE_NAMES = (REWARD_FILE, SETUP_FILE, *CONFIG_NAMES)
"""What servers never read."""


class MissingFile(NotFoundError, FileNotFoundError):
    """A file that a workdir needs, or that a workspace is asked for, is missing."""


@dataclass(frozen=True, slots=True)
class Workdir:
    """A workdir whose configuration has been read."""

    path: Path
    servers: tuple[ServerSpec, ...]

    @property
    def reward_file(self) -> Path | None:
        file = self.path / REWARD_FILE
        return file if file.is_file() else None

    @property
    def setup_script(self) -> Path | None:
        """setup.sh, if it contains a command."""
        file = self.path / SETUP_FILE
        if not file.is_file():
            return None
        lines = (line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines())
        return (
            file if any(line and not line.startswith("#") and not line.startswith("set ") for line in lines) else None
        )


def check_workdir(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a workdir; MissingFile when one of its three files is missing."""
    folder = workdir_folder(path)
    for name in (REWARD_FILE, SETUP_FILE):
        if not (folder / name).is_file():
            raise MissingFile(f"{folder} has no {name}. Add it; setup.sh may be empty.")
    return folder


def workdir_folder(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a workdir; MissingFile when it has no configuration."""
    folder = Path(path).expanduser().resolve()
    find_config(folder)
    return folder


def find_config(folder: Path) -> Path:
    if not folder.is_dir():
        raise MissingFile(f"There is no folder {folder}. Make it, with mcp_config.yaml, reward_fn.py and setup.sh.")
    for name in CONFIG_NAMES:
        if (folder / name).is_file():
            return folder / name
    if other := next((name for name in _OTHER_NAMES if (folder / name).is_file()), None):
        raise MissingFile(f"{folder} has a {other}, but no {CONFIG_NAMES[0]}. Rename it: JSON is YAML, too.")
    raise MissingFile(f"{folder} has no {' or '.join(CONFIG_NAMES)}. Write one with the key mcpServers.")


def read_workdir(path: str | Path) -> Workdir:
    """Read a workdir's configuration, the only file that it must have for this."""
    folder = workdir_folder(path)
    file = find_config(folder)
    return Workdir(folder, parse_config(_load(file), file.name))


def open_to_servers(folder: Path) -> None:
    """As root, let servers, which run as another user, read a folder. The folder above it keeps others out."""
    for here, _, files in os.walk(folder) if os.geteuid() == 0 else ():
        os.chmod(here, os.stat(here).st_mode | 0o555)
        for path in (Path(here, name) for name in files):
            private = path.parent == folder and path.name in PRIVATE_NAMES
            if path.is_file() and not path.is_symlink():
                path.chmod(0o600 if private else path.stat().st_mode | 0o444)


def write_workdir(folder: Path, servers: Mapping[str, Any]) -> None:
    """Write the configuration of servers given in code; JSON is YAML too."""
    specs = parse_config({"mcpServers": servers}, "from_servers")
    text = json.dumps({"mcpServers": {spec.name: spec.as_config() for spec in specs}}, indent=2)
    (folder / CONFIG_NAMES[0]).write_text(text, encoding="utf-8")


def _load(file: Path) -> Any:
    try:
        import yaml
    except ImportError as missing:
        advice = f"MCP environments need two more packages: {extras.install('mcp')}"
        raise ImportError(advice, name=missing.name) from missing
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where is not None else ""
        reason = getattr(error, "problem", None) or str(error)
        raise EnvDefinitionError(f"{file.name}{line} is not YAML: {reason}. Correct it.") from None


def reward_names(workdir: Path) -> tuple[list[str], str | None]:
    """The reward functions that reward_fn.py names, without running it; or what is wrong with the file."""
    try:
        tree = ast.parse((workdir / REWARD_FILE).read_bytes())
    except OSError:
        return [], "There is no reward_fn.py yet: an environment needs one."
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        return [], f"reward_fn.py{f', line {line},' if line else ''} cannot be read: {getattr(error, 'msg', error)}."
    for node in ast.walk(tree):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(each, ast.Name) and each.id == "reward_functions" for each in targets):
            keys = node.value.keys if isinstance(node.value, ast.Dict) else []  # type: ignore[attr-defined]
            names = [str(key.value) for key in keys if isinstance(key, ast.Constant)]
            return names, None if names else "The rewards of reward_fn.py are known when it runs."
    return [], "reward_fn.py defines no reward_functions. Add a dict of names and functions."
