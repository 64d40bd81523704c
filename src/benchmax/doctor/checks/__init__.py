"""Every check, by what it looks at. Importing this registers them, in the order they are shown.

    definition, hooks    the environment is built, sent elsewhere, and sets up and releases each rollout
    dataset              rows are usable, enough and different
    tools                tools can be called and do not hand out the answer
    rewards, groups      rewards are numbers that depend on the answer; so are those of siblings
    gold, exploits       a good answer earns, and nothing else does

A new check is a function here, or in an installed package (`benchmax.checks`).
"""

# ruff: noqa: I001 - the order is meant
from benchmax.doctor.checks import definition, dataset, tools, hooks, rewards, groups, gold, exploits

from benchmax import plugins
from benchmax.doctor.registry import CHECKS

# Importing a plug-in registers its checks, after ours.
for name, _ in plugins.load_all("checks"):
    package = plugins.entries("checks")[name].module.partition(".")[0]
    if not any(each.look.__module__.partition(".")[0] == package for each in CHECKS.values()):
        plugins.skip(plugins.broken("checks", name, "registers no check"))

__all__ = ["dataset", "definition", "exploits", "gold", "groups", "hooks", "rewards", "tools"]
