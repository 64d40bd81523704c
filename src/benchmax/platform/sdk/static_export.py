"""A run as one folder that opens without a server: from a disk, or from any host of plain files.

A page opened from a disk may load scripts but not fetch. So everything the console would fetch is written as scripts:
`data/run.js` has the run, its charts and the index of its rollouts, `data/rollouts-N.js` some whole rollouts each. The
console beside them (built as one script) answers itself from these.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmax.errors import NotFoundError
from benchmax.files.atomic import refuse_filled
from benchmax.platform.sdk.exceptions import TrainerError

if TYPE_CHECKING:
    from benchmax.platform.sdk.client import TrainerClient

CONSOLE = Path(__file__).resolve().parent.parent / "server" / "console" / "saved"
"""Where an install puts the console of saved runs."""
MOST_ROLLOUTS = 2_000
_PER_FILE = 50
_CHART_POINTS = 2_000
_PAGE_HTML = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <meta http-equiv="Content-Security-Policy" content="default-src 'self' file:; object-src 'none'; base-uri 'none'" />
    <link rel="icon" href="icon.svg" type="image/svg+xml" />
    <link rel="stylesheet" href="style.css" />
    <title>benchmax</title>
  </head>
  <body>
    <div id="root"></div>
    <script src="data/run.js"></script>
    <script src="console.js"></script>
  </body>
</html>
"""


@dataclass(frozen=True, slots=True)
class StaticExport:
    """What was written."""

    folder: Path
    rollouts: int
    """Whole rollouts in it."""
    total: int
    """Rollouts the run has."""


def export_static(
    client: TrainerClient, run_id: str, folder: Path, *, most: int = MOST_ROLLOUTS, console: Path | None = None
) -> StaticExport:
    """Write `run_id` into a new folder, with at most `most` rollouts: the latest of each kind, the others evenly."""
    built = console or CONSOLE
    if not (built / "console.js").is_file():
        raise NotFoundError("The web console is not built, and a saved run needs it. Build it first: make console")
    refuse_filled(folder)
    answers = _answers(client, run_id)
    found = _indexes(client, run_id, answers)
    total = sum(len(items) for items in found.values())
    quotas = _quotas({name: len(items) for name, items in found.items()}, most)
    kept = {name: _spread(items, quotas[name]) for name, items in found.items()}
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    files = _write_rollouts(data, client, run_id, [item["id"] for items in kept.values() for item in items])
    note = _note(len(files), total)
    saved = {"run": run_id, "note": note, "answers": answers, "items": kept, "files": files}
    (data / "run.js").write_text(f"window.__BENCHMAX_STATIC__ = {_script(saved)};\n", "utf-8")
    shutil.copytree(built, folder, dirs_exist_ok=True)
    (folder / "index.html").write_text(_PAGE_HTML, "utf-8")
    return StaticExport(folder, len(files), total)


def _answers(client: TrainerClient, run_id: str) -> dict[str, Any]:
    """What the console asks about the run as a whole, by the end of its address."""
    base = f"/v1/train/runs/{run_id}"
    details = client.get_run_details(run_id)
    # A saved copy has no owner, and it does not continue.
    answers: dict[str, Any] = {"details": details | {"isOwner": False, "notes": ""}}
    if details["status"] in ("pending", "active"):
        answers["details"] |= {"status": "stalled", "statusReason": "It was still going on when this copy was made."}
    for name in ("events", "alerts", "checkpoints", "external-eval", "config", "system"):
        try:
            answers[name] = client._get(f"{base}/{name}")
        except TrainerError as error:
            if error.status_code not in (403, 404):
                raise
    for mode in details["modes"]:
        answers[f"scalars:{mode}"] = client._get(f"{base}/scalars", mode=mode, buckets=_CHART_POINTS)
    for each in answers.get("external-eval", {}).get("evals", []):
        answers[f"rollouts/comparison:{each['id']}"] = client.get_whole_comparison(run_id, each["id"])
        answers[f"rollouts/comparison/summary:{each['id']}"] = client.get_comparison_summary(run_id, each["id"])
    return answers


def _indexes(client: TrainerClient, run_id: str, answers: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rollouts of each mode, and of each evaluation outside training."""
    modes = [mode for mode in answers["details"]["modes"] if mode != "external-eval"]
    evals = [each["id"] for each in answers.get("external-eval", {}).get("evals", [])]
    found = {mode: list(client.iter_rollouts(run_id, mode=mode)) for mode in modes}
    return found | {each: list(client.iter_rollouts(run_id, external_eval_id=each)) for each in evals}


def _quotas(counts: Mapping[str, int], most: int) -> dict[str, int]:
    """How many rollouts of each kind are kept; the smallest kinds first, as a comparison needs all of its own."""
    quotas: dict[str, int] = {}
    for name in sorted(counts, key=lambda name: counts[name]):
        left = len(counts) - len(quotas)
        quotas[name] = min(counts[name], (most - sum(quotas.values())) // left)
    return quotas


def _spread(items: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """The latest step, as far as there is room for half, and the others at equal distances, newest first."""
    if len(items) <= most or most == 0:
        return list(items[:most])
    latest = [item for item in items if item["step"] == items[0]["step"]][: max(1, most // 2)]
    others, room = items[len(latest) :], most - len(latest)
    return latest + [others[i * len(others) // room] for i in range(room)]


def _write_rollouts(data: Path, client: TrainerClient, run_id: str, ids: Sequence[str]) -> dict[str, int]:
    """Write whole rollouts, some in each file; returns the file of each."""
    files: dict[str, int] = {}
    for number, start in enumerate(range(0, len(ids), _PER_FILE)):
        part = ids[start : start + _PER_FILE]
        found = {rollout_id: client.get_rollout_details(run_id, rollout_id) for rollout_id in part}
        text = f"window.__BENCHMAX_STATIC__.add({number}, {_script(found)});\n"
        (data / f"rollouts-{number}.js").write_text(text, "utf-8")
        files |= dict.fromkeys(part, number)
    return files


def _script(value: Any) -> str:
    """A value in a script: parsed as JSON there, so that no name in it means anything to JavaScript."""
    return f"JSON.parse({json.dumps(json.dumps(value, separators=(',', ':')))})"


def _note(kept: int, total: int) -> str:
    made = datetime.now(UTC).strftime("%-d %B %Y, %H:%M UTC")
    which = "" if kept == total else f" {kept:,} of {total:,} rollouts are in it."
    return f"Saved on {made}.{which}"
