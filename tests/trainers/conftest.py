"""The tests of an outside trainer are collected where it is installed: in its own virtual environment."""

from importlib.util import find_spec

TRAINERS = {"trl": "trl", "skyrl": "skyrl", "tinker": "tinker"}
"""A folder here, and the module that its tests need."""

collect_ignore = [folder for folder, module in TRAINERS.items() if find_spec(module) is None]
