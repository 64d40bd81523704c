"""How fast an index is built from a dump and searched, in how much memory, and whether a killed build goes on.

    python benchmarks/search.py [--articles 100000] [--megabytes 1000] [--queries 2000] [--folder DIR] [--keep] [--json]

Writes a MediaWiki dump of generated articles (words as frequent as in English, with links, templates, references and
redirects), indexes it in a process that is killed on the way and started again, and searches the index. The bars: p95
of a search under 20 ms, and memory that does not grow with the dump. Beside the wall-clock time stands the processor
time of a search, which a busy machine changes less.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from benchmax.search import open_index

BAR_MS = 20.0
VOCABULARY = 200_000
SENTENCES = 40_000
_SYLLABLES = (
    "ba be bi bo da de di do fa fe ga ge ka ke la le li lo ma me mi mo na ne no pa pe ra re ri ro sa se ta te ti"
)
_HEAD = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11">\n<siteinfo></siteinfo>\n'
_PAGE = (
    "<page><title>{title}</title><ns>0</ns><id>{number}</id>"
    '<revision><id>{number}</id><text xml:space="preserve">{text}</text></revision></page>\n'
)
_REDIRECT = (
    '<page><title>{title} again</title><ns>0</ns><id>{number}</id><redirect title="{title}" />'
    "<revision><text>#REDIRECT [[{title}]]</text></revision></page>\n"
)


def vocabulary(rng: random.Random) -> list[str]:
    syllables = _SYLLABLES.split()
    words = {"".join(rng.choices(syllables, k=rng.randint(1, 5))) for _ in range(3 * VOCABULARY)}
    chosen = sorted(words)[:VOCABULARY]
    rng.shuffle(chosen)
    return chosen


def sentences(words: list[str], rng: random.Random) -> list[str]:
    """Sentences with a few frequent words and many rare ones, as Zipf has it."""
    weights = list(itertools.accumulate(1.0 / rank for rank in range(1, len(words) + 1)))
    made = []
    for _ in range(SENTENCES):
        said = rng.choices(words, cum_weights=weights, k=rng.randint(8, 24))
        linked = rng.randrange(len(said))
        said[linked] = f"[[{said[linked]}|{said[linked]}s]]"
        made.append(" ".join(said).capitalize() + rng.choice([". ", ".&lt;ref&gt;a source&lt;/ref&gt; ", ". "]))
    return made


def write_dump(path: Path, articles: int, size: int, seed: int = 0) -> list[str]:
    """A dump of about `size` bytes; returns the titles."""
    rng = random.Random(seed)
    words = vocabulary(rng)
    pool, titles = sentences(words, rng), []
    per_article = size / articles
    with path.open("w", encoding="utf-8") as file:
        file.write(_HEAD)
        for number in range(articles):
            title = " ".join(rng.sample(words, 2)).title() + f" {number}"
            titles.append(title)
            text, own = [f"{{{{Infobox|name={title}}}}} '''{title}''' is "], " ".join(rng.choices(words, k=30))
            length = rng.expovariate(1.0 / per_article)
            while sum(map(len, text)) < length - 400:
                text += ["\n\n== Section ==\n", *rng.choices(pool, k=12)]
            file.write(_PAGE.format(title=title, number=number, text=f"{''.join(text)}\n{own}."))
            if number % 10 == 0:
                file.write(_REDIRECT.format(title=title, number=articles + number))
        file.write("</mediawiki>\n")
    return titles


def index_process(dump: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmax", "wikipedia", "index", str(dump), "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def built(dump: Path, out: Path) -> dict[str, Any]:
    """Build the index, killed once when a third of the documents is written, then to its end."""
    killed_at = _killed(dump, out)
    began, process = time.perf_counter(), index_process(dump, out)
    peak = burned = 0.0
    while process.poll() is None:
        try:
            seen = psutil.Process(process.pid)
            peak, burned = max(peak, seen.memory_info().rss), sum(seen.cpu_times()[:2])
        except psutil.Error:  # it has just ended
            break
        time.sleep(0.2)
    assert process.wait() == 0
    return {
        "documents when it was killed": killed_at,
        "seconds after that": time.perf_counter() - began,
        "processor seconds after that": burned,
        "peak memory, MB": peak / 1e6,
        "index, MB": out.stat().st_size / 1e6,
    }


def _killed(dump: Path, out: Path) -> int:
    process = index_process(dump, out)
    building = out.with_name(out.name + ".building")
    wal = building.with_name(building.name + "-wal")
    while process.poll() is None:
        written = sum(path.stat().st_size for path in (building, wal) if path.exists())
        if written > dump.stat().st_size / 3:
            break
        time.sleep(0.5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with closing(sqlite3.connect(building)) as connection:
        return int(connection.execute("SELECT count(*) FROM documents").fetchone()[0])


def queries(index: Any, titles: list[str], count: int, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Titles, words of an article, words of several, and the most frequent words."""
    drawn = index.sample_chunks(200, 500, seed=1)
    frequent = drawn[0].content.split()[:200]
    kinds: list[tuple[str, Callable[[], str]]] = [
        ("a title", lambda: rng.choice(titles)),
        ("words of an article", lambda: " ".join(rng.sample(rng.choice(drawn).content.split(), 4))),
        ("a sentence of twelve words", lambda: " ".join(rng.sample(rng.choice(drawn).content.split(), 12))),
        ("words of two articles", lambda: " ".join(rng.choice(rng.choice(drawn).content.split()) for _ in range(2))),
        ("words that are in most", lambda: " ".join(rng.sample(frequent, 3))),
    ]
    for number in range(count):
        name, make = kinds[number % len(kinds)]
        yield name, make()


def searched(out: Path, titles: list[str], count: int) -> dict[str, Any]:
    index = open_index(out)
    wall: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    for name, query in queries(index, titles, count, random.Random(1)):
        began, burned = time.perf_counter(), time.thread_time()
        index.search(query, 10)
        wall.setdefault(name, []).append(1000 * (time.perf_counter() - began))
        cpu.setdefault(name, []).append(1000 * (time.thread_time() - burned))
    wall["all"], cpu["all"] = (list(itertools.chain(*each.values())) for each in (wall, cpu))
    found = sum(index.search(title, 1)[0].title == title for title in titles[:: max(1, len(titles) // 200)])
    index.close()
    table = {
        name: {
            "p50 ms": at(wall[name], 0.5),
            "p95 ms": at(wall[name], 0.95),
            "p95 ms of processor": at(cpu[name], 0.95),
        }
        for name in wall
    }
    return {"queries": table, "titles found first": found, "titles asked": len(titles[:: max(1, len(titles) // 200)])}


def at(values: list[float], share: float) -> float:
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--articles", type=int, default=100_000)
    parser.add_argument("--megabytes", type=int, default=1_000)
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="benchmax-search-"))
    folder.mkdir(parents=True, exist_ok=True)
    dump, out = folder / "dump.xml", folder / "dump.sqlite"
    try:
        titles = write_dump(dump, given.articles, given.megabytes * 1_000_000)
        result = {"dump, MB": dump.stat().st_size / 1e6, "articles": given.articles}
        result |= built(dump, out)
        result |= searched(out, titles, given.queries)
    finally:
        if not given.keep:
            shutil.rmtree(folder)
    if given.json:
        print(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        if name != "queries":
            print(f"{name}: {value:,.0f}")
    for name, times in result["queries"].items():
        print(f"{name:28} " + "  ".join(f"{label} {value:6.2f}" for label, value in times.items()))
    print(f"bar: p95 under {BAR_MS:g} ms")


if __name__ == "__main__":
    main()
