"""What running a rollout costs, beside a bare loop that does the same work, and whether that is within the bar.

One rollout is 5 model calls and 4 tool calls. Both sides run in this process, by turns, so that a busy machine
slows both; the model server has a process of its own, so its time is nobody's. CPU is that of the whole process,
all threads. A figure is the median of repeats.

    python benchmarks/rollouts.py [--quick] [--json] [--only http,scripted,sleep,open,history,peers]
                                  [--peer-python /path/to/a/virtualenv/bin/python]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
from _work import TURNS, Sums, bare_http, bare_loop, examples, script, server, together

from benchmax import BaseEnv
from benchmax.models.base import Conversation, ModelClient, Reply
from benchmax.models.http import HttpModel
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, Rollout, RolloutSettings, run_batch, run_rollout

LONG = 100


# Measuring


@dataclass
class Figure:
    """One line of the table; `bar` is the most it may be, None for a figure that is only told."""

    section: str
    name: str
    value: float
    unit: str
    bar: float | None = None
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.bar is None or self.value <= self.bar


@dataclass(frozen=True)
class Scale:
    rollouts: int
    repeats: int
    open: int
    long_rollouts: int


FULL = Scale(rollouts=1024, repeats=7, open=10_000, long_rollouts=24)
QUICK = Scale(rollouts=256, repeats=3, open=2_000, long_rollouts=6)


async def cpu_ms(work: Awaitable[Any], count: int) -> float:
    began = time.process_time()
    await work
    return (time.process_time() - began) * 1000 / count


async def by_turns(
    repeats: int, count: int, bare: Callable[[], Awaitable[Any]], ours: Callable[[], Awaitable[Any]]
) -> tuple[float, float, float]:
    """CPU milliseconds a rollout for each of two works, run one after the other again and again, and ours / bare.

    The quotient is taken of each pair: a machine that grows busier or calmer meanwhile does so for both.
    """
    await bare()
    await ours()
    pairs = [(await cpu_ms(bare(), count), await cpu_ms(ours(), count)) for _ in range(repeats)]
    return median(b for b, _ in pairs), median(o for _, o in pairs), median(o / b for b, o in pairs)


def checked(rollouts: Sequence[Rollout], turns: int = TURNS) -> None:
    wrong = [rollout for rollout in rollouts if not rollout.ok or rollout.turns != turns or rollout.reward != 1.0]
    if wrong:
        sys.exit(f"{len(wrong)} of {len(rollouts)} rollouts went wrong, the first with {wrong[0].error}.")


@asynccontextmanager
async def hosted(env: BaseEnv, model: ModelClient) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """An environment and a model, as a function that plays so many rollouts."""

    async def play(count: int, at_once: int) -> None:
        checked(await run_batch(host, examples(count), model, concurrency=at_once))

    async with EnvHost(env) as host, model:
        yield play


# The sections


async def over_http(scale: Scale) -> list[Figure]:
    """The price over HTTP, as a multiple of a bare aiohttp loop."""
    count = scale.rollouts // 2
    with server() as url:
        async with aiohttp.ClientSession() as session, hosted(Sums(), HttpModel(f"play-{TURNS}", url)) as play:
            bare, ours, times = await by_turns(
                scale.repeats,
                count,
                lambda: together(lambda: bare_http(session, url), count, 64),
                lambda: play(count, 64),
            )
    return [
        Figure("http", "bare aiohttp loop, CPU per rollout", bare, "ms"),
        Figure("http", "benchmax, CPU per rollout", ours, "ms"),
        Figure("http", "benchmax / bare", times, "×", 1.5),
    ]


async def scripted(scale: Scale) -> list[Figure]:
    """The price of everything but the model."""
    figures = []
    async with hosted(Sums(), ScriptedModel(script(TURNS))) as play:
        for at_once in (64, 256):
            count = max(scale.rollouts, at_once * 2)
            bare, ours, _ = await by_turns(
                scale.repeats,
                count,
                lambda: together(bare_loop, count, at_once),  # noqa: B023
                lambda: play(count, at_once),  # noqa: B023
            )
            figures += [
                Figure("scripted", f"bare asyncio loop, {at_once} at once, CPU per rollout", bare, "ms"),
                Figure("scripted", f"benchmax, {at_once} at once, CPU per rollout", ours, "ms", 0.5),
            ]
    return figures


async def sleeping(scale: Scale) -> list[Figure]:
    """Tools of different rollouts never wait for one another."""
    pauses = {"await asyncio.sleep(0.05)": lambda: asyncio.sleep(0.05), "time.sleep(0.05)": lambda: time.sleep(0.05)}
    figures = []
    for name, pause in pauses.items():
        model = ScriptedModel(script(2))
        async with EnvHost(Sums(pause=pause)) as host, model:
            await run_batch(host, examples(64), model, concurrency=64)  # a blocking tool is seen once, then moved
            walls = []
            for _ in range(scale.repeats):
                began = time.perf_counter()
                checked(await run_batch(host, examples(64), model, concurrency=64), turns=2)
                walls.append((time.perf_counter() - began) * 1000)
        figures.append(Figure("sleep", f"64 rollouts, a turn of {name}", median(walls), "ms", 100.0))
    return figures


class Crowd(ModelClient):
    """Holds every rollout at its last turn until all are there."""

    name = "crowd"

    def __init__(self, size: int) -> None:
        self.inner = ScriptedModel(script(TURNS))
        self.missing = size
        self.together = asyncio.Event()
        self.rss = 0

    def converse(self, **how: Any) -> Conversation:
        return CrowdConversation(self, self.inner.converse(**how))


class CrowdConversation(Conversation):
    def __init__(self, crowd: Crowd, inner: Conversation) -> None:
        self.crowd, self.inner, self.turn = crowd, inner, 0

    async def reply(self, new: Any, *, max_tokens: int | None = None) -> Reply:
        self.turn += 1
        if self.turn == TURNS:
            crowd = self.crowd
            crowd.missing -= 1
            if not crowd.missing:
                crowd.rss = resident()
                crowd.together.set()
            await crowd.together.wait()
        return await self.inner.reply(new, max_tokens=max_tokens)


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def weight(value: Any, seen: set[int]) -> int:
    """Bytes of a JSON value, each object once."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(weight(key, seen) + weight(item, seen) for key, item in value.items())
    return size + (sum(weight(item, seen) for item in value) if isinstance(value, list) else 0)


