"""One turn of 64 rollouts with a tool of 50 ms in TRL: its own loop against our `rollout_func`, in one run.

    .lanes/trl/bin/python benchmarks/trl_tools.py

The model is scripted in both: each rollout calls the tool, then answers. What is timed is what TRL's trainer waits for:
with its own loop `_tool_call_loop`, from parsed calls to finished completions; with ours the whole `rollout_func`, that
is, also rendering, parsing and rewards. The fastest of ten.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "trainers" / "trl")]

from trl import GRPOTrainer  # noqa: E402
from trl_world import QWEN3, arguments, model  # noqa: E402

from benchmax.adapters.engine_model import Ask, Drawn  # noqa: E402
from benchmax.adapters.trl.environments import BenchmaxEnvironments  # noqa: E402
from benchmax.adapters.trl.rollouts import BenchmaxRollouts  # noqa: E402
from benchmax.prompts.tools import render_tool_call  # noqa: E402
from trainer_world import ADD, SumEnv, tokenizer  # noqa: E402

SECONDS = 0.05


class SlowSumEnv(SumEnv):
    async def run_tool(self, rollout_id, tool_name, **arguments):
        await asyncio.sleep(SECONDS)
        return str(arguments["a"] + arguments["b"])


ROW = {"prompt": "What is 2 + 2?", "ground_truth": "4"}
CALL = render_tool_call(ADD.name, '{"a": 2, "b": 2}')


def ours(folder: Path, rollouts: int) -> tuple[float, float]:
    encode = tokenizer(QWEN3)
    end = encode.eos_token_id
    call, answer = ([*encode(text)["input_ids"], end] for text in (CALL, "4"))

    async def sample(ask: Ask) -> Drawn:
        ids = answer if answers(ask) else call
        return Drawn(ids, [-0.5] * len(ids))

    def answers(ask: Ask) -> bool:
        return len(ask.prompt) > first

    played = BenchmaxRollouts(SlowSumEnv, [ROW], sample=sample)
    trainer = GRPOTrainer(
        model=model(encode), args=arguments(folder, max_completion_length=2000), processing_class=encode,
        train_dataset=played.dataset(), rollout_func=played, reward_funcs=played.reward,
    )  # fmt: skip
    first = len(played._chat_of(trainer).prompt(played.dataset()[0]["prompt"], [ADD])) + 8
    prompts = [played.dataset()[0]["prompt"]] * rollouts
    played(prompts, trainer)  # opens the environment
    times = []
    for _ in range(10):
        began, cpu = time.perf_counter(), time.process_time()
        given = played(prompts, trainer)
        times.append((time.perf_counter() - began, time.process_time() - cpu))
        assert [r.turns for r in played.last] == [2] * rollouts, given["benchmax_termination"]
        assert given["benchmax_reward"] == [1.25] * rollouts
    played.close()
    return min(times)


def its_own(folder: Path, rollouts: int) -> float:
    encode = tokenizer(QWEN3)
    simple = BenchmaxEnvironments(SlowSumEnv, [ROW])
    trainer = GRPOTrainer(
        model=model(encode), args=arguments(folder, max_completion_length=2000), processing_class=encode,
        train_dataset=simple.dataset(), environment_factory=simple.environment_class(), reward_funcs=simple.reward,
    )  # fmt: skip
    end, turns = encode.eos_token_id, []

    def scripted(prompt_ids, *given, **options):
        text = CALL if not turns else "4"
        turns.append(len(prompt_ids))
        return [[*encode(text)["input_ids"], end] for _ in prompt_ids], None

    trainer._generate_single_turn = scripted
    loop, times = trainer._tool_call_loop, []

    def timed(*given, **options):
        began = time.perf_counter()
        found = loop(*given, **options)
        times.append(time.perf_counter() - began)
        return found

    trainer._tool_call_loop = timed
    rows = [dict(simple.dataset()[0]) for _ in range(rollouts)]
    given = trainer._generate_and_score_completions(rows)
    assert turns == [rollouts, rollouts], turns
    assert given["tool_mask"].eq(0).any()
    simple.close()
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=64)
    rollouts = parser.parse_args().rollouts
    with tempfile.TemporaryDirectory() as folder:
        own, (quick, cpu) = its_own(Path(folder), rollouts), ours(Path(folder), rollouts)
    print(f"{rollouts} rollouts, a tool of {SECONDS * 1000:.0f} ms, one turn")
    print(f"TRL's own loop   {own * 1000:8.0f} ms")
    print(
        f"rollout_func     {quick * 1000:8.0f} ms   {own / quick:.1f} times as fast; {cpu * 1000:.0f} ms of it CPU time"
    )


if __name__ == "__main__":
    main()
