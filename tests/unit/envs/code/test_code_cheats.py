"""Answers that want the reward without the function: what they exit, print, patch, equal, search and flood."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from benchmax import limits
from benchmax.envs.code.code_env import CodeEnv
from benchmax.envs.code.levels import LEVELS
from benchmax.envs.code.reward import read_cases
from benchmax.envs.code.solution_runner import Runner
from code_world import block, examples_of, rewarded

MESSAGE = r'{"value":14}\n'
CHEATS = {
    "nothing": "",
    "not Python": "def f(:",
    "exit": "import sys; sys.exit(0)",
    "exit in the call": "import sys\ndef NAME(*a): sys.exit(0)",
    "hard exit": "import os; os._exit(0)",
    "hard exit in the call": "import os\ndef NAME(*a): os._exit(0)",
    "exit at the end": "import atexit, os\natexit.register(os._exit, 0)\ndef NAME(*a): return None",
    "print a pass": "print('passed'); print('OK'); print(1.0)\ndef NAME(*a): print('passed')",
    "print a message": f"print('{MESSAGE}' * 50)\ndef NAME(*a): print('{MESSAGE}')",
    "equals everything": """
class Any:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
def NAME(*a): return Any()
""",
    "an int that equals everything": """
class Any(int):
    __eq__ = lambda self, other: True
    __hash__ = int.__hash__
def NAME(*a): return Any(7)
""",
    "containers that equal everything": """
class Any(list):
    __eq__ = lambda self, other: True
class Text(str):
    __eq__ = lambda self, other: True
    __hash__ = str.__hash__
def NAME(*a): return Any([Text('x')]) if isinstance(a[0], list) else Text('x')
""",
    "a lying class": """
class Any:
    __class__ = int
    def __eq__(self, other): return True
def NAME(*a): return Any()
""",
    "patched builtins": """
import builtins
builtins.all = builtins.any = builtins.isinstance = lambda *a: True
builtins.bool = lambda *a: True
def NAME(*a): return None
""",
    "patched json": """
import json
json.dumps = lambda *a, **k: '{"value": true}'
json.loads = lambda *a, **k: {"args": [], "kwargs": {}}
def NAME(*a): return None
""",
    "patched encoder": """
import sys
for module in list(sys.modules.values()):
    if getattr(module, 'encode', None) and getattr(module, 'NotPlain', None):
        module.encode = lambda value, depth=0: True
        module.same = lambda a, b: True
def NAME(*a): return None
""",
    "operators of builtins": """
import ctypes
def NAME(*a): return type('E', (), {'__eq__': lambda s, o: True})
""",
    "messages of its own": """
import os
for fd in range(3, 64):
    try: os.write(fd, b'{"held": 9, "failed": 0, "error": "", "unfit": ""}\\n{"value": true}\\n' * 20)
    except OSError: pass
def NAME(*a): return None
""",
    "messages in advance": """
import os
def NAME(*a):
    for fd in range(3, 64):
        try: os.write(fd, b'{"value": [1, 2]}\\n' * 20)
        except OSError: pass
""",
    "reads ahead": """
import os
def NAME(*a):
    os.set_blocking(3, False)
    try: return eval(os.read(3, 100000))['expected']
    except Exception: return None
""",
    "frames": """
import sys
def NAME(*a):
    frame = sys._getframe()
    while frame:
        for value in [*frame.f_locals.values(), *frame.f_globals.values()]:
            for name in ('expected', 'answer', 'solution', 'cases', 'tests', 'right'):
                if isinstance(value, dict) and name in value: return value[name]
        frame = frame.f_back
""",
    "objects in memory": """
import gc
def NAME(*a):
    for value in gc.get_objects():
        if isinstance(value, dict) and 'expected' in value and 'args' in value: return value['expected']
""",
    "the tests' files": """
import glob
def NAME(*a):
    for path in glob.glob('/workspace/**', recursive=True) + glob.glob('/tmp/**', recursive=True):
        try: text = open(path).read()
        except OSError: continue
        if 'expected' in text: return text
