"""`benchmax up`, `down`, `status`, `logs`, `reindex` and `backup`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from benchmax import extras
from benchmax.cli.exit_codes import FAILED
from benchmax.cli.output import Json, command, print_json, safe, status_word, stderr, visible
from benchmax.errors import NotFoundError, UsageError
from benchmax.files.logs import file_size, tail
from benchmax.net import ports
from benchmax.platform.daemon import control
from benchmax.platform.daemon.backup import back_up
from benchmax.platform.daemon.liveness import read_daemon
from benchmax.platform.daemon.options import Options
from benchmax.platform.store.datadir import DataDir

DataOption = Annotated[
    Path | None, typer.Option("--data-dir", help="Where everything is kept (BENCHMAX_DATA, ~/.benchmax).")
]
UrlOption = Annotated[
    str | None,
    typer.Option("--database-url", envvar="BENCHMAX_DATABASE_URL", help="postgresql://… in place of SQLite."),
]


def up(
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay here until Ctrl-C.")] = False,
    port: Annotated[int | None, typer.Option(min=1, max=65_535, help="Port on 127.0.0.1 (8321).")] = None,
    data_dir: DataOption = None,
    database_url: UrlOption = None,
    console: Annotated[Path | None, typer.Option(help="Folder of the built web console.")] = None,
) -> None:
    """Start the platform: server and runner, on this machine alone."""
    extras.require("The platform", "platform")
    from benchmax.platform.daemon.daemon import Daemon

    data = DataDir(data_dir)
    stop = f"{safe(command())} down" + (f" --data-dir {safe(shlex.quote(str(data_dir)))}" if data_dir else "")
    options = Options(data, port or ports.DEFAULT_PORT, data.database_url(database_url), console)
    running = read_daemon(options.data)
    if running is not None:
        unused = port is not None and port != running["port"]
        advice = f" To use port {port}, stop it first: {stop}" if unused else ""
        at = f"http://127.0.0.1:{running['port']}"
        stderr.print(f"It is already running, as process {running['pid']}, at {at}.{advice}")
        options = replace(options, port=running["port"], database_url=running["database_url"])
    elif foreground:
        Daemon(options, on_ready=lambda: _welcome(options, "Ctrl-C stops it.")).run()
        return
    control.start(options)
    _welcome(options, f"Stop it with: {stop}")


def _welcome(options: Options, last: str) -> None:
    stderr.print(f"benchmax is at http://127.0.0.1:{options.port}; data in {safe(options.data.root)}.")
    stderr.print(f"Sign in, once, with {safe(control.sign_in_link(options))}")
    if lost := extras.missing("train"):
        advice = f"Run: {safe(extras.install('train'))}"  # its brackets are no markup
        stderr.print(f"Nothing can be trained on it yet: {lost[0]} is not installed. {advice}")
    stderr.print(last)


def sign_in_link() -> str | None:
    """A link that signs its bearer in to this machine's platform, once; None when it does not run."""
    data = DataDir(None)
    running = read_daemon(data)
    if running is None:
        return None
    return control.sign_in_link(Options(data, running["port"], running["database_url"]))


def down(data_dir: DataOption = None) -> None:
    """Stop the platform. Runs are saved and continue at the next start."""
    stderr.print("Stopped." if control.stop(DataDir(data_dir)) else "The platform is not running.")


def status(data_dir: DataOption = None, json: Json = False) -> None:
    """Show whether the platform runs, and what it trains. The exit code is 1 when it does not run."""
    found = control.status(DataDir(data_dir))
    if json:
        print_json(found)
    elif found["running"]:
        at = f"runs at {safe(found['url'])}" if found["url"] else "starts, and does not answer yet"
        stderr.print(f"The platform {at}; data in {safe(found['data'])}.")
        for name in ("server", "runner"):
            process = found[name]
            stderr.print(
                f"  {name}: " + (f"process {process['pid']}" if process["running"] else "down, starting again")
            )
    else:
        stderr.print(f"The platform is not running; data in {safe(found['data'])}. Start it with: {safe(command())} up")
    if not json and found.get("runs"):
        counts = sorted((status_word(name), count) for name, count in found["runs"].items())
        stderr.print("  runs: " + ", ".join(f"{count} {name}" for name, count in counts))
    if not found["running"]:
        raise typer.Exit(FAILED)


def logs(
    what: Annotated[str, typer.Argument(help="server, runner, daemon, or the id of a run.")] = "server",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines as they come.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Last lines shown.")] = 50,
    data_dir: DataOption = None,
) -> None:
    """Show the log of the server, the runner or a run."""
    data = DataDir(data_dir)
    what = "daemon" if what == "keeper" else what  # its former name
    parts = ("server", "runner", "daemon")
    path = data.logs / f"{what}.log" if what in parts else data.run(what) / "child.log"
    if not path.exists():
        never = f"There is no log of {what}: nothing was started in {data.root} yet. Start it with: benchmax up"
        other = f"There is no log of {what}. Give server, runner, daemon, or the id of a run."
        raise NotFoundError(never if what in parts else other)
    size = file_size(path)
    for line in tail(path, lines).splitlines():
        sys.stdout.write(visible(line) + "\n")
    if follow:
        _follow(path, size)


def reindex(
    run_ids: Annotated[list[str] | None, typer.Argument(help="Ids of runs; all when none is given.")] = None,
    data_dir: DataOption = None,
    database_url: UrlOption = None,
) -> None:
    """Rebuild what the database knows of runs from their directories."""
    from benchmax.platform.runner.ingest import reindex as rebuild
    from benchmax.platform.store.database import open_database

    data = DataDir(data_dir)
    with closing(open_database(data, _database_url(data, database_url), migrate=False)) as database:
        known = sorted(path.name for path in data.runs.iterdir() if path.is_dir()) if data.runs.exists() else []
        for run_id in run_ids or known:
            try:
                rebuild(database, data, run_id)
            except UsageError as error:
                if run_ids:
                    raise
                stderr.print(f"Left {safe(data.runs / run_id)} as it is: {safe(error)}")
                continue
            stderr.print(f"Rebuilt {safe(run_id)} from {safe(data.run(run_id))}: curves, rollouts, logs.")
        if not (run_ids or known):
            stderr.print(f"There are no runs in {safe(data.runs)}; nothing was done.")


def backup(
    file: Annotated[Path, typer.Argument(help="The archive to write: .tar or .tar.gz.")],
    data_dir: DataOption = None,
    database_url: UrlOption = None,
) -> None:
    """Copy database, uploads and runs into one file, also while the platform runs."""
    data = DataDir(data_dir)
    url = _database_url(data, database_url)
    postgres = bool(url) and not str(url).startswith("sqlite")
    back_up(data, file, database=not postgres)
    stderr.print(f"Wrote {safe(file)}. Restore it by unpacking it into an empty data directory.")
    if postgres:
        stderr.print("The PostgreSQL database is not in it: copy that with pg_dump, before the files.")


def _database_url(data: DataDir, given: str | None) -> str | None:
    """What was given, else what the running platform uses, else what it used when it last ran."""
    return given or (read_daemon(data) or {}).get("database_url") or data.database_url()


def _follow(path: Path, offset: int) -> None:
    line = b""
    with open(path, "rb") as file:
        file.seek(offset)
        while True:
            line += file.readline()
            if line.endswith(b"\n"):
                sys.stdout.write(visible(line.decode("utf-8", "replace").rstrip("\n")) + "\n")
                sys.stdout.flush()
                line = b""
            else:
                if os.fstat(file.fileno()).st_size < file.tell():  # the log was rotated
                    file.seek(0)
                time.sleep(0.3)
