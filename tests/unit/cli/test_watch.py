"""Following a run: every piece of news in the order in which it happened."""

from __future__ import annotations

from typing import Any

from benchmax.cli.platform.watch import follow, line


class Client:
    """A run that is far along: its whole feed, and all its numbers at once."""

    def __init__(self, events: list[dict[str, Any]], **steps: int) -> None:
        self.events, self.steps, self.asked = events, steps, 0

    def stream_run(self, run_id: str) -> list[dict[str, Any]]:
        return self.events

    def get_run_scalars(self, run_id: str, mode: str) -> dict[str, list[dict[str, float]]]:
        self.asked += 1
        every = 5 if mode == "eval" else 1
        return {"reward/mean": [{"step": step, "value": 0.5} for step in range(0, self.steps[mode] + 1, every)]}


def points(**steps: int) -> dict[str, Any]:
    return {"type": "points", "category": "feed", "data": steps}


def says(text: str) -> dict[str, Any]:
    return {"type": "note", "category": "lifecycle", "message": text}


def told(client: Client) -> list[str]:
    found: list[str] = []
    follow(client, {"id": "run_1", "totalSteps": 10}, lambda news: found.append(line(news).partition(": ")[0]))  # type: ignore[arg-type]
    return found


def test_evaluations_come_when_they_happened() -> None:
    steps = [
        event for step in range(10) for event in (points(train=step), *[points(eval=step + 1)] * ((step + 1) % 5 == 0))
    ]
    client = Client([says("began"), points(eval=0), *steps, says("ended")], train=9, eval=10)
    first, second = [[f"step {step}/10" for step in part] for part in (range(1, 6), range(6, 11))]
    wanted = ["began", "eval at step 0", *first, "eval at step 5", *second, "eval at step 10", "ended"]
    assert told(client) == wanted
    assert client.asked == 2, "one question for each mode, however far the run is"


def test_what_was_read_at_once_is_told_in_order() -> None:
    assert told(Client([points(train=5, eval=5)], train=5, eval=5)) == [
        "eval at step 0",
        *[f"step {number}/10" for number in range(1, 6)],
        "eval at step 5",
        "step 6/10",
    ]


def test_steps_are_told_once_also_when_a_run_goes_back() -> None:
    feed = [points(train=3), points(train=1), points(train=2), points(train=4)]
    assert told(Client(feed, train=4)) == [f"step {number}/10" for number in range(1, 6)]
