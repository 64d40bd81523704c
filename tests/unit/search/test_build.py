"""Building an index: from dumps and folders, bounded, and going on after a kill."""

from __future__ import annotations

import bz2
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmax import limits
from benchmax.errors import NotFoundError, RecordError, UsageError
from benchmax.search import build_index, open_corpus, open_index
from benchmax.search import writer as writer_module
from benchmax.search.build import Progress
from benchmax.search.sources.dump import DumpFeed
from benchmax.search.sources.plain_text import strip_html
from dump_world import articles, page, redirect, write_dump


@pytest.mark.parametrize("name", ["wiki.xml", "wiki.xml.bz2"])
def test_a_dump_becomes_articles_and_redirects(tmp_path: Path, name: str) -> None:
    pages = [
        page("Emi Koussi", "'''Emi Koussi''' is a [[volcano|high volcano]] &mdash; in {{flag|Chad}} Chad.<ref>x</ref>"),
        redirect("Emi Kussi", "Emi Koussi"),
        page("Talk:Emi Koussi", "what?", ns=1),
        page("AC/DC & co", "A band with <page> in its text."),
    ]
    index = build_index(write_dump(tmp_path / name, pages), tmp_path / "wiki.sqlite")
    assert index.get_chunk_count() == 2
    assert index.article("emi_kussi").content == "Emi Koussi is a high volcano — in Chad."  # type: ignore[union-attr]
    assert index.article("ac/dc & CO") is not None
    assert index.article("Talk:Emi Koussi") is None


def test_pages_that_cannot_be_read_are_counted_and_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INDEX_FILE_BYTES", 3 << 20)
    broken = "<page><title>Broken<ns>0</ns></page>\n"
    pages = [page("One", "first"), broken, page("Huge", "x " * (3 << 20)), page("Two", "second")]
    steps: list[Progress] = []
    index = build_index(write_dump(tmp_path / "wiki.xml", pages), tmp_path / "wiki.sqlite", report=steps.append)
    assert [each.title for each in index.documents()] == ["One", "Two"]
    assert steps[-1].skipped == 2
    assert steps[-1].position == steps[-1].total > 0


CUT_OFF = """
import os, signal, sys
from benchmax.search import build, writer
writer.BATCH_DOCUMENTS = 50
committed = 0
def report(step):
    global committed
    committed += 1
    if committed == 3:
        os.kill(os.getpid(), signal.SIGKILL)
build.build_index(sys.argv[1], sys.argv[2], report=report)
"""


