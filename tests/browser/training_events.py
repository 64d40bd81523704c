"""What the trainer says of a run beside its curves, for the console's tests: a model that had no signal was shown
solutions, went back once, was taught once, and learned."""

from __future__ import annotations

import json
from pathlib import Path

from rollout_data import QUESTIONS, handbook

NO_SIGNAL = "No group in 16 had signal: GRPO will not move it."
LOOP = "I am sorry, I cannot help with that. Please ask the head office.\n" * 9
EVALUATED = {0: 0.0, 3: 0.583, 6: 0.767, 9: 0.983, 12: 0.967}
"""The held-out reward after so many steps."""


def signal(**more) -> dict:
    """The look at the first samples, by default of a model that cannot learn by itself."""
    seen = {
        "groups": 16, "samples": 16, "reward": 0.0, "best": 0.0, "pass_at_k": 0.0, "spread": 0.0, "unscored": 0.0,
        "cut_off": 0.625, "in_form": None, "first_calls": 0.0, "gold": 1.0, "floor": 0.0, "chance": 0.00025,
        "lazy": {"always the first option": 0.125, "always the longest option": 0.375}, "learns": False,
        "forecast": NO_SIGNAL, "advice": "Show it solutions first.",
    }  # fmt: skip
    return {"kind": "signal", **seen, **more}


def dose(number: int, **more) -> dict:
    earned = {"spread": 0.5 * number, "reward": 0.125 * number, "best": 0.5, "pass_at_k": 0.25 * number}
    better = earned | {"cut_off": 0.0, "first_calls": 0.4 * number, "learns": True}
    return signal(**{**better, "forecast": "It will learn.", "advice": "", **more}) | {"kind": "dose", "dose": number}


CHOSEN = [
    {"name": "rollouts.group_size", "value": 16, "why": "a GPU has room for it"},
    {"name": "rollouts.max_turns", "value": 6, "why": "known solutions take 4"},
]
STARTED = {"kind": "started", "step": 0}
CHOICE = {"kind": "chosen", "settings": CHOSEN[1:]}
WARM_START = {
    "kind": "warm_start", "how": "gold", "why": NO_SIGNAL, "rows": 64, "steps": 8, "doses": 2, "before": 0.0,
    "after": 0.4277777, "sources": {"demonstrate": 60, "gold": 4},
}  # fmt: skip
NO_WARM_START = WARM_START | {
    "how": "none",
    "why": "81% of 16 groups had signal: it will learn.",
    "steps": 0,
    "rows": 0,
}
PLAN = {
    "kind": "plan", "model": "/models/smollm2-135m", "device": "cuda", "weights": 134_515_008, "trained": 4_884_480,
    "tune": "lora", "rows": 240, "held_out": 60, "prompts": 16, "samples": 16, "steps": 12, "seconds_limit": None,
    "cut_off": "an answer that is cut off loses 50% of its pay in the update", "sampled_tokens": 27_267,
    "computed_tokens": 44_224, "step_seconds": 19.26, "total_seconds": 240.0, "memory_bytes": 26_988_249_088,
    "chosen": CHOSEN,
}  # fmt: skip
OUTAGE = "No rollout of step 3 got a reward (JudgeError): it is tried again, {} of 6 times so far."
MENDED = "The mean held-out reward fell from 0.33 to 0.15. Back to the checkpoint of step 5."
TAUGHT = "Evaluations got no better, so 208 solutions were shown for 96 steps."
ON_THE_WAY = [
    *({"kind": "outage", "step": 2, "tries": tries, "message": OUTAGE.format(tries)} for tries in (1, 2)),
    {"kind": "mended", "step": 8, "back_to": 5, "alert": "held_out_collapse", "mends": 1, "message": MENDED},
    {"kind": "taught", "step": 9, "rows": 208, "steps": 96, "before": 0.28, "after": 0.97, "kept": True,
     "message": TAUGHT},
]  # fmt: skip


def summary() -> dict:
    pairs = [
        {
            "example_id": f"example-{i}",
            "question": f"Handbook, chapter 4\n{question}\nAnswer in one sentence.",
            "before": {"text": LOOP, "reward": 0.0, "cut_off": i != 1},
            "after": {"text": f"It is {gold}.", "reward": 1.0, "cut_off": False},
        }
        for i, (question, gold) in enumerate(QUESTIONS[:3])
    ]
    return {
        "kind": "summary", "before": 0.0, "warm": 0.4277777, "best": 0.983, "best_step": 9, "last": 0.967,
        "ended_by_themselves": 1.0, "mends": 1, "taught": 1, "pairs": pairs,
    }  # fmt: skip


BEFORE = [STARTED, CHOICE, signal(), dose(1), dose(2), WARM_START, PLAN]


def helped(folder: Path) -> Path:
    """The directory of such a run, with the rollouts of `handbook`; at first answers are cut off."""
    handbook(folder)
    ended = {"kind": "ended", "step": 12, "reason": "steps", "seconds": 240.0}
    write_events(folder, [*BEFORE, *ON_THE_WAY, summary(), ended])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    evals = [line | {"split": "eval", "step": step} for line in lines[:1] for step in EVALUATED]
    curves = [line for line in lines if line["split"] == "train"] + evals
    text = "".join(json.dumps(line | {"values": _values(line["split"], line["step"])}) + "\n" for line in curves)
    (folder / "metrics.jsonl").write_text(text, "utf-8")
    return folder


def _values(split: str, step: int) -> dict[str, float]:
    reward = EVALUATED[step] if split == "eval" else 0.98 - 0.55 * 0.75**step + 0.04 * (-1) ** step
    return {
        "reward/mean": reward, "pass@k": min(1.0, reward + 0.1), "max@k": min(1.0, reward + 0.05),
        "response_tokens/mean": 40 + 80 * 0.6**step, "truncated": max(0.0, 0.625 - step / 16),
        "reward_stats/correct/reward/mean": reward, "seconds/sample": 15.0, "seconds/update": 4.0,
    }  # fmt: skip


def write_events(folder: Path, events) -> None:
    lines = [json.dumps({"time": 1_760_000_000.0 + at, **event}) + "\n" for at, event in enumerate(events)]
    (folder / "events.jsonl").write_text("".join(lines), "utf-8")


def begins(world, *events: dict, name: str = "begins") -> str:
    """A run that is before its first step, and has said this much."""
    run_id = world.add_run(name=name, status="active")
    tell(world, run_id, *events)
    return run_id


def tell(world, run_id: str, *said: dict) -> None:
    """Let a trainer say something, as ingest stores it."""
    from benchmax.platform.store.runs import events

    with world.database.write() as session:
        for each in said:
            data = {name: value for name, value in each.items() if name not in ("kind", "message")}
            events.append(
                session, run_id, f"trainer.{each['kind']}", each.get("message", each["kind"]), category="diagnostic",
                data=data,
            )  # fmt: skip
