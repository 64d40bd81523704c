"""What a tool call and a reward of the Excel environment cost: `python benchmarks/excel_calls.py [--calls 50]`.

Medians of calls one after the other, and the rate of a hundred rollouts at once, each with its solution and its reward.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmax.envs.excel.excel_env import ExcelEnvInProcess
from benchmax.envs.excel.levels import LEVELS, make_rows

ALL_TOOLS = "manipulation"


async def median_ms(work: Callable[[], Awaitable[Any]], calls: int) -> float:
    took = []
    for _ in range(calls):
        began = time.perf_counter()
        await work()
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e3


async def play(env: ExcelEnvInProcess, name: str, example: Any) -> float:
    await env.init_rollout(name, **example["init_rollout_args"])
    for tool, given in example["task"]["solution"]:
        await env.run_tool(name, tool, **given)
    reward = await env.compute_reward(name, [], example["task"])
    await env.release_rollout(name)
    return float(reward["spreadsheet"])  # type: ignore[arg-type]


async def measure(calls: int) -> None:
    env = ExcelEnvInProcess(level=ALL_TOOLS)
    code = "import openpyxl\nbook = openpyxl.load_workbook('input.xlsx')\nbook.save('output.xlsx')"
    for level in LEVELS:
        example: Any = ExcelEnvInProcess.dataset_preprocess(make_rows(level, rows=1)[0])
        await env.init_rollout("one", **example["init_rollout_args"])
        for tool, given in example["task"]["solution"]:
            await env.run_tool("one", tool, **given)
        reward = await median_ms(lambda task=example["task"]: env.compute_reward("one", [], task), calls)  # type: ignore[misc]
        print(f"{level}: reward {reward:.1f} ms")
    print(f"set_cell {await median_ms(lambda: env.run_tool('one', 'set_cell', cell='Z1', value='=1+1'), calls):.1f} ms")
    run = await median_ms(
        lambda: env.run_tool("one", "run_excel_code", python_code=code, output_excel_path="output.xlsx"), calls
    )
    print(f"run_excel_code {run:.1f} ms")
    examples: list[Any] = [ExcelEnvInProcess.dataset_preprocess(row) for row in make_rows(rows=100)]
    began = time.perf_counter()
    rewards = await asyncio.gather(*(play(env, str(n), each) for n, each in enumerate(examples)))
    print(f"100 rollouts at once: {time.perf_counter() - began:.1f} s, mean reward {statistics.fmean(rewards):.2f}")
    await env.shutdown()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--calls", type=int, default=50)
    asyncio.run(measure(options.parse_args().calls))


if __name__ == "__main__":
    main()
