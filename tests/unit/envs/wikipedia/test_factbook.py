"""Getting the World Factbook: what is fetched is checked, and what is missing is said in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmax.envs.wikipedia.factbook.corpus import FACTS, INDEX, VERSION, factbook_dir, open_world
from benchmax.envs.wikipedia.factbook.fetch import NotFetched, fetch, read_archive
from benchmax.envs.wikipedia.factbook.profiles import articles, read_profile
from benchmax.envs.wikipedia.wiki_env import WikipediaEnv
from benchmax.errors import NotFoundError
from benchmax.files.atomic import replacing_folder
from benchmax.search.build import index_documents
from benchmax.search.types import Document

RAW = {
    "Introduction": {"Background": {"text": "Chad  was a colony."}},
    "Geography": {
        "Area": {"total": {"text": "1.284 million sq km"}, "land": {"text": None}},
        "Land boundaries": {"total": {"text": "6,406 km"}, "border countries (6)": {"text": "Niger 1,196 km"}},
        "Irrigated land": {"text": " ++ 300 sq km ++ (2003)"},
    },
    "Government": {
        "Country name": {
            "conventional long form": {"text": "Republic of Chad"}, "conventional short form": {"text": "Chad (Tchad)"},
        },
    },
}  # fmt: skip


def test_a_profile_becomes_articles() -> None:
    profile = read_profile("cd", RAW)
    assert profile is not None
    main, geography, _ = articles(profile)
    assert (main.title, main.content) == (
        "Chad", "Chad was a colony.\nSee also: Geography of Chad, Government of Chad",
    )  # fmt: skip
    assert geography.title == "Geography of Chad"
    assert geography.content.splitlines() == [
        "Area, total: 1.284 million sq km", "Land boundaries, total: 6,406 km",
        "Land boundaries, border countries (6): Niger 1,196 km", "Irrigated land: 300 sq km; (2003)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "raw", "name"), [("xx", {}, "World"), ("zz", {}, None), ("cg", RAW, "Democratic Republic of the Congo")]
)
def test_profiles_without_a_name_get_one_or_are_left_out(code: str, raw: dict, name: str | None) -> None:
    profile = read_profile(code, raw)
    assert (profile and profile.name) == name


def test_another_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.tgz").write_bytes(b"not the package")
    with pytest.raises(NotFetched, match="its checksum differs"):
        list(read_archive(tmp_path / "other.tgz"))
    with pytest.raises(NotFetched, match="cannot be read"):
        fetch(tmp_path / "nowhere.tgz")


def test_without_npm_one_line_says_what_to_do(tmp_path: Path) -> None:
    """In a Python that has no npm beside it."""
    code = "import sysconfig; sysconfig.get_path = lambda name: ''; from benchmax.cli import main; main()"
    own = {**os.environ, "PATH": str(tmp_path), "BENCHMAX_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code, "wikipedia", "fetch"], capture_output=True, text=True, env=own, check=False
    )
    assert done.returncode == 1
    assert "there is no npm here" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "home" / "corpora" / "factbook-2015").exists()


def test_a_missing_corpus_is_said_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path))
    for missing in (WikipediaEnv, WikipediaEnv.load_dataset):
        with pytest.raises(NotFoundError, match=r"is not on this machine .*benchmax wikipedia fetch"):
            missing()
    env = WikipediaEnv("live")
    assert len(env.dataset_preprocess({"Question": "q", "Answer": "a"})["prompt_messages"]) == 1


def test_what_was_fetched_again_is_opened_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHMAX_CORPORA", str(tmp_path))
    for capital in ("Alba", "Brenna"):
        with replacing_folder(factbook_dir()) as folder:
            index_documents([Document("a", "Capital", f"Capital: {capital}")], folder / INDEX).close()
            facts = {"Utopia": {"Government": {"Capital, name": capital}}}
            (folder / FACTS).write_text(json.dumps({"version": VERSION, "facts": facts}))
        world = open_world()
        assert world.countries == facts
        assert world.index.get("a").content == f"Capital: {capital}"  # type: ignore[union-attr]
        assert open_world() is world
