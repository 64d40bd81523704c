"""Every speed benchmark on an older commit and on this tree, by turns, so that a busy machine slows both alike.

    python benchmarks/old_and_new.py COMMIT|FOLDER [--only rollouts,engine,trainer,reads,mcp] [--rounds 2]
                                     [--model DIRECTORY] [--device cuda]

Each tree runs its own benchmark scripts on its own code, with the packages of this Python. A figure is the median of
the rounds; `new/old` is their quotient. Which direction is better, the figure's name says.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parents[1]
LARGE = ["--clients", "20", "--seconds", "8", "--runs", "50", "--rollouts", "20000", "--points", "200000"]
BENCHMARKS = {
    "rollouts": ["rollouts.py", "--quick", "--json", "--only", "http,scripted,sleep,open,history"],
    "engine": ["engine.py", "--model", "{model}", "--device", "{device}", "--batches", "1,8", "--new", "32", "--json"],
    "trainer": ["trainer.py", "--model", "{model}", "--device", "{device}", "--steps", "4", "--trl-steps", "0"],
    "reads": ["platform_reads.py", "--database", "sqlite", *LARGE, "--json"],
    "mcp": ["mcp.py", "--servers", "20", "--rollouts", "100", "--json"],
}
NAMES = ("section", "name", "read", "batch", "unit")
"""What tells one entry of a list from another."""
UNTOLD = {"bar", "most", "least", "ok", "count", "stats", "threads", "bytes", "first", "ratio"}
"""Parts of a report that are no measurements of speed, or of one single request."""


def figures(report: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a report, with the words around it as its name."""
    if isinstance(report, list):
        for each in report:
            own = " ".join(str(each[key]) for key in NAMES if key in each)
            yield from figures({key: value for key, value in each.items() if key not in NAMES}, f"{name} {own}".strip())
    elif isinstance(report, dict):
        for key, value in report.items():
            if key not in UNTOLD:
                yield from figures(value, f"{name} {'' if key in ('value', 'rows') else key}".strip())
    elif isinstance(report, int | float) and not isinstance(report, bool):
        yield name, float(report)


def printed(text: str) -> Iterator[tuple[str, float]]:
    """The figures of a benchmark that prints lines for people."""
    for what, value in re.findall(
        r"(a step|sampling|update)[ (]*([\d.]+)", re.sub(r"([\d.]+) s a step", r"a step \1", text)
    ):
        yield f"{what} s", float(value)


def run(tree: Path, command: list[str]) -> dict[str, float]:
    script, *arguments = command
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "HF_HUB_OFFLINE": "1"}
    where = tree / "benchmarks"
    done = subprocess.run(
        [sys.executable, str(where / script), *arguments], cwd=tree, env=environment, capture_output=True, text=True
    )
    if not done.stdout.strip():
        raise SystemExit(f"{script} of {tree} printed nothing:\n{done.stderr[-2000:]}")
    return dict(figures(json.loads(_json_of(done.stdout))) if "--json" in command else printed(done.stdout))


def _json_of(text: str) -> str:
    """What follows the lines for people."""
    lines = text.splitlines()
    return "\n".join(lines[next((at for at, line in enumerate(lines) if line[:1] in ("[", "{")), 0) :])


def compare(name: str, old: Path, rounds: int, places: dict[str, str]) -> None:
    command = [each.format(**places) for each in BENCHMARKS[name]]
    taken: dict[str, tuple[list[float], list[float]]] = {}
    for _ in range(rounds):
        for side, tree in enumerate((old, HERE)):
            for figure, value in run(tree, command).items():
                taken.setdefault(figure, ([], []))[side].append(value)
    print(f"\n{name}\n{'':60}{'old':>12}{'new':>12}{'new/old':>10}")
    for figure, (before, after) in taken.items():
        if before and after:
            one, two = median(before), median(after)
            print(f"{figure[:59]:60}{one:12.3f}{two:12.3f}" + (f"{two / one:10.2f}" if one else ""), flush=True)


def _model() -> str:
    from benchmax.inference.weights import store

    return str(store.resolve("smollm2-135m"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="a commit, or the folder of an older tree")
    parser.add_argument("--only", default=",".join(BENCHMARKS), help="names, with commas")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--model", help="directory of a model; smollm2-135m if not given")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    args = parser.parse_args()
    places = {"model": args.model or _model(), "device": args.device}
    with _tree(args.old) as old:
        for name in args.only.split(","):
            compare(name, old, args.rounds, places)


@contextmanager
def _tree(name: str) -> Iterator[Path]:
    """The folder of that name, or a checkout of that commit for as long as it is needed."""
    if Path(name).is_dir():
        yield Path(name).resolve()
        return
    git = ["git", "-C", str(HERE), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        subprocess.run([*git, "add", "--detach", "-q", str(old), name], check=True)
        try:
            yield old
        finally:
            subprocess.run([*git, "remove", "--force", str(old)], check=True)


if __name__ == "__main__":
    main()