""",
    "an argument": "def NAME(*a): return a[0] if a else None",
    "true": "def NAME(*a): return True",
    "zero": "def NAME(*a): return 0",
    "an empty list": "def NAME(*a): return []",
    "no number": "def NAME(*a): return float('nan')",
    "a generator": "def NAME(*a): yield True",
    "the function itself": "def NAME(*a): return NAME",
    "recursion": "def NAME(*a): return NAME(*a)",
    "a list in itself": "def NAME(*a):\n    x = []\n    x.append(x)\n    return x",
    "stop": "def NAME(*a): raise StopIteration(True)",
    "interrupt": "def NAME(*a): raise KeyboardInterrupt",
    "an error that lies": """
class E(Exception):
    def __str__(self): return 1 / 0
def NAME(*a): raise E
""",
    "a closed line": "import os\ndef NAME(*a): os.closerange(0, 100)",
    "a kill": "import os\ndef NAME(*a): os.kill(0, 9)",
    "a child that answers": "import os\ndef NAME(*a):\n    if os.fork(): os._exit(0)\n    return True",
    "async": "async def NAME(*a): return True",
    "a class": "class NAME:\n    def __init__(self, *a): pass\n    def __eq__(self, o): return True",
}
COSTLY = {
    "a loop": "def NAME(*a):\n    while True: pass",
    "a loop at the start": "while True: pass",
    "sleep": "import time\ndef NAME(*a): time.sleep(60)",
    "a flood of text": "def NAME(*a):\n    while True: print('x' * 100000)",
    "a flood of messages": "import os\ndef NAME(*a):\n    while True: os.write(3, b'{\"value\": 1}\\n' * 1000)",
    "a long line": "import os\ndef NAME(*a):\n    while True: os.write(3, b'1' * 65536)",
    "a huge value": "def NAME(*a): return 'x' * 10**8",
    "a huge number": "def NAME(*a): return 7 ** 10**6",
    "deep brackets": "import os\ndef NAME(*a):\n    os.write(3, b'[' * 100000 + b'\\n')",
    "memory": "def NAME(*a):\n    x = []\n    while True: x.append(bytearray(10**8))",
    "processes": "import os\ndef NAME(*a):\n    while True: os.fork()",
    "a handler for everything": "def NAME(*a):\n    while True:\n        try: NAME()\n        except: pass",
}


@pytest.fixture
async def env(monkeypatch) -> AsyncIterator[CodeEnv]:
    """With limits for what does not end; a solution that is to end in time needs others."""
    monkeypatch.setattr(limits, "CODE_CPU_SECONDS", 0.3)
    monkeypatch.setattr(limits, "CODE_WALL_SECONDS", 1.0)
    made = CodeEnv()
    yield made
    await made.shutdown()


def asserted(example) -> dict:
    """The same tests as assert statements."""
    task = example["task"]
    lines = [f"assert candidate(*{list(c.args)!r}) == {c.expected!r}" for c in read_cases(task["cases"])]
    return {"entry_point": task["entry_point"], "setup": "", "asserts": "\n".join(lines)}


@pytest.mark.parametrize("rows", [1, pytest.param(12, marks=pytest.mark.slow)])
async def test_cheats_earn_next_to_nothing(env, rows):
    """Whether the tests are cases or assert statements."""
    examples = [example for level in LEVELS for example in examples_of(level, rows)]
    tested = [*examples, *({**each, "task": asserted(each)} for each in examples[:: len(LEVELS)])]
    for name, code in CHEATS.items():
        codes = [code.replace("NAME", each["task"]["entry_point"]) for each in tested]
        rewards = await asyncio.gather(*(rewarded(env, *each) for each in zip(tested, codes, strict=True)))
        assert max(rewards) < 0.2, name


@pytest.mark.parametrize("name", COSTLY)
async def test_what_does_not_end_is_ended(env, name, monkeypatch):
    [example] = examples_of("lines", 1)
    code = COSTLY[name].replace("NAME", example["task"]["entry_point"])
    assert await rewarded(env, example, code) == 0.0
    assert await rewarded(env, {**example, "task": asserted(example)}, code) == 0.0
    monkeypatch.setattr(limits, "CODE_CPU_SECONDS", 10.0)
    monkeypatch.setattr(limits, "CODE_WALL_SECONDS", 60.0)
    assert await rewarded(env, example, example["task"]["solution"]) == 1.0  # the next one finds everything in order


@pytest.mark.parametrize("level", LEVELS)
async def test_other_functions_earn_next_to_nothing(env, level):
    """Solutions of other tasks, under the right name."""
    examples = examples_of(level, 40)
    others = examples[1:] + examples[:1]
    codes = [
        f"{other['task']['solution']}\n{each['task']['entry_point']} = {other['task']['entry_point']}"
        for each, other in zip(examples, others, strict=True)
    ]
    rewards = await asyncio.gather(*(rewarded(env, *each) for each in zip(examples, codes, strict=True)))
    assert sum(rewards) / len(rewards) < 0.1


@pytest.mark.parametrize("level", LEVELS)
async def test_examples_by_heart_earn_nothing(env, level):
    for example in examples_of(level, 12):
        shown = read_cases(example["init_rollout_args"]["examples"])
        table = {repr(case.args): case.expected for case in shown}
        code = f"def {example['task']['entry_point']}(*a): return {table!r}.get(repr(a), {shown[0].expected!r})"
        assert await rewarded(env, example, code) < 0.2


async def test_random_callers_earn_next_to_nothing():
    env = CodeEnv(tools=True)
    draw = random.Random(1)
    rewards = []
    for number, example in enumerate(examples_of("lines", 20)):
        await env.init_rollout(str(number), **example["init_rollout_args"])
        code = draw.choice(("print(1)", "x =", "def f(x): return x", "import os; print(os.listdir('/'))"))
        said = await env.run_tool(str(number), "run_python", code=code)
        text = draw.choice((said, block(code), block(said), f"<answer>{said}</answer>"))
        messages = [{"role": "assistant", "content": text}]
        rewards.append((await env.compute_reward(str(number), messages, example["task"]))["tests"])
        await env.release_rollout(str(number))
    await env.shutdown()
    assert sum(rewards) / len(rewards) < 0.1


SEARCH = """
import glob
FIRST, SECOND = b'kumquat-84', b'-zephyr'
def memory():
    with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as mem:
        for line in maps:
            where, rights = line.split()[:2]
            start, end = (int(each, 16) for each in where.split('-'))
            if 'r' not in rights or '[v' in line: continue
            try:
                mem.seek(start)
                yield mem.read(min(end - start, 1 << 26))
            except OSError: pass