@pytest.mark.parametrize("name", ["wiki.xml", "wiki.xml.bz2", "single.xml.bz2"])
def test_a_killed_build_goes_on_where_it_was(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = write_dump(tmp_path / name, articles(400), per_stream=400 if name.startswith("single") else 30)
    out = tmp_path / "wiki.sqlite"
    done = subprocess.run([sys.executable, "-c", CUT_OFF, str(dump), str(out)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not out.exists(), "under its own name an index is whole"
    with pytest.raises(NotFoundError, match="benchmax wikipedia index"):
        open_index(out)

    read: list[str] = []
    original = DumpFeed._read
    monkeypatch.setattr(DumpFeed, "_read", lambda self, page: read.append("") or original(self, page))  # type: ignore[func-returns-value]
    index = build_index(dump, out)
    assert len(read) == 250, "what was committed is not read again"
    assert index.get_chunk_count() == 400
    assert len({each.title for each in index.documents()}) == 400
    for number in (0, 149, 150, 399):
        assert index.search(f"word{number}", 1)[0].title == f"Article {number}"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "wiki.sqlite"])


def test_a_build_of_another_source_starts_again(tmp_path: Path) -> None:
    out = tmp_path / "wiki.sqlite"
    first = write_dump(tmp_path / "a.xml", articles(200))
    subprocess.run([sys.executable, "-c", CUT_OFF, str(first), str(out)], check=False)
    assert (tmp_path / "wiki.sqlite.building").exists()
    other = write_dump(tmp_path / "b.xml", [page("Only", "this")])
    assert [each.title for each in build_index(other, out).documents()] == ["Only"]


def test_two_processes_do_not_build_one_index(tmp_path: Path) -> None:
    dump, out = write_dump(tmp_path / "a.xml", articles(20)), tmp_path / "wiki.sqlite"
    with writer_module.IndexWriter(out, "other") as held:
        held.commit({})
        with pytest.raises(UsageError, match="Another process"):
            build_index(dump, out)
    assert build_index(dump, out).get_chunk_count() == 20


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of one program, without its parent's, is Linux's alone")
def test_memory_does_not_grow_with_the_dump(tmp_path: Path) -> None:
    """Of a dump of 4 MB and one of 20."""
    code = (
        "import sys; from benchmax.search import build_index, writer; writer.BATCH_BYTES = 1 << 20;"
        "writer.CACHE_KIB = 4096; build_index(sys.argv[1], sys.argv[2]);"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    peaks = []
    for count in (100, 500):
        pages = (page(f"Article {number}", f"word{number} and more. " * 1_800) for number in range(count))
        dump = write_dump(tmp_path / f"{count}.xml", pages)
        done = subprocess.run(
            [sys.executable, "-c", code, str(dump), str(tmp_path / f"{count}.sqlite")],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        peaks.append(int(done.stdout))
    assert peaks[1] < peaks[0] + 10_000, "kilobytes"


def test_a_damaged_dump_is_told_apart_from_a_short_one(tmp_path: Path) -> None:
    whole = bz2.compress("".join(articles(50)).encode())
    (tmp_path / "short.xml.bz2").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="ends in the middle"):
        build_index(tmp_path / "short.xml.bz2", tmp_path / "a.sqlite")
    (tmp_path / "bad.xml.bz2").write_bytes(whole[:30] + b"\0" * 40 + whole[70:])
    with pytest.raises(UsageError, match="is damaged"):
        build_index(tmp_path / "bad.xml.bz2", tmp_path / "b.sqlite")


@pytest.mark.parametrize("name", ["nowhere", "notes.pdf"])
def test_other_sources_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.pdf").write_text("x")
    with pytest.raises(UsageError, match=r"no file or folder|neither a folder nor a dump"):
        build_index(tmp_path / name, tmp_path / "a.sqlite")


# Folders


def test_a_folder_is_kept_up_to_date(tmp_path: Path) -> None:
    folder, out = tmp_path / "notes", tmp_path / "notes.sqlite"
    (folder / "deep").mkdir(parents=True)
    (folder / "lamps.md").write_text("# Lamps\n\nLamps glow.")
    (folder / "deep" / "fans.html").write_text("<title>Fans</title><p>Fans <b>turn</b>.</p><script>x()</script>")
    (folder / ".hidden.md").write_text("secret")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    index = build_index(folder, out)
    assert {each.id: (each.title, each.content) for each in index.documents()} == {
        "lamps.md": ("Lamps", "# Lamps\n\nLamps glow."), "deep/fans.html": ("Fans", "Fans turn."),
    }  # fmt: skip
    index.close()
    (folder / "lamps.md").write_text("Lamps shine.")
    (folder / "deep" / "fans.html").unlink()
    (folder / "new.txt").write_text("New things.")
    index = build_index(folder, out)
    assert {each.id for each in index.documents()} == {"lamps.md", "new.txt"}
    assert index.search("glow") == []
    assert index.search("fans") == []
    assert [hit.id for hit in index.search("shine")] == ["lamps.md"]


def test_a_folder_that_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    folder, out = tmp_path / "notes", tmp_path / "notes.sqlite"
    folder.mkdir()
    (folder / "a.txt").write_text("Lamps glow.")
    build_index(folder, out, passage_chars=500)
    before = out.stat()
    steps: list[Progress] = []
    assert build_index(folder, out, passage_chars=500, report=steps.append).get_chunk_count() == 1
    assert (out.stat().st_ino, out.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert steps == [Progress(1, 1, 1, 0)]
    assert build_index(folder, out, passage_chars=5).get_chunk_count() == 2, "in other passages it is another index"


def test_a_file_that_cannot_be_read_any_more_is_taken_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = tmp_path / "notes", tmp_path / "notes.sqlite"
    folder.mkdir()
    (folder / "a.txt").write_text("Lamps glow.")
    (folder / "b.txt").write_text("Fans turn.")
    build_index(folder, out)
    monkeypatch.setattr(limits, "INDEX_FILE_BYTES", 20)
    (folder / "a.txt").write_text("Lamps glow. " * 20)
    steps: list[Progress] = []
    index = build_index(folder, out, report=steps.append)
    assert [each.id for each in index.documents()] == ["b.txt"]
    assert steps[-1].skipped == 1


OPENED = """
import sys
from benchmax.search import open_corpus
print("opening", flush=True)
print(open_corpus(sys.argv[1]).get_chunk_count())
"""


def test_processes_that_open_the_same_folder_wait_for_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.txt").write_text("Lamps glow.")
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path / "home"))
    path = open_corpus(folder).get_params()["path"]
    (folder / "b.txt").write_text("Fans turn.")
    with writer_module.IndexWriter(path, "folder 1200", update=True) as held:
        held.commit({})
        waiting = [subprocess.Popen([sys.executable, "-c", OPENED, str(folder)], stdout=-1) for _ in range(3)]
        assert [each.stdout.readline() for each in waiting] == [b"opening\n"] * 3  # type: ignore[union-attr]
        with pytest.raises(subprocess.TimeoutExpired):
            waiting[0].wait(1.5)
    assert [each.communicate(timeout=60)[0] for each in waiting] == [b"2\n"] * 3
    assert [each.name for each in (tmp_path / "home" / "corpora").iterdir()] == [Path(path).name]


@pytest.mark.parametrize(
    "page",
    [
        "<html><head><title>x</title><body><p>Hello text</p></body></html>",
        "<head><meta charset=utf-8><title>x</title><p>Hello text",
        "<html><head><title>x</title><style>p {}</style></head><body><svg><title>y</title></svg>Hello text</body>",
    ],
)
def test_html_may_leave_tags_out(page: str) -> None:
    assert strip_html(page) == ("x", "Hello text")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("# Straße 9".encode("latin-1"), "# Straße 9"),
        ("# Straße “9”".encode("cp1252"), "# Straße “9”"),
        ("# Straße 9".encode("utf-16"), "# Straße 9"),
        ("# Straße 9".encode("utf-8-sig"), "# Straße 9"),
        ("# Straße 9".encode() + b"\xff", "# Straße 9\ufffd"),
    ],
)
def test_files_are_read_in_the_encodings_that_people_have(data: bytes, text: str, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_bytes(data)
    [found] = build_index(tmp_path / "notes", tmp_path / "notes.sqlite").search("straße", 3)
    assert (found.content, found.title) == (text, text.removeprefix("# "))


@pytest.mark.parametrize("section", ["<![foo[ bar", "<![[", "<![ ", "<![if !IE]>", "<![CDATA[x]]>"])
def test_html_may_have_sections_of_any_name(section: str) -> None:
    assert strip_html(f"<p>Hello</p>{section}<p>text</p>").content.startswith("Hello")


def test_a_file_name_may_be_of_any_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    Path(os.fsdecode(bytes(folder) + b"/caf\xe9.txt")).write_text("Coffee.")
    for _ in range(2):
        index = build_index(folder, tmp_path / "notes.sqlite")
        assert [hit.id for hit in index.search("coffee")] == ["caf\\udce9.txt"]
        index.close()


def test_links_out_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    os.symlink(tmp_path / "secret.txt", folder / "link.txt")
    assert build_index(folder, tmp_path / "a.sqlite").get_chunk_count() == 0


def test_long_texts_are_found_by_passages(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "long.txt").write_text("\n\n".join(f"Paragraph {number} about thing{number}." for number in range(50)))
    index = build_index(folder, tmp_path / "a.sqlite", passage_chars=200)
    [hit] = index.search("thing33", 1)
    assert re.fullmatch(r"long\.txt#\d+", hit.id)
    assert len(hit.content) <= 200
    assert hit.document.metadata["source_id"] == "long.txt"
    joined = "\n\n".join(each.content for each in index.documents())
    assert joined == (folder / "long.txt").read_text()


def test_what_is_no_index_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").write_text("no database")
    with pytest.raises(RecordError, match="no index"):
        open_index(tmp_path / "a.sqlite")
