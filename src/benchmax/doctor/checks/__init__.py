"""Every check, by what it looks at; importing this registers them in the order they are shown."""

from benchmax.doctor.checks import dataset, definition, groups, hooks, rewards, tools
from benchmax.doctor.checks import exploits as exploits

__all__ = ["dataset", "definition", "exploits", "groups", "hooks", "rewards", "tools"]