def files():
    for path in [*glob.glob('/workspace/**', recursive=True), *glob.glob('/tmp/**', recursive=True),
                 *glob.glob('/proc/[0-9]*/environ'), *glob.glob('/proc/[0-9]*/cmdline')]:
        try: yield open(path, 'rb').read()
        except OSError: pass
def f(how, given=''):
    for piece in memory() if how == 'memory' else files():
        at = piece.find(FIRST)
        while at >= 0:
            if piece[at + len(FIRST):at + len(FIRST) + len(SECOND)] == SECOND: return True
            at = piece.find(FIRST, at + 1)
    return False
"""
MARK = "kumquat-84-zephyr"


async def test_what_is_expected_is_nowhere_in_the_solutions_process(monkeypatch):
    monkeypatch.setattr(limits, "CODE_CPU_SECONDS", 20.0)
    monkeypatch.setattr(limits, "CODE_WALL_SECONDS", 120.0)
    runner = Runner()
    tests = "\n".join(
        f"assert candidate({how!r}) == {MARK!r}\nassert not candidate({how!r})" for how in ("memory", "files")
    )
    tally = await runner.asserts(SEARCH, "f", "", tests)
    [sent] = await runner.calls(SEARCH, "f", [("memory", MARK)])
    await runner.close()
    assert (tally.held, tally.failed, tally.error) == (2, 2, "")
    assert sent.value is True  # what is sent to it is found, so the search finds what is there
