"""How fast the trainer learns, against TRL on the same model, data and batch. Each run has a process of its own.

    python benchmarks/trainer.py                                        the quickstart's step on this machine
    python benchmarks/trainer.py --device cuda --prompts 32 --samples 16 --tune full --lr 1e-5
    python benchmarks/trainer.py --task sums2 --device cuda             two-digit sums, to a held-out target

TRL is measured when it is installed (`pip install trl`).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

from benchmax.envs.arithmetic.arithmetic_env import WORKED_EXAMPLE, ArithmeticEnv, make_rows
from benchmax.envs.datasets import load_examples
from benchmax.inference.engine.engine import pick_device
from benchmax.inference.weights.store import resolve
from benchmax.trainer.config import load_config
from benchmax.trainer.rundir import read_metrics
from benchmax.trainer.start import train
from benchmax.trainer.task import Task

RANGES = {"sums": (0, 9), "sums2": (10, 99)}


def split(task: str, tuning: bool = False) -> tuple[list, list]:
    """Rows to train on and held-out rows; for tuning, the held-out rows of the results are not touched."""
    rows = make_rows(*RANGES[task])
    held_out = 32 if task == "sums" else 256
    if tuning:
        rows = rows[:-held_out]
    return rows[:-held_out], rows[-held_out:]


def ours(args: argparse.Namespace, seed: int) -> dict:
    """One run of the trainer; gives its curve and its times."""
    rows, held_out = split(args.task, args.tuning)
    task = Task(ArithmeticEnv, list(load_examples(rows, ArithmeticEnv)), list(load_examples(held_out, ArithmeticEnv)))
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(
            flags=args.settings,
            recipe="plain",  # what TRL does: GRPO and nothing else
            model={"name": args.model, "tune": args.tune, "device": args.device},
            rollouts={
                "prompts_per_step": args.prompts, "group_size": args.samples, "max_new_tokens": args.tokens,
                "max_turns": 1, "max_extra_groups": args.extra_groups, "concurrency": args.prompts * args.samples,
            },
            optim={"lr": args.lr, "schedule": args.schedule, "warmup_steps": args.warmup},
            algorithm={"advantage": args.advantage},
            eval={"every": args.eval_every, "rows": len(held_out), "target": args.target},
            checkpoint={"every": 10_000, "keep_best": False},
            limits={"steps": args.steps},
            output={"dir": folder, "name": "run"},
            seed=seed,
        )  # fmt: skip
        outcome = asyncio.run(train(config, task=task))
        lines = read_metrics(outcome.path)
    steps = [line["values"] for line in lines if line["split"] == "train"]
    evals = [(line["step"], line["values"]["solve_rate"]) for line in lines if line["split"] == "eval"]
    spent = sum(values["seconds/sample"] + values["seconds/update"] for values in steps)
    return {"steps": steps, "evals": evals, "seconds": outcome.seconds, "training": spent, "memory": peak(args.device)}


def peak(device: str) -> str:
    """The most memory this process has held."""
    if device == "cuda":
        return f"peak GPU memory of torch {torch.cuda.max_memory_allocated() / 1e9:.2f} GB"
    return f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB"


def after_first(run: dict) -> list[dict]:
    """The steps that are timed: the first one warms up caches and kernels."""
    return run["steps"][1:] or run["steps"]


def seconds_a_step(run: dict) -> float:
    return statistics.median(values["seconds/sample"] + values["seconds/update"] for values in after_first(run))


def report(name: str, result: dict) -> None:
    later = after_first(result)
    sample = statistics.median(values["seconds/sample"] for values in later)
    update = statistics.median(values["seconds/update"] for values in later)
    rewards = " ".join(
        f"{values['reward/mean']:.2f}" for values in result["steps"][:: max(1, len(result["steps"]) // 20)]
    )
    both = seconds_a_step(result)
    print(f"{name}: {both:.3f} s a step (sampling {sample:.3f}, update {update:.3f}), median of {len(later)}")
    curve = [values["reward/mean"] for values in result["steps"]]
    print(
        f"  reward   {rewards}; mean {statistics.fmean(curve):.2f}, of the last five {statistics.fmean(curve[-5:]):.2f}"
    )
    print("  held-out " + " ".join(f"{step}:{value:.2f}" for step, value in result["evals"]))
    print(f"  {result['training']:.1f} s in steps, {result['seconds']:.1f} s with evaluations and checkpoints")
    print(f"  {result['memory']}")


def trl(args: argparse.Namespace, seed: int) -> dict:
    """TRL's GRPOTrainer with the same model, rows, batch, learning rate and adapter."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    directory = str(resolve(args.model))
    system = [{"role": "system", "content": ArithmeticEnv.system_prompt}]
    rows = [
        {
            "prompt": [*system, *WORKED_EXAMPLE, {"role": "user", "content": row["question"]}],
            "answer": row["ground_truth"],
        }
        for row in split(args.task)[0]
    ]
    env, seconds, rewards = ArithmeticEnv(), [], []

    def reward(completions, answer, **_):
        async def score():
            return [
                await env.compute_reward("x", list(done), {"ground_truth": gold})
                for done, gold in zip(completions, answer, strict=True)
            ]

        scored = [0.2 * parts["format"] + 0.8 * parts["correct"] for parts in asyncio.run(score())]
        rewards.append(statistics.fmean(scored))
        return scored

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.began = time.monotonic()

        def on_step_end(self, *_, **__):
            seconds.append(time.monotonic() - self.began)

    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=args.prompts * args.samples, num_generations=args.samples,
            max_completion_length=args.tokens, learning_rate=args.lr, lr_scheduler_type="constant", beta=0.0,
            temperature=1.0, max_steps=args.trl_steps, bf16=args.device == "cuda", use_cpu=args.device == "cpu",
            report_to=[], logging_strategy="no", save_strategy="no", seed=seed, disable_tqdm=True,
            gradient_checkpointing=False, max_grad_norm=1.0, epsilon_high=0.28,
        )  # fmt: skip
        lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32),
            reward_funcs=reward,
            args=settings,
            train_dataset=Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(directory),
            peft_config=lora if args.tune == "lora" else None,
            callbacks=[Clock()],
        )
        trainer.train()
    return {"seconds": seconds, "rewards": rewards, "memory": peak(args.device)}


