"""The platform's small parts where they meet the unexpected: racing threads, hostile bytes, what was left behind."""

from __future__ import annotations

import asyncio
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from types import SimpleNamespace

import pytest
import typer
from sqlalchemy.exc import TimeoutError as PoolTimeout
from typer.testing import CliRunner

from benchmax.bundle import BundleMetadata, inspect_bundle
from benchmax.cli.platform import up as platform_commands
from benchmax.errors import ConfigError, UsageError
from benchmax.files import logs
from benchmax.files.archives import unpack_tar
from benchmax.files.atomic import replacing_folder, write_text
from benchmax.platform.server.downloads import attachment
from benchmax.platform.server.error_responses import Refused
from benchmax.platform.server.security.rate_limits import Limiter
from benchmax.platform.server.services.response_cache import ResponseCache
from benchmax.platform.server.services.run_feed import Feeds
from benchmax.platform.store.accounts import device_codes, users
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.database import make_engine, open_database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.runs import events, rollouts, runs
from benchmax.platform.store.runs import rollout_search as outline
from benchmax.platform.store.tables import Job
from benchmax.platform.store.uploads import blobs
from benchmax.platform.wire.launches import LaunchArg, check_launch_args
from platform_world import make_run

# The data directory


def at_once(work, count=8):
    """The same work in many threads, let go together."""
    gate = threading.Barrier(count)

    def each(number):
        gate.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(each, range(count)))


