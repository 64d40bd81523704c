"""The code environment as a user meets it: by hand, a hundred at once, sandboxed itself, and rows of others."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys

import pytest

from benchmax import EnvHost, RolloutSettings, ScriptedModel, load_examples, run_batch
from benchmax.envs.code.code_env import CodeEnv
from benchmax.envs.loading import find_rows
from benchmax.envs.remote import Confinement, open_remote_env
from benchmax.envs.types import Unscored
from benchmax.errors import UsageError
from code_world import block, examples_of, played, rewarded, solver

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


async def test_a_hundred_rollouts_at_once_each_get_their_own_tests():
    examples = examples_of("cases", 100)
    rollouts = await played(examples, solver(examples))
    assert [each.reward for each in rollouts] == [1.0] * 100


async def by_hand() -> None:
    env = CodeEnv(tools=True)
    rows, _ = CodeEnv.load_dataset(rows=1)
    example = env.dataset_preprocess(rows[0])
    assert [tool.name for tool in await env.list_tools()] == ["run_python"]
    await env.init_rollout("one", **example["init_rollout_args"])
    solution = example["task"]["solution"]
    assert "right" in await env.run_tool("one", "run_python", code=solution)
    assert "ZeroDivisionError" in await env.run_tool("one", "run_python", code="1 / 0")
    assert (await env.run_tool("one", "run_python")).startswith("Error:")
    assert (await env.run_tool("one", "rm")).startswith("Error:")
    messages = [{"role": "assistant", "content": block(solution)}]
    assert await env.compute_reward("one", messages, example["task"]) == {"tests": 1.0}
    await env.release_rollout("one")
    await env.shutdown()


async def test_by_hand_in_a_running_loop():
    await by_hand()


def test_by_hand_in_one_loop_after_another():
    """As in a script: the environment outlives each loop, and can be used again when it was shut down."""
    env = CodeEnv()
    [example] = examples_of("lines", 1)
    for _ in range(2):
        for _ in range(2):
            assert asyncio.run(rewarded(env, example, example["task"]["solution"])) == 1.0
        asyncio.run(env.shutdown())


# In a sandbox itself


async def answered(rows, *answers: str) -> list[float | None]:
    examples = list(load_examples(rows, CodeEnv))
    async with EnvHost(await open_remote_env("code", sandbox=Confinement())) as host:
        by_question = dict(zip((each["prompt_messages"][-1]["content"] for each in examples), answers, strict=True))
        model = ScriptedModel(lambda messages: by_question[messages[-1]["content"]])
        rollouts = await run_batch(host, examples, model, RolloutSettings())
    assert [rollout.error for rollout in rollouts if rollout.error] == []
    return [rollout.reward for rollout in rollouts]


THEFT = """
import glob, os, signal
FIRST, SECOND = b'kumquat-84', b'-zephyr'
def pieces():
    for path in [*('/proc/%d/mem' % n for n in range(1, 400) if n != os.getpid()),
                 *glob.glob('/workspace/**', recursive=True), *glob.glob('/tmp/**', recursive=True)]:
        try:
            with open(path, 'rb', 0) as file:
                yield FIRST + SECOND if path.startswith('/proc') else file.read(1 << 24)
        except OSError: pass
def f():
    for pid in range(1, 400):
        if pid != os.getpid():
            try: os.kill(pid, signal.SIGKILL)
            except OSError: pass
    return any(FIRST + SECOND in piece for piece in pieces())
