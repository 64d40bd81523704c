"""The trainer's events in words."""

from benchmax.platform.runner.event_texts import event_text


def test_one_is_not_plural_and_every_number_is_said():
    assert event_text("ended", {"step": 1, "reason": "steps"}) == "Training ended after 1 step."
    assert event_text("ended", {"step": 12, "reason": "interrupted"}) == "Training ended after 12 steps."
    assert event_text("started", {"step": 0}) == "Training began."
    assert event_text("started", {"step": 3}) == "Training began after 3 steps."
    assert event_text("plan", {"steps": 1, "step_seconds": 4.0}) == "Planned: 1 step at most, about 4 s each."
    warm = {"steps": 1, "rows": 8, "before": 0.0, "after": 0.5}
    assert event_text("warm_start", warm) == "Warm start: 8 solutions, 1 supervised step; held-out reward 0.00 → 0.50."