def alone(work: Callable[[argparse.Namespace, int], dict], args: argparse.Namespace, seeds: range) -> Iterator[dict]:
    """One run for each seed, in a fresh process: neither the memory nor the caches of the run before are there."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.at_once, mp_context=context, max_tasks_per_child=1) as pool:
        yield from pool.map(work, repeat(args), seeds)


def compare(curves: dict[str, list[list[float]]], steps: int) -> None:
    """The reward curves side by side, seed by seed and on the average."""
    names = " and ".join(curves)
    for part, last in (f"{steps} steps", steps), ("the last 5 of them", 5):
        means = [[statistics.fmean(curve[:steps][-last:]) for curve in side] for side in curves.values()]
        by_seed = ", ".join(" ".join(f"{value:.2f}" for value in values) for values in zip(*means, strict=True))
        print(f"mean reward over {part}, {names}, by seed: {by_seed}")
        print("  on the average " + " and ".join(average(values) for values in means))


def average(values: list[float]) -> str:
    """The mean and its standard error."""
    if len(values) < 2:
        return f"{values[0]:.3f}"
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values) / len(values) ** 0.5:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--task", default="sums", choices=RANGES)
    parser.add_argument("--tune", choices=["lora", "full"])
    parser.add_argument("--prompts", type=int)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--schedule", choices=["constant", "linear", "cosine"])
    parser.add_argument("--warmup", type=int, help="optimizer steps over which the learning rate rises")
    parser.add_argument("--advantage", choices=["std", "mean"])
    parser.add_argument(
        "--extra-groups", type=int, default=0, help="fresh prompts in place of groups without signal; TRL draws none"
    )
    parser.add_argument("--eval-every", type=int, default=5)
    parser.add_argument("--target", type=float, help="stop at this mean held-out reward")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=1, help="runs side by side: for curves, their times mean little")
    parser.add_argument("--tuning", action="store_true", help="hold out other rows than those the results are on")
    parser.add_argument("--trl-steps", type=int, default=5, help="0 leaves TRL out")
    args, args.settings = parser.parse_known_args()  # other flags are settings of the trainer: --optim.beta2 0.98
    two = args.task == "sums2"
    args.device = pick_device(args.device).type
    args.tune = args.tune or ("full" if two else "lora")
    args.prompts, args.samples = args.prompts or (32 if two else 8), args.samples or (16 if two else 8)
    args.steps = args.steps or (120 if two else 20)
    args.schedule = args.schedule or ("linear" if two else "constant")
    # With full steps at once some seeds learn the format so hard that a right answer is never sampled again.
    args.warmup = args.warmup if args.warmup is not None else (10 if two else 0)
    args.advantage = args.advantage or ("mean" if two else "std")
    args.lr = args.lr or (6e-5 if two else 5e-4 if args.tune == "lora" else 1e-5)
    if two and args.target is None:
        args.target = 0.93

    where = torch.cuda.get_device_name() if args.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    size = f"{args.prompts} × {args.samples} × {args.tokens}"
    print(f"{args.model}, {args.task}, {args.tune}, {size}, lr {args.lr}, {where}")
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    runs = []
    for seed, run in zip(seeds, alone(ours, args, seeds), strict=True):
        report(f"benchmax, seed {seed}", run)
        runs.append(run)
    curves = {"benchmax": [[values["reward/mean"] for values in run["steps"]] for run in runs]}
    if not args.trl_steps:
        compare(curves, args.steps)
        return
    if importlib.util.find_spec("trl") is None:
        print("TRL is not installed: pip install trl to compare.")
        return
    curves["TRL"] = []
    for seed, run, result in zip(seeds, runs, alone(trl, args, seeds), strict=True):
        step = statistics.median(result["seconds"][1:] or result["seconds"])
        print(f"TRL, seed {seed}: {step:.3f} s a step, median of {len(result['seconds'])}")
        print("  reward   " + " ".join(f"{value:.2f}" for value in result["rewards"]))
        print(f"  {result['memory']}")
        print(f"  benchmax is {step / seconds_a_step(run):.1f} times as fast")
        curves["TRL"].append(result["rewards"])
    compare(curves, args.trl_steps)


if __name__ == "__main__":
    main()
