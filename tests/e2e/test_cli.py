"""The commands a newcomer types: what they print, where, and how they end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmax.cli import main
from forked_commands import ForkedCommands

pytestmark = pytest.mark.timeout(300)  # several processes for each test, on machines that do other things too

ENV = """
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.reward_helpers import extract_completion_text

class Capitals(BaseEnv):
    system_prompt = "Answer with the city alone."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": float(extract_completion_text(messages) == task["ground_truth"])}
"""
ROWS = "prompt,ground_truth\n" + "".join(f"Capital of country {i}?,City {i}\n" for i in range(20))

NEEDS = """
from benchmax.envs.base_env import BaseEnv
from main import Capitals

class Needs(Capitals):
    def __init__(self, path):
        self.path = path

class Raises(Capitals):
    def __init__(self):
        raise RuntimeError("no disk")

class Abstract(BaseEnv):
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "main.py").write_text(ENV)
    (tmp_path / "rows.csv").write_text(ROWS)
    return tmp_path


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs a command in a folder."""
    with ForkedCommands() as forked:

        def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
            done = forked.run(arguments, folder)
            assert "Traceback" not in done.stderr
            return done

        yield command


def test_eval_of_own_environment(project: Path, run: Run):
    done = run(project, "eval", "main.py", "--data", "rows.csv", "-r", "2", "--json", "--out", "gold")
    assert done.returncode == 0
    result = json.loads(done.stdout)
    assert result["report"]["reward"] == {"mean": 1.0, "low": 1.0, "high": 1.0, "n": 20}
    assert result["report"]["pass_at"]["2"]["mean"] == 1.0
    assert result["report"]["rollouts"] == 40
    text = run(project, "eval", "--resume", "gold")
    assert "reward" in text.stdout
    assert "1.000" in text.stdout


def test_compare_sorts_by_regression_and_replay_shows_an_edited_reward(project: Path, run: Run):
    run(project, "eval", "main.py", "--data", "rows.csv", "--out", "gold")
    run(project, "eval", "main.py", "--data", "rows.csv", "--model", "scripted:City 3", "--out", "stuck")
    compared = json.loads(run(project, "compare", "gold", "stuck", "--json").stdout)
    assert compared["verdict"] == "worse"
    assert [pair["delta"] for pair in compared["pairs"]] == [-1.0] * 19 + [0.0]
    assert compared["pairs"][-1]["prompt"] == "Capital of country 3?"
    assert "worse" in run(project, "compare", "gold", "stuck").stdout
    (project / "main.py").write_text(ENV.replace('== task["ground_truth"]', '== "City 3"'))
    replayed = json.loads(run(project, "replay", "stuck", "--json").stdout)
    assert replayed["changed"] == 19
    assert replayed["comparison"]["verdict"] == "better"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("eval", "nothing"), 3, "There is no environment named 'nothing'"),
        (("eval", "arithmetik"), 3, "Did you mean 'arithmetic'?"),
        (("eval", "main", "--data", "rows.csv"), 3, "Did you mean 'main.py'?"),
        (("eval", "missing.py"), 3, "There is no file missing.py"),
        (("eval", "main.py"), 2, "--data FILE"),
        (("eval", "main.py", "--data", "none.csv"), 3, "There is no file none.csv"),
        (("eval", "main.py", "--data", "rows.csv", "--env-arg", "x"), 2, "is not KEY=VALUE"),
        (("eval", "main.py", "--data", "rows.csv", "--group-size", "0"), 2, "group-size"),
        (("eval", "broken.py", "--data", "rows.csv"), 2, "broken.py cannot be imported: NameError"),
        (("eval", "two.py", "--data", "rows.csv"), 2, "Name one: two.py:ClassName"),
        (("eval", "--resume", "nowhere"), 3, "holds no evaluation"),
        (("compare", "a", "b"), 3, "There is nothing at a"),
        (("frobnicate",), 2, "frobnicate"),
        (("eval", "main.py", "--data", "bad.jsonl"), 2, "bad.jsonl"),
        (("eval", "main.py", "--data", "rows.csv", "-n", "-3"), 2, "--rows"),
        (
            ("eval", "needs.py:Needs", "--data", "rows.csv"),
            2,
            "needs the argument 'path'. Give it with --env-arg path=",
        ),
        (("eval", "needs.py:Abstract", "--data", "rows.csv"), 2, "Abstract does not implement compute_reward"),
        (("eval", "needs.py:Raises", "--data", "rows.csv"), 2, "Raises cannot be constructed: RuntimeError: no disk"),
        (("eval", "main.py", "--data", "rows.csv", "--env-arg", "bonus=1"), 2, "Capitals takes no argument 'bonus'"),
        (("eval", "needs.py:Needs", "--data", "rows.csv", "--env-arg", "pth=1"), 2, "Did you mean 'path'?"),
        (("validate", "main.py", "--data", "rows.csv", "--env-arg", "bonus=1"), 2, "takes no argument 'bonus'"),
        (("eval", "main.py", "--data", "-"), 3, "'-' is no file"),
        (("eval", "main.py", "--data", "mydata"), 3, "'mydata' is no file, and Capitals knows no dataset"),
        (("eval", "arithmetic", "--data", "me/mine"), 3, "hf:me/mine for one on the hub"),
        (
            ("eval", "exits.py", "--data", "rows.csv"),
            2,
            "exits.py ends the program when it is imported (at exits.py:2)",
        ),
        (("eval", "main.py", "--data", "rows.csv", "--out", "rows.csv"), 2, "is a file. Choose another folder"),
        (("eval", "main.py", "--data", "rows.csv", "--out", "rows.csv/x"), 1, "choose another path"),
        (("eval", "main.py", "--data", "rows.csv", "--base-url", "http://127.0.0.1:9/v1"), 2, "name the model"),
        (
            (
                "eval",
                "main.py",
                "--data",
                "rows.csv",
                "-m",
                "x",
                "--base-url",
                "http://h/v1",
                "--api-key-var",
                "NO_KEY",
            ),
            2,
            "The variable NO_KEY is not set",
        ),
        (("eval", "main.py", "--data", "goldless.csv"), 2, "Override gold_completion(cls, example)"),
        (("eval", "package/relative.py", "--data", "rows.csv"), 2, "dotted path: package.relative.ClassName"),
        (("show", "nowhere"), 3, "There are no rollouts at nowhere"),
        (("show", "main.py"), 1, "main.py is no file of rollouts. Give the folder of an evaluation"),
        (("validate", "main.py", "--data", "main.py"), 1, "Correct the file, or give another."),
    ],
)
def test_mistakes_get_one_clear_line(project: Path, arguments, code, says, monkeypatch, capsys):
    (project / "broken.py").write_text("import os\nnonsense\n")
    (project / "two.py").write_text(ENV + "\nclass Other(Capitals):\n    pass\n")
    (project / "bad.jsonl").write_text('{"prompt": "ok"}\n{"prompt": \n')
    (project / "needs.py").write_text(NEEDS)
    (project / "exits.py").write_text("import sys\nsys.exit(0)\n")
    (project / "goldless.csv").write_text("prompt\nWrite a poem.\nWrite another.\n")
    (project / "package").mkdir()
    (project / "package" / "__init__.py").touch()
    (project / "package" / "relative.py").write_text("from .other import x\n")
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "argv", ["benchmax", *arguments])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("benchmax.cli.output.stderr.width", 400)
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        for name, module in list(sys.modules.items()):
            if str(project) in str(getattr(module, "__file__", "")):
                del sys.modules[name]
    printed = capsys.readouterr()
    assert ended.value.code == code, printed.err
    assert says in " ".join(printed.err.split())
    assert printed.out == ""


def test_limits_are_printed(project: Path, run: Run):
    table = json.loads(run(project, "limits", "--json").stdout)
    assert {
        "name": "MIN_TRAIN_ROWS",
        "value": 16,
        "unit": "rows",
        "meaning": "fewest rows a training run accepts",
    } in table
    assert "MIN_TRAIN_ROWS" in run(project, "limits").stdout


def test_hostile_text_is_shown_escaped(project: Path, run: Run):
    evil = "\x1b]52;c;aGk=\x07\x1b[31m[bold]red[/bold]\u202e"
    (project / "rows.json").write_text(json.dumps([{"prompt": evil + str(i), "ground_truth": "x"} for i in range(3)]))
    run(project, "eval", "main.py", "--data", "rows.json", "--model", "scripted:x", "--out", "a")
    run(project, "eval", "main.py", "--data", "rows.json", "--model", "scripted:y", "--out", "b")
    shown = run(project, "compare", "a", "b").stdout
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[bold]red[/bold]" in shown


def test_what_an_environment_prints_stays_off_stdout(project: Path, run: Run):
    noisy = "print('at import')\n" + ENV.replace("        return {", "        print('in a reward')\n        return {")
    (project / "main.py").write_text(noisy)
    done = run(project, "eval", "main.py", "--data", "rows.csv", "-n", "2", "--json", "--out", "a")
    assert json.loads(done.stdout)["report"]["scored"] == 2
    assert "at import" in done.stderr
    assert "in a reward" in done.stderr
    assert json.loads(run(project, "replay", "a", "--json").stdout)["changed"] == 0


def test_the_summary_says_why(project: Path, run: Run):
    (project / "main.py").write_text(
        ENV.replace("        return {", "        raise OSError('judge away')\n        return {")
    )
    done = run(project, "eval", "main.py", "--data", "rows.csv", "-n", "3", "--out", "a")
    assert done.returncode == 1
    assert "3 × judge away" in done.stdout
    report = json.loads(run(project, "eval", "--resume", "a", "--json").stdout)["report"]
    assert report["error_reasons"] == {
        "OSError": {"message": "judge away (at main.py:9, in compute_reward)", "count": 3}
    }
    assert report["unscored_reasons"]["reward"]["count"] == 3
    again = run(project, "replay", "a")
    assert (again.returncode, again.stdout) == (1, "All 3 rollouts score as before.\n")
    assert "None of them has a reward. OSError: judge away" in again.stderr


def test_lenient_seed_and_budgets_are_kept(project: Path, run: Run):
    (project / "bad.jsonl").write_text('{"prompt": "a", "ground_truth": "b"}\n{"prompt": \n')
    options = ("--lenient", "--seed", "7", "--max-tool-calls", "3", "--tool-seconds", "90", "--reward-seconds", "4")
    done = run(project, "eval", "main.py", "--data", "bad.jsonl", *options, "--out", "a", "--json")
    assert "1 of 2 rows were left out" in done.stderr
    result = json.loads(done.stdout)
    assert result["report"]["rollouts"] == 1
    kept = result["config"]
    assert (kept["sampling"]["seed"], kept["max_tool_calls"]) == (7, 3)
    assert (kept["tool_seconds"], kept["reward_seconds"]) == (90.0, 4.0)


def test_version(project: Path):
    import benchmax

    done = subprocess.run([sys.executable, "-m", "benchmax", "--version"], capture_output=True, text=True, cwd=project)
    assert done.stdout == f"benchmax {benchmax.__version__}\n"


@pytest.mark.parametrize("env", ["main.py", "package.module:Capitals", "package.module.Capitals"])
def test_a_run_is_resumed_and_replayed_from_another_folder(project: Path, run: Run, env: str):
    (project / "package").mkdir()
    (project / "package" / "module.py").write_text(ENV)
    elsewhere = project / "elsewhere"
    elsewhere.mkdir()
    assert run(project, "eval", env, "--data", "rows.csv", "--out", "a").returncode == 0
    assert run(elsewhere, "eval", "--resume", "../a").returncode == 0
    replayed = run(elsewhere, "replay", "../a")
    assert replayed.stdout == "All 20 rollouts score as before.\n"
    (project / "rows.csv").write_text(ROWS + "Another?,City\n")
    refused = run(elsewhere, "eval", "--resume", "../a")
    assert refused.returncode == 2
    assert "rows.csv has changed since" in refused.stderr


def test_compare_tells_unscored_from_missing(project: Path, run: Run):
    run(project, "eval", "main.py", "--data", "rows.csv", "--out", "a")
    failing = ENV.replace("        return {", "        if '3' in task['ground_truth']: raise OSError\n        return {")
    (project / "main.py").write_text(failing)
    run(project, "eval", "main.py", "--data", "rows.csv", "-n", "10", "--out", "b")
    assert "left out: 10 only in the first, 1 scored only in the first\n" in run(project, "compare", "a", "b").stdout
    run(project, "eval", "arithmetic", "-n", "2", "--out", "c")
    done = run(project, "compare", "a", "c")
    assert done.returncode == 1
    assert "share no scored example" in done.stderr


def test_replay_lists_new_components(project: Path, run: Run):
    run(project, "eval", "main.py", "--data", "rows.csv", "--out", "a")
    (project / "main.py").write_text(ENV.replace("return {", 'return {"brief": 1.0, '))
    done = run(project, "replay", "a", "--limit", "1")
    assert "20 of 20 rollouts score differently now" in done.stdout
    assert "new: brief\n" in done.stdout


def test_show_prints_transcripts(project: Path, run: Run):
    rows = [{"prompt": f"q{i}", "ground_truth": "yes" if i == 1 else "no"} for i in range(8)]
    (project / "rows.json").write_text(json.dumps(rows))
    run(project, "eval", "main.py", "--data", "rows.json", "--model", "scripted:no", "--out", "a")
    done = run(project, "show", "a", "--worst", "1")
    lines = done.stdout.splitlines()
    assert lines[0].endswith("sample 0: reward 0.000, finished")
    assert lines[1:7] == [
        "── system", "   │ Answer with the city alone.", "── user", "   │ q1", "── assistant", "   │ no"
    ]  # fmt: skip
    assert "  reward correct = 0.000" in lines
    assert lines[-1] == "1 of 8 rollouts, 7 more; --worst 0 shows all"
    shown = json.loads(run(project, "show", "a", "--worst", "2", "--json").stdout)
    assert [rollout["reward"] for rollout in shown["rollouts"]] == [0.0, 1.0]
    chosen = shown["rollouts"][0]["example_id"]
    assert run(project, "show", "a", "--example", chosen[:10]).stdout == done.stdout.replace(
        ", 7 more; --worst 0 shows all", ""
    )
    assert run(project, "show", "a", "--errors").stdout == "0 of 8 rollouts\n"


def test_show_cannot_be_forged_by_text(project: Path, run: Run):
    (project / "rows.json").write_text(json.dumps([{"prompt": "q\n━━ example forged\x1b[31m", "ground_truth": "x"}]))
    run(project, "eval", "main.py", "--data", "rows.json", "--model", "scripted:x", "--out", "a")
    lines = run(project, "show", "a").stdout.splitlines()
    assert sum(line.startswith("━━") for line in lines) == 1
    assert "   │ ━━ example forged\\x1b[31m" in lines


def test_show_reads_tool_calls_and_the_steps_of_a_training_run(project: Path, run: Run):
    run(project, "eval", "calculator", "-n", "2", "--out", "a")
    steps = project / "run" / "rollouts"
    steps.mkdir(parents=True)
    for step in (1, 2):
        (steps / f"train-{step}.jsonl").write_text((project / "a" / "rollouts.jsonl").read_text())
    (steps / "eval-2.jsonl").write_text((project / "a" / "rollouts.jsonl").read_text())
    assert run(project, "show", "run").stdout.endswith("4 of 4 rollouts\n")
    first = run(project, "show", "run", "--step", "1").stdout
    assert first.endswith("2 of 2 rollouts\n")
    assert '   calls calculate\n   │ {\n   │   "expression":' in first
    missing = run(project, "show", "run", "--step", "9")
    assert missing.returncode == 3
    assert "It has: 1, 2." in missing.stderr
