"""setup.sh runs once for its content; what it made is there in every later run."""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmax.cli.app import app
from benchmax.envs.mcp import PackedWorkdir, ParallelMcpEnv
from benchmax.envs.mcp.provisioners import LocalProvisioner
from benchmax.envs.mcp.setup.inputs import inputs, setup_key
from benchmax.envs.mcp.workdir import read_workdir
from benchmax.errors import EnvDefinitionError
from benchmax.sandbox.inside.landlock import version as landlock_version
from mcp_world import SMALL_SERVER, make_workdir

SERVER = (
    SMALL_SERVER
    + """
from pathlib import Path
server = SmallServer("it")

@server.tool()
def read(path: str) -> str:
    try:
        return (Path(__file__).parent / path).read_text()
    except OSError as error:
        return type(error).__name__

@server.tool()
def imported() -> str:
    import made_package
    return made_package.VALUE

@server.tool()
def place(path: str) -> str:
    return str((Path(__file__).parent / path).resolve())

server.run("stdio")
"""
)
SETUP = """
echo run >> {count}
mkdir -p made/deep && echo made > made/deep/a.txt
mkdir -p package && echo "VALUE = 'installed'" > package/made_package.py
echo "$PWD/package" > "$(python -c 'import site; print(site.getsitepackages()[0])')/it.pth"
echo more >> changed.txt
rm removed.txt
ln -s kept.txt link.txt
"""
REWARDS = "def files(workspace, **kwargs):\n    return 1.0\nreward_functions = {'files': files}\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "mcp-setup"


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    folder = make_workdir(tmp_path / "w", SERVER, rewards=REWARDS)
    (folder / "setup.sh").write_text(SETUP.format(count=tmp_path / "count"))
    for name in ("kept", "changed", "removed"):
        (folder / f"{name}.txt").write_text(f"{name}\n")
    return folder


def runs(workdir: Path) -> int:
    count = workdir.parent / "count"
    return len(count.read_text().splitlines()) if count.exists() else 0


async def asked(workdir: Path | PackedWorkdir, *calls: tuple[str, str], said: list[str] | None = None) -> list[str]:
    """What tools of a fresh environment say."""
    tell = (lambda words: None) if said is None else said.append
    env = ParallelMcpEnv(workdir, LocalProvisioner(workdir, 1, spares=0, on_setup=tell))
    try:
        await env.init_rollout("a")
        return [str(await env.run_tool("a", name, **({"path": path} if path else {}))) for name, path in calls]
    finally:
        await env.shutdown()


LOOK = [("read", f"{name}.txt") for name in ("made/deep/a", "kept", "changed", "removed", "link")] + [("imported", "")]
SEEN = ["made\n", "kept\n", "changed\nmore\n", "FileNotFoundError", "kept\n", "installed"]


async def test_it_runs_once_and_what_it_made_is_there_each_time(workdir: Path) -> None:
    said: list[str] = []
    assert await asked(workdir, *LOOK, said=said) == SEEN
    assert [words.split(" ", 3)[0:2] for words in said] == [["Running", "setup.sh"], ["setup.sh", "is"]]
    (workdir / "server.py").write_text(SERVER.replace("return made_package", "return 'edited ' + made_package"))
    assert await asked(workdir, *LOOK, said=said) == [*SEEN[:-1], "edited installed"]
    assert len(said) == 2, "nothing is said when nothing is run"
    assert runs(workdir) == 1
    assert sorted(each.name for each in workdir.iterdir()) == sorted(
        ["changed.txt", "kept.txt", "mcp_config.yaml", "removed.txt", "reward_fn.py", "server.py", "setup.sh"]
    )


async def test_it_runs_again_when_it_or_what_it_touches_is_another(workdir: Path) -> None:
    await asked(workdir)
    (workdir / "setup.sh").write_text((workdir / "setup.sh").read_text() + "# another word\n")
    await asked(workdir)
    assert runs(workdir) == 2
    (workdir / "changed.txt").write_text("edited\n")
    assert await asked(workdir, ("read", "changed.txt")) == ["edited\nmore\n"]
    assert runs(workdir) == 3


async def test_two_at_once_run_it_once(workdir: Path) -> None:
    assert await asyncio.gather(asked(workdir, *LOOK), asked(workdir, *LOOK)) == [SEEN, SEEN]
    assert runs(workdir) == 1


async def test_it_is_run_again_when_told_to(workdir: Path, home: Path) -> None:
    await asked(workdir)
    (before,) = (each for each in home.iterdir() if each.is_dir())
    done = await asyncio.to_thread(CliRunner().invoke, app, ["mcp", "setup", str(workdir)])
    assert done.exit_code == 0
    assert "again, as requested" in done.stderr
    assert runs(workdir) == 2
    assert await asked(workdir, *LOOK) == SEEN
    assert runs(workdir) == 2
    assert not before.exists(), "what nobody uses any more is removed"