def test_many_writers_of_one_private_file_do_not_meet(tmp_path):
    for _ in range(20):
        at_once(lambda number: write_text(tmp_path / "note.json", str(number) * 1000, private=True))
        assert len(set((tmp_path / "note.json").read_text())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["note.json"]


def test_a_folder_that_is_not_there_is_told_by_the_name_that_was_given(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        write_text(tmp_path / "nowhere" / "note.json", "x")
    assert raised.value.filename == str(tmp_path / "nowhere" / "note.json")


def test_a_folder_that_many_make_at_once_is_one_of_theirs(tmp_path):
    def make(number):
        with suppress(OSError), replacing_folder(tmp_path / "model") as folder:
            for name in "ab":
                (folder / name).write_text(str(number))

    for _ in range(20):
        at_once(make, 4)
        assert len({file.read_text() for file in (tmp_path / "model").iterdir()}) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("before", ["file", "link"])
def test_a_folder_takes_the_place_of_whatever_was_there(tmp_path, before):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "kept").touch()
    if before == "file":
        (tmp_path / "model").write_text("x")
    else:
        (tmp_path / "model").symlink_to(tmp_path / "far")
    with replacing_folder(tmp_path / "model") as folder:
        (folder / "weights").touch()
    assert not (tmp_path / "model").is_symlink()
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["weights"]
    assert (tmp_path / "far" / "kept").exists()


@pytest.mark.parametrize("names", [("model", "model/weights"), ("model/weights", "model")])
def test_an_archive_with_a_file_and_a_folder_of_one_name_is_refused(tmp_path, names):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))
    with pytest.raises(UsageError, match="a file and a folder of one name"):
        unpack_tar(tmp_path / "a.tar", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_archive_is_not_unpacked_over_a_folder_that_is_there(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("model"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(FileExistsError):
        unpack_tar(tmp_path / "a.tar", tmp_path / "out")
    assert (tmp_path / "out" / "mine").exists()


def test_whoever_comes_first_makes_the_one_key(tmp_path):
    for number in range(20):
        data = DataDir(tmp_path / str(number)).create()
        vaults = at_once(lambda _, data=data: Vault(data), 4)
        sealed = vaults[0]._fernet.encrypt(b"secret")
        assert {vault._fernet.decrypt(sealed) for vault in vaults} == {b"secret"}


def test_a_database_url_that_cannot_be_read_is_refused_without_its_password():
    with pytest.raises(UsageError, match=r"postgresql://… cannot be opened.*Give") as refused:
        make_engine("postgresql://me:s3cret@host:po3t/db")
    assert not [word for word in ("s3cret", "po3t") if word in str(refused.value)]


# The store


def test_a_removed_user_comes_in_by_no_door(store):
    with store.write() as session:
        user = users.ensure_user(session, "a@example.org")
        token, row = device_codes.create_device_code(session, "cli")
        row.user_id = user.id
        permit, _ = blobs.create_upload(session, user.id, "datasets/a.jsonl", "application/jsonl", 60.0)
    with store.write() as session:
        users.remove(session, users.by_email(session, "a@example.org"))
    with store.write() as session:
        assert device_codes.poll_device_code(session, token, "cli") == "invalid_grant"
        assert blobs.claim_upload(session, permit) is None


def test_a_tag_is_looked_for_in_all_runs(store):
    with store.write() as session:
        first = make_run(session, name="first")
        first.tags, first.created = ["baseline", "50%"], 1.0
        second = make_run(session, name="second")
        second.tags, second.created = ["Baseline"], 2.0
        for number in range(5):
            make_run(session, name=f"later {number}")
    with store.read() as session:

        def found(tag, **more):
            return [run.name for run in runs.of_owner(session, first.owner_id, tag=tag, **more)]

        assert found("baseline", limit=1) == ["first"]
        assert found("Baseline", limit=1) == ["second"]
        assert found("50%", limit=1) == ["first"]
        assert found("baseline", limit=1, offset=1) == []


@pytest.mark.parametrize("prompt", ["1234", "[1, 2, 3]", '"23"', "12 {"])
def test_a_search_reads_the_prompt_where_the_record_is_gone(store, tmp_path, prompt):
    record = {"id": "a", "example_id": "e", "messages": [{"role": "user", "content": prompt}], "completion_start": 1}
    with store.write() as session:
        run = make_run(session)
        rollouts.index(session, run.id, [rollouts.row_of(record, file="rollouts/gone.jsonl", offset=0, length=9)])
    with store.read() as session:
        found = outline.search(session, tmp_path, run.id, "2", split="eval")
    assert [words for _, words in found.rows] == [prompt]


def test_kept_charts_count_the_addresses_too(store):
    response_cache = ResponseCache(most=20_000)
    with store.write() as session:
        run = make_run(session)
    with store.read() as session:
        for number in range(200):
            url = SimpleNamespace(path="/scalars", query=f"mode=train&x={number:0500d}")
            response_cache.answer(SimpleNamespace(url=url, headers={}), session, run, lambda: b"{}")
    assert len(response_cache._kept) < 40


async def test_a_feed_outlives_a_database_that_has_no_connection_left(store, monkeypatch):
    with store.write() as session:
        run_id = make_run(session).id
    look, errors = Feeds._look, [PoolTimeout("QueuePool limit reached")]

    def tired(self, *asked):
        if errors:
            raise errors.pop()
        return look(self, *asked)

    monkeypatch.setattr(Feeds, "_look", tired)
    feeds = Feeds(store)
    async with aclosing(feeds.follow(run_id, feeds.newest(run_id))) as news:
        waiting = asyncio.ensure_future(anext(news))
        while errors:
            await asyncio.sleep(0.01)
        with store.write() as session:
            events.append(session, run_id, category="diagnostic", kind="later", message="there it is")
        assert b"there it is" in await waiting
    await feeds.aclose()


def test_a_limit_holds_for_many_at_once():
    limiter = Limiter({"key": 1})

    def hit(_):
        try:
            limiter.hit("key", "me")
        except Refused:
            return 0
        return 1

    assert sum(at_once(lambda number: sum(hit(number) for _ in range(50)))) == 1


# Bundles


def test_a_pickle_with_many_values_is_looked_into_quickly():
    count = 60_000
    hostile = b"\x80\x04" + b"N" * count + b"(t" * count + b"."
    before = time.process_time()
    report = inspect_bundle(hostile, BundleMetadata())
    assert time.process_time() - before < 5.0
    assert not report.globals


def test_marks_are_followed_as_the_real_machine_does():
    # A tuple inside a list inside a tuple, then a name that only shows when each mark finds its own values.
    pickled = b"\x80\x04((]((X\x01\x00\x00\x00atet\x8c\x02os\x8c\x06system\x93t."
    assert inspect_bundle(pickled, BundleMetadata()).globals == ["os.system"]


# The runner


def test_a_folder_that_is_no_run_does_not_end_a_reindex(tmp_path):
    data = DataDir(tmp_path).create()
    database = open_database(data)
    with database.write() as session:
        known = make_run(session).id
    database.close()
    for name in (".left", "run_0unknown", known, "zz-left over"):
        (data.runs / name).mkdir()
    app = typer.Typer()
    app.command()(platform_commands.reindex)
    done = CliRunner().invoke(app, ["--data-dir", str(tmp_path)], catch_exceptions=False)
    assert f"Rebuilt {known}" in done.stderr
    assert done.stderr.count("as it is: ") == 3
    with pytest.raises(UsageError, match="There is no run"):
        CliRunner().invoke(app, ["run_0unknown", "--data-dir", str(tmp_path)], catch_exceptions=False)


# Arguments, logs, clients


def test_a_number_beyond_all_numbers_is_a_mistake_like_any_other():
    spec = LaunchArg(name="seed", label="Seed", type="integer", description="", min=0, max=10)
    with pytest.raises(ConfigError, match="seed must be"):
        check_launch_args([spec], {"seed": 10**400})


def test_the_last_lines_are_as_many_as_asked_for(tmp_path):
    log = tmp_path / "server.log"
    log.write_text("".join(f"{number} {'x' * 3000}\n" for number in range(100)))
    found = logs.tail(log, 50).splitlines()
    assert [line.split()[0] for line in found] == [str(number) for number in range(50, 100)]
    assert logs.tail(log, 500).count("\n") == 99


def test_a_job_dropped_by_its_kind_leaves_the_others(store):
    from benchmax.platform.store.queue import jobs

    with store.write() as session:
        run = make_run(session)
        jobs.enqueue(session, run.id)
        jobs.enqueue(session, run.id, kind="eval", eval_id="evl_1")
        assert jobs.drop_queued(session, run.id, kind="train") == 1
        assert {job.kind: job.state for job in session.query(Job)} == {"train": "done", "eval": "queued"}


def test_a_download_keeps_its_suffix_however_long_the_name_of_its_run():
    assert attachment("run" * 100 + "-step-4-merged.tar")["Content-Disposition"].endswith('runrun-step-4-merged.tar"')
    assert attachment("/../a b")["Content-Disposition"] == 'attachment; filename="ab"'