async def crowd(count: int) -> dict[str, float]:
    """All of `count` rollouts open at once, each with its whole history."""
    async with EnvHost(Sums()) as host:
        await run_batch(host, examples(64), ScriptedModel(script(TURNS)))
        rows, model, before = examples(count), Crowd(count), resident()
        began, cpu = time.perf_counter(), time.process_time()
        rollouts = await run_batch(host, rows, model, concurrency=count)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    checked(rollouts)
    seen: set[int] = set()
    messages = sum(weight(rollout.messages, seen) for rollout in rollouts)
    grown = model.rss - before
    return {"seconds": seconds, "cpu_ms": cpu * 1000 / count, "kb": (grown - messages) / count / 1000,
            "messages_kb": messages / count / 1000}  # fmt: skip


def run_crowd(told: Any, count: int) -> None:
    told.send(asyncio.run(crowd(count)))


async def all_open(scale: Scale) -> list[Figure]:
    """All open at once in one process.

    A fresh one, because memory once used stays with a process and would hide the growth.
    """
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=run_crowd, args=(theirs, scale.open))
    process.start()
    theirs.close()
    seen = await asyncio.to_thread(ours.recv)
    process.join()
    name = f"{scale.open:,} open at once"
    return [
        Figure("open", f"{name}, memory per rollout beyond its messages", seen["kb"], "KB", 20.0,
               f"messages {seen['messages_kb']:.1f} KB"),
        Figure("open", f"{name}, CPU per rollout", seen["cpu_ms"], "ms", note=f"{seen['seconds']:.1f} s in all"),
    ]  # fmt: skip


async def turn_costs(host: EnvHost, model: ModelClient, count: int) -> tuple[float, float, float]:
    """CPU microseconds of an early and of a late turn, and late / early.

    The quotient is taken within each rollout: a turn costs more while the two threads that pass it to and fro sit on
    different processors, which changes from one rollout to another.
    """
    settings = RolloutSettings(max_turns=LONG, max_tool_calls=LONG)
    pairs = []
    for example in examples(count):
        stamps: list[float] = []

        def on_turn(rollout: Rollout, new: Any, stamps: list[float] = stamps) -> None:
            if new[0]["role"] == "assistant":
                stamps.append(time.process_time())

        await run_rollout(host, example, model, settings, on_turn=on_turn)
        turns = [(after - before) * 1e6 for before, after in pairwise(stamps)]
        pairs.append((median(turns[2:7]), median(turns[-6:-1])))
    return median(a for a, _ in pairs), median(z for _, z in pairs), median(z / a for a, z in pairs)


async def post_costs(url: str, count: int, turns: tuple[int, int], padding: int) -> list[float]:
    """CPU microseconds of joining an encoded history of so many turns, once, and sending it."""
    costs = []
    async with aiohttp.ClientSession() as session:
        for length in turns:
            turn = json.dumps({"role": "user", "content": "x" * padding}).encode()
            parts = [b'{"model":"play-1","messages":[' + turn, *([turn] * (length - 2)), turn + b"]}"]
            spent = []
            for _ in range(count):
                began = time.process_time()
                async with session.post(f"{url}/chat/completions", data=b",".join(parts)) as response:
                    json.loads(await response.read())
                spent.append((time.process_time() - began) * 1e6)
            costs.append(median(spent))
    return costs