async def test_what_a_running_environment_uses_stays(workdir: Path, home: Path) -> None:
    env = ParallelMcpEnv(workdir, LocalProvisioner(workdir, 2, spares=0))
    try:
        await env.init_rollout("a")
        await asyncio.to_thread(CliRunner().invoke, app, ["mcp", "setup", str(workdir)])
        assert runs(workdir) == 2
        await env.init_rollout("b")
        assert await env.run_tool("b", "imported") == "installed"
        assert len([each for each in home.iterdir() if each.is_dir()]) == 2
    finally:
        await env.shutdown()


async def test_a_setup_that_fails_is_not_kept(workdir: Path, home: Path) -> None:
    script = (workdir / "setup.sh").read_text()
    (workdir / "setup.sh").write_text(script + "test -e allowed.txt\n")
    for _ in range(2):
        with pytest.raises(EnvDefinitionError, match="exit code 1"):
            await asked(workdir)
    assert runs(workdir) == 2
    assert [each for each in home.iterdir() if each.is_dir()] == []


async def test_a_setup_that_leaves_a_program_running_is_run_each_time(workdir: Path) -> None:
    (workdir / "setup.sh").write_text((workdir / "setup.sh").read_text() + "sleep 300 &\n")
    said: list[str] = []
    assert await asked(workdir, *LOOK, said=said) == SEEN
    assert "runs each time" in said[-1]
    assert await asked(workdir, *LOOK) == SEEN
    assert runs(workdir) == 2


async def test_a_home_that_cannot_be_written_costs_only_the_keeping(
    workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path / "file" / "home"))
    assert await asked(workdir, *LOOK) == SEEN
    assert await asked(workdir, *LOOK) == SEEN
    assert runs(workdir) == 2


@pytest.mark.skipif(not landlock_version(), reason="needs landlock")
async def test_what_scores_is_closed_in_the_kept_copy_too(workdir: Path) -> None:
    await asked(workdir)
    (made,) = await asked(workdir, ("place", "made"))
    calls = [("read", os.path.join(os.path.dirname(made), name)) for name in ("reward_fn.py", "setup.sh", "server.py")]
    assert (await asked(workdir, *calls))[:2] == ["PermissionError"] * 2
    assert "SmallServer" in (await asked(workdir, *calls))[2]


async def test_a_workdir_that_was_unpacked_elsewhere_is_known_by_its_content(workdir: Path) -> None:
    for _ in range(2):
        packed = pickle.loads(pickle.dumps(PackedWorkdir(workdir)))
        assert await asked(packed, *LOOK) == SEEN
    assert runs(workdir) == 1


def test_what_is_not_used_for_long_is_removed(workdir: Path, home: Path) -> None:
    asyncio.run(asked(workdir))
    (old,) = (each for each in home.iterdir() if each.is_dir())
    pointer = home / old.name.partition("-")[0]
    month_ago = time.time() - 31 * 86_400
    os.utime(pointer, (month_ago, month_ago))
    (workdir / "setup.sh").write_text("true\n")
    asyncio.run(asked(workdir))
    assert not old.exists()
    assert not pointer.exists()


# What it depends on, without running it


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("pip install -r wants/these.txt", {"wants/these.txt"}),
        ("pip install './lib'", {"lib"}),
        ("pip install .", {"."}),
        ("# inputs: data/*.csv", {"data/a.csv", "data/b.csv"}),
        ("npm ci", set()),
        ("cat /etc/hostname ../outside", set()),
    ],
)
def test_the_files_that_a_script_names(tmp_path: Path, line: str, named: set[str]) -> None:
    folder = tmp_path / "w"
    for name in ("wants/these.txt", "lib/it.py", "data/a.csv", "data/b.csv", "package.json", "server.js"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (tmp_path / "outside").write_text("x")
    found = {os.path.relpath(each, folder) for each in inputs(folder, line)}
    assert found == {*named, "package.json"}


def test_the_key_follows_content_and_variables_and_not_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_workdir(tmp_path / "w")
    (folder / "setup.sh").write_text("pip install $WANTED ./lib\n")
    (folder / "lib").mkdir()
    (folder / "lib" / "a.py").write_text("1")
    monkeypatch.setenv("WANTED", "one")
    keys = [setup_key(read_workdir(folder), "here")]
    (folder / "server.py").write_text("# another")
    assert setup_key(read_workdir(folder), "here") == keys[0]
    (folder / "lib" / "a.py").write_text("2")
    keys.append(setup_key(read_workdir(folder), "here"))
    monkeypatch.setenv("WANTED", "two")
    keys.append(setup_key(read_workdir(folder), "here"))
    keys.append(setup_key(read_workdir(folder), "there"))
    assert len(set(keys)) == 4


def test_an_input_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(EnvDefinitionError, match=r"declares the input 'no/\*\.csv'.*`# inputs:`"):
        inputs(tmp_path, "# inputs: no/*.csv\n")
