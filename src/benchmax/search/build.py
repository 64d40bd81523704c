"""Building an index from a folder of texts or a MediaWiki dump, in bounded memory, and going on after a kill."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmax.errors import NotFoundError, RecordError, UsageError
from benchmax.search import schema
from benchmax.search.index import Index, open_index
from benchmax.search.passages import passages
from benchmax.search.sources.dump import DumpFeed
from benchmax.search.sources.feeds import Entry, Feed, FolderFeed
from benchmax.search.types import Document
from benchmax.search.writer import IndexWriter

DUMPS = (".xml", ".bz2")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build has come."""

    position: int
    total: int
    """Bytes of a dump, or files of a folder."""
    documents: int
    """In the index so far."""
    skipped: int
    """Pages and files that could not be read."""


Report = Callable[[Progress], None]


def build_index(
    source: str | Path,
    path: str | Path,
    *,
    passage_chars: int | None = None,
    report: Report | None = None,
    wait: float = 0.0,
) -> Index:
    """Index a folder or a dump into the file `path`.

    A build that was cut off goes on. The index of a folder is brought up to date when it is there already. With
    `passage_chars`, long texts are found by passages of that length. While another process builds the same file, this
    one waits for it, up to `wait` seconds.
    """
    if passage_chars is not None and passage_chars < 1:
        raise UsageError(f"passage_chars is {passage_chars}; give a length in characters, or leave it out.")
    feed = open_feed(Path(source))
    identity = f"{feed.identity} {passage_chars or ''}".strip()
    if not (feed.updates and _is_current(feed, Path(path), identity)):
        with IndexWriter(path, identity, update=feed.updates, wait=wait) as writer:
            _write(feed, writer, passage_chars, report)
            writer.finish()
    index = open_index(path)
    if report:
        report(Progress(feed.total, feed.total, index.get_chunk_count(), feed.skipped))
    return index


def _is_current(feed: Feed, path: Path, identity: str) -> bool:
    """Whether there is an index already, and nothing to be added to it or taken out."""
    try:
        connection = schema.connect_to_read(path)
    except (NotFoundError, RecordError):
        return False
    with closing(connection):
        same = schema.get_meta(connection, "source") == identity
        return same and next(feed.entries({}, schema.get_stamps(connection)), None) is None


def index_documents(
    documents: Iterable[Document], path: str | Path, redirects: Iterable[tuple[str, str]] = ()
) -> Index:
    """Index these documents."""
    with IndexWriter(path, "documents") as writer:
        for document in documents:
            writer.add(document)
        for title, target in redirects:
            writer.redirect(title, target)
        writer.commit({})
        writer.finish()
    return open_index(path)


def open_feed(source: Path) -> Feed:
    """The feed of what is at a path; UsageError for a file that is no dump."""
    if source.is_dir():
        return FolderFeed(source)
    if not source.is_file():
        raise NotFoundError(f"There is no file or folder {source}. Check the path.")
    if source.suffix.lower() not in DUMPS:
        raise UsageError(
            f"{source.name} is neither a folder nor a dump that ends in {' or '.join(DUMPS)}. "
            "Unpack it first, or put text files into a folder."
        )
    return DumpFeed(source)


def _write(feed: Feed, writer: IndexWriter, passage_chars: int | None, report: Report | None) -> None:
    count, place, position = writer.count(), writer.place, 0
    for entry in feed.entries(writer.place, writer.stamps()):
        count += _add(entry, writer, passage_chars)
        place, position = entry.place, entry.position
        if writer.batch_is_full:
            writer.commit(place)
            if report:
                report(Progress(position, feed.total, count, feed.skipped))
    writer.commit(place)


def _add(entry: Entry, writer: IndexWriter, passage_chars: int | None) -> int:
    """Write an entry; returns how many documents it added."""
    if entry.file is not None:
        writer.remove_file(entry.file)
    if entry.redirect is not None:
        writer.redirect(*entry.redirect)
    if entry.document is None:
        return 0
    parts = list(passages(entry.document, passage_chars)) if passage_chars else [entry.document]
    for part in parts:
        writer.add(part, entry.file, entry.stamp)
    return len(parts)