async def history(scale: Scale) -> list[Figure]:
    """A late turn costs what an early one does, but for its text, which is copied once."""
    async with EnvHost(Sums()) as host:
        early, late, times = await turn_costs(host, ScriptedModel(script(LONG)), scale.long_rollouts * 4)
    figures = [
        Figure("history", "scripted, CPU of turn 5", early, "µs"),
        Figure("history", f"scripted, CPU of turn {LONG}", late, "µs"),
        Figure("history", "scripted, late / early", times, "×", 1.25),
    ]
    padding = 4096
    with server() as url:
        async with EnvHost(Sums(padding)) as host, HttpModel(f"play-{LONG}", url) as model:
            early, late, _ = await turn_costs(host, model, scale.long_rollouts)
            small, large = await post_costs(url, scale.long_rollouts * 5, (5, LONG - 3), padding)
    kb = (LONG - 8) * padding / 1000
    per_kb, bare = (late - early) / kb, (large - small) / kb
    text = {"messages": [{"role": "tool", "content": "x" * padding} for _ in range(LONG)]}
    began = time.process_time()
    for _ in range(50):
        json.dumps(text)
    dumps = (time.process_time() - began) / 50 * 1e6 / (LONG * padding / 1000)
    return [
        *figures,
        Figure("history", "http, CPU of turn 5", early, "µs", note=f"each turn adds {padding / 1000:.1f} KB"),
        Figure("history", f"http, CPU of turn {LONG}", late, "µs"),
        Figure("history", "bare aiohttp, history joined once, per further KB", bare, "µs"),
        Figure("history", "json.dumps of the history, per KB", dumps, "µs", note="not done by benchmax"),
        Figure("history", "http, per further KB of history", per_kb, "µs", bare * 1.5 + 0.2),
    ]


async def peers(scale: Scale, pythons: Sequence[str]) -> list[Figure]:
    """The same work in other frameworks, where an interpreter that has them is given."""
    if not pythons:
        say("  not installed: pip install verifiers inspect-ai into a virtualenv and pass --peer-python")
        return []
    figures = []
    with server() as url:
        for name in ("inspect_ai", "verifiers"):
            tried = [await peer(python, name, url, scale.rollouts // 16) for python in pythons]
            figures += [figure for figure in tried if isinstance(figure, Figure)][:1]
            if all(isinstance(told, str) for told in tried):
                say(f"  {name}: {tried[-1]}")
    return figures


async def peer(python: str, name: str, url: str, count: int) -> Figure | str:
    """Its figure, or why there is none."""
    command = [python, str(Path(__file__).with_name("_peers.py")), name, url, str(count)]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=300)
    if ran.returncode:
        return (ran.stderr.strip() or "no output").splitlines()[-1][:200]
    told = json.loads(ran.stdout.splitlines()[-1])
    note = "its tools run in process" if name == "verifiers" else ""
    return Figure("peers", f"{name} {told['version']}, CPU per rollout", told["cpu_ms"], "ms", note=note)


SECTIONS: dict[str, Callable[[Scale], Awaitable[list[Figure]]]] = {
    "http": over_http,
    "scripted": scripted,
    "sleep": sleeping,
    "open": all_open,
    "history": history,
}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def show(figure: Figure) -> None:
    bar = "" if figure.bar is None else f"≤ {figure.bar:.4g} {figure.unit}"
    verdict = "" if figure.bar is None else ("PASS" if figure.ok else "FAIL")
    note = f"  ({figure.note})" if figure.note else ""
    say(f"  {figure.name:<62} {figure.value:>9.3f} {figure.unit:<3} {bar:<12} {verdict}{note}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller and less exact")
    parser.add_argument("--json", action="store_true", help="the figures as JSON on stdout")
    parser.add_argument("--only", default="", help=f"sections, from {','.join(SECTIONS)},peers")
    parser.add_argument(
        "--peer-python", action="append", default=[], help="an interpreter that has verifiers or inspect_ai; repeatable"
    )
    return parser.parse_args()


def main() -> int:
    options = arguments()
    scale = QUICK if options.quick else FULL
    sections = {**SECTIONS, "peers": lambda scale: peers(scale, options.peer_python)}
    wanted = options.only.split(",") if options.only else list(sections)
    if unknown := set(wanted) - set(sections):
        sys.exit(f"There is no section {', '.join(sorted(unknown))}. Choose from {', '.join(sections)}.")
    figures = []
    for name in wanted:
        say(f"{name}: {(SECTIONS.get(name, peers).__doc__ or '').splitlines()[0]}")
        found = asyncio.run(sections[name](scale))
        for figure in found:
            show(figure)
        figures += found
    if options.json:
        print(json.dumps([{**asdict(figure), "ok": figure.ok} for figure in figures], indent=1))
    return 0 if all(figure.ok for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