"""


async def test_within_a_sandbox_solutions_are_held_too():
    """There it has no namespaces, and still neither memory nor files nor signals of the environment."""
    asserts = ["assert f() != 'x'", "assert f() == 'kumquat-84-zephyr'", "assert f() is False", "assert f() is False"]
    theft = {"text": "Steal.", "test_list": asserts}
    good = {"prompt": "Double.", "entry_point": "f", "tests": [{"args": [n], "expected": 2 * n} for n in range(1, 9)]}
    rewards = await answered([good, theft], block("def f(x): return x * 2"), block(THEFT))
    assert rewards == [1.0, pytest.approx(0.2 * 2 / 3)]


@pytest.mark.skipif(
    not shutil.which("unshare") or os.geteuid() != 0, reason="takes a user namespace to make a poor one"
)
@pytest.mark.parametrize("insist", ["", "1"])
def test_a_machine_without_a_sandbox_is_told_in_one_line_unless_the_user_insists(insist, tmp_path):
    command = ["unshare", "-Ur", sys.executable, "-m", "benchmax", "eval", "code", "-n", "2", "--json"]
    variables = {**os.environ, "BENCHMAX_SANDBOX_INSIST": insist}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=variables, cwd=tmp_path, check=False
    )
    if insist:
        assert json.loads(done.stdout)["report"]["reward"]["mean"] == 1.0
        return
    assert done.returncode != 0
    assert done.stderr.count("cannot confine") == 1
    assert "BENCHMAX_SANDBOX_INSIST=1" in done.stderr
    assert "Traceback" not in done.stderr


# Rows of others

HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": "from typing import List\n\n\ndef helper(x):\n    return x\n\n\n"
    "def near(xs: List[float], d: float) -> bool:\n"
    '    """ Whether two of xs are closer than d.\n    >>> near([1.0, 2.0], 0.5)\n    False\n    """\n',
    "entry_point": "near",
    "canonical_solution": "    return any(abs(a - b) < d for n, a in enumerate(xs) for b in xs[:n])\n",
    "test": "METADATA = {'author': 'x'}\n\n\ndef check(candidate):\n    assert True, 'free'\n"
    "    assert candidate([1.0, 2.0, 2.1], 0.3) == True\n    assert candidate([1.0, 2.0], 0.5) == False\n"
    "    assert all(map(lambda d: candidate([1.0, 1.4], d) == (helper(d) > 0.4), [0.1, 0.5]))\n",
}
MBPP = {
    "task_id": 2,
    "text": "Write a function to find the shared elements of two tuples.",
    "code": "def helper(a): return set(a)\ndef shared(a, b):\n    return tuple(helper(a) & set(b))",
    "test_list": [
        "assert set(shared((3, 4, 5), (4, 5, 6))) == set((4, 5))",
        "assert set(shared((1, 2), (2, 3))) == {2}",
        "assert math.isclose(len(shared([1], [2])), 0)",
    ],
    "test_setup_code": "import math",
    "challenge_test_list": ["assert sorted(shared((9, 8), (8, 9))) == [8, 9]"],
}


@pytest.mark.parametrize(
    ("row", "code", "worth"),
    [
        (HUMANEVAL, None, 1.0),
        (HUMANEVAL, "    return any(abs(a - b) < d for n, a in enumerate(xs) for b in xs[:n])", 1.0),
        (HUMANEVAL, "return any(abs(a - b) < d for n, a in enumerate(xs) for b in xs[:n])", 1.0),
        (
            HUMANEVAL,
            "def near(xs: List[float], d): return any(abs(a - b) < d for a in xs for b in xs if a is not b)",
            1.0,
        ),
        (HUMANEVAL, "def near(xs, d): return True", 0.2 / 3),
        (HUMANEVAL, "def near(xs, d): raise StopIteration", 0.0),
        (HUMANEVAL, "def near(xs, d): raise SystemExit", 0.0),
        (MBPP, None, 1.0),
        (MBPP, "def shared(a, b): return [x for x in a if x in b]", 1.0),
        (MBPP, "def shared(a, b): return ()", 0.2 / 3),
        (MBPP, "def other(a, b): return ()", 0.0),
    ],
)
async def test_rows_in_their_published_shape_load_and_score(row, code, worth):
    env, example = CodeEnv(), CodeEnv.dataset_preprocess(row)
    answer = example["task"]["solution"] if code is None else code
    assert await rewarded(env, example, answer) == pytest.approx(worth)
    await env.shutdown()


def test_of_asserts_the_first_is_shown_and_the_others_are_hidden():
    example = CodeEnv.dataset_preprocess(MBPP)
    shown = example["prompt_messages"][-1]["content"]
    assert MBPP["test_list"][0] in shown
    assert "shared" in shown
    assert MBPP["test_list"][0] not in example["task"]["asserts"]
    assert all(each not in shown for each in MBPP["test_list"][1:])


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ("assert f(Pair(1, 2)) == 3", "Pair"),
        ("assert f(lambda x: x) == 3", "no plain data"),
        ("import no_such_package\nassert f(1) == 1", "no_such_package"),
    ],
)
async def test_tests_that_fit_no_solution_are_unscored(tests, why):
    row = {"prompt": "def f(x):\n", "entry_point": "f", "test": tests}
    env, example = CodeEnv(), CodeEnv.dataset_preprocess(row)
    reward = await rewarded(env, example, "def f(x): return 3")
    assert isinstance(reward, Unscored)
    assert why in reward.reason
    await env.shutdown()


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"prompt": "Write f.", "entry_point": "f"}, "no tests"),
        ({"prompt": "Write f.", "entry_point": "f", "test": "print(1)"}, "no tests"),
        ({"prompt": "Write f.", "tests": [{"args": [1], "expected": 2}]}, "entry_point"),
        ({"prompt": "Write f.", "entry_point": "f x", "tests": [{"args": [1]}]}, "no name"),
        ({"prompt": "Write f.", "entry_point": "f", "tests": "[1]"}, "no cases"),
        ({"prompt": "Write f.", "entry_point": "f", "tests": [{"args": "ab", "expected": 2}]}, "no cases"),
        ({"entry_point": "f", "tests": [{"args": [1]}]}, "question"),
    ],
)
def test_rows_that_cannot_be_used_say_what_to_do(row, why):
    with pytest.raises(UsageError, match=why):
        CodeEnv.dataset_preprocess(row)


async def test_rows_of_a_file_are_played(tmp_path):
    case = {"args": [[1, 2], {"a": None}], "expected": [None, 1.5, {"b": [True]}]}
    other = {"args": [[3], {}], "expected": 7}
    row = {"prompt": "Write f.", "entry_point": "f", "tests": [case, other], "solution": "def f(x, y): return 7"}
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, [row, MBPP, HUMANEVAL])))
    rows = find_rows(CodeEnv, str(tmp_path / "rows.jsonl"))
    examples = list(load_examples(rows, CodeEnv))
    rollouts = await played(examples, solver(examples))
    assert [each.reward for each in rollouts] == [0.0, 1.0, 1.0]
    env = CodeEnv()
    right = "def f(x, y): return (None, 1.5000000000001, {'b': (True,)}) if x == [1, 2] else 7.0"
    assert await rewarded(env, examples[0], right) == 1.0
    assert await rewarded(env, examples[0], right.replace("True", "1")) < 0.2
    await env.shutdown()


def test_hub_sets_have_short_names(monkeypatch):
    fetched = []
    monkeypatch.setattr("datasets.load_dataset", lambda *given, **named: fetched.append((given, named)) or [])
    find_rows(CodeEnv, "humaneval")
    CodeEnv.load_dataset("mbpp", split="test")
    CodeEnv.load_dataset("owner/name", split="train")
    assert fetched == [
        (("openai/openai_humaneval",), {"split": "test"}),
        (("google-research-datasets/mbpp",), {"name": "full", "split": "test"}),
        (("owner/name",), {"split": "train"}),
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\ndef f(): pass\n```", "def f(): pass\n"),
        ("Well:\n```\ndef f(): pass\n```\nUse it:\n```python\nprint(f())\n```", "def f(): pass\n"),
        ("```py\ndef f(): 1\n```\nno:\n```py\ndef f(): 2\n```", "def f(): 2\n"),
        ("<answer>def f(): pass</answer>", "def f(): pass"),
        ("```python\ndef f(): pass", None),
        ("def f(): pass", None),
        ("```` \n```\ndef f(): pass\n````", "```\ndef f(): pass\n"),
        ("  ~~~\n  f = max\n  ~~~", "  f = max\n"),
        ("", None),
        ("```" + " " * 49_000 + "`", None),
        ("`" * 60_000, None),
    ],
)
def test_the_code_of_an_answer(text, code):
    from benchmax.envs.code.answers import final_code

    assert final_code([{"role": "assistant", "content": text}], "f") == code
