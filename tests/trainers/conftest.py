"""The tests of an outside trainer are collected where it is installed: in its own virtual environment."""

from benchmax.adapters.trainer_status import installed_version

TRAINERS = {
    "trl": "trl",
    "skyrl": "skyrl",
    "tinker": "tinker",
    "cookbook": "tinker-cookbook",
    "verifiers": "verifiers",
    "openenv": "openenv",
    "verl": "verl",
}
"""A folder here, and the package that its tests need. (The folder itself can be imported, so that is no proof.)"""

collect_ignore = [folder for folder, package in TRAINERS.items() if installed_version(package) is None]
