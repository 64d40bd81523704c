"""What is installed is what was tested and has no published hole (S40); nothing in the repository is a secret (S41)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LAST_BAD = {
    "aiohttp": "3.14.2",  # CVE-2026-69244
    "cryptography": "49.0.0",  # CVE-2026-69247
    "h11": "0.14.0",  # CVE-2025-43859
    "mcp": "1.28.0",  # CVE-2026-59950
    "pyarrow": "23.0.0",  # CVE-2026-25087
    "pyyaml": "5.3.1",  # CVE-2020-14343
    "starlette": "1.3.0",  # CVE-2026-54283
    "torch": "2.5.1",  # CVE-2025-32434
    "transformers": "5.9.9",  # CVE-2026-9856
}
"""The newest versions with a hole that a published advisory tells of."""
SECRETS = re.compile(
    r"AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{50,}|xox[abprs]-[A-Za-z0-9-]{10,}|sk-[A-Za-z0-9_-]{20,}"
    r"|hf_[A-Za-z0-9]{30,}|AIza[\w-]{35}|pypi-[\w-]{50,}|npm_[A-Za-z0-9]{36}|glpat-[\w-]{20,}|bmx_\w{8}_[\w-]{43}"
    r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY-----\s*\n[A-Za-z0-9+/=\s]{100,}"
    r"|(?i:authorization:\s*(?:bearer|basic)\s+[\w+/=.-]{30,})|://[\w.-]+:(?!pass|secret|word|\{|\$)[^@\s/\"'{}]{8,}@"
)
MADE_UP = {"sk-very-secret-0123456789", "://someone:hunt%21er22@"}
"""What tests call a secret."""


def requirements() -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    return {canonicalize_name(each.name): each for each in map(Requirement, lines)}


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.partition("==") for line in lines if line and not line.startswith("#")]
    assert all(equals for _, equals, _ in pins)
    return {canonicalize_name(name): version for name, _, version in pins}


@pytest.mark.parametrize("name", sorted(LAST_BAD))
def test_versions_with_a_known_hole_are_not_installed(name):
    asked, pinned = requirements()[name], constraints().get(name)
    assert not asked.specifier.contains(LAST_BAD[name]), f"{asked} lets {LAST_BAD[name]} in"
    assert pinned is None or Version(pinned) > Version(LAST_BAD[name])


def test_constraints_are_within_the_ranges_and_work_everywhere():
    pins = constraints()
    for name, asked in requirements().items():
        if name == "torch":  # its builds have other names elsewhere
            assert name not in pins
        else:
            assert asked.specifier.contains(pins[name]), f"{asked} and {pins[name]}: run `make constraints`"
    assert not [f"{name}=={version}" for name, version in pins.items() if Version(version).local]


def test_the_consoles_packages_are_fixed_by_their_checksums():
    packages = json.loads((ROOT / "console" / "package-lock.json").read_text())["packages"]
    own = packages.pop("")
    asked = json.loads((ROOT / "console" / "package.json").read_text())
    assert own["dependencies"] == asked["dependencies"]
    assert own["devDependencies"] == asked["devDependencies"]
    assert not [name for name, each in packages.items() if not each.get("integrity", "").startswith("sha512-")]
    assert not [name for name, each in packages.items() if "resolved" in each], "it names a registry"
    # `npm ci` wants those of all platforms.
    for name in ("rolldown", "lightningcss", "@biomejs/biome"):
        platforms = packages[f"node_modules/{name}"]["optionalDependencies"]
        there = [each for each in platforms if f"node_modules/{each}" in packages]
        assert len(there) >= len(platforms) - 1, "all but the one in WebAssembly"


def tracked() -> list[Path]:
    try:
        told = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no checkout")
    return [ROOT / name for name in told.split("\0") if name and (ROOT / name).is_file()]


def found_in(text: str) -> set[str]:
    return {match.group(0)[:80] for match in SECRETS.finditer(text)} - MADE_UP


def test_the_scanner_finds_what_it_looks_for():
    letters = "Ab3" * 20
    for planted in (
        f"AKIA{'A1' * 8}",
        f"ghp_{letters[:36]}",
        f"bmx_{letters[:8]}_{letters[:43]}",
        f"sk-{letters[:30]}",
        f"postgresql://me:{letters[:12]}@db/x",
        f"-----BEGIN RSA PRIVATE KEY-----\n{letters}\n{letters}",
    ):
        assert found_in(f'key = "{planted}"'), planted


def test_no_file_in_the_repository_holds_a_secret():
    found = {}
    for path in tracked():
        if hits := found_in(path.read_bytes().decode("utf-8", "replace")):
            found[str(path.relative_to(ROOT))] = hits
    assert found == {}


def test_no_file_names_the_machine_it_was_written_on():
    homes = re.compile(r"(?<![\w.$}])/(?:root|home/\w+|Users/\w+)/[\w.-]+")
    allowed = re.compile(r"/home/(?:user|me|you|runner)/")
    found = {
        str(path.relative_to(ROOT)): hits
        for path in tracked()
        if (text := path.read_bytes().decode("utf-8", "replace"))
        and (hits := [hit for hit in homes.findall(text) if not allowed.match(hit)])
    }
    assert found == {}


@pytest.mark.slow
def test_the_wheel_holds_the_package_alone(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, env={**os.environ, "BENCHMAX_SKIP_CONSOLE": "1"}, timeout=600)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        odd = [
            name for name in names if not re.match(r"benchmax/|benchmax_verifiers/|benchmax-[\d.]+\.dist-info/", name)
        ]
        assert odd == []
        assert not [name for name in names if name.endswith((".pth", ".so", ".pyc", ".env", ".db"))]
        assert not [name for name in names if found_in(opened.read(name).decode("utf-8", "replace"))]
        here = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
        assert {name for name in names if name.endswith(".py")} == here
