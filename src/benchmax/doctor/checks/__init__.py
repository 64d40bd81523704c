"""Every check, by what it looks at. Importing this registers them, in the order they are shown."""

# ruff: noqa: I001 - the order is meant
from benchmax.doctor.checks import definition, dataset, tools, hooks, rewards, groups, gold, exploits

from benchmax import plugins

# Importing a plug-in registers its checks, after ours.
for _ in plugins.load_all("checks"):
    pass

__all__ = ["dataset", "definition", "exploits", "gold", "groups", "hooks", "rewards", "tools"]
