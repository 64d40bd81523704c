"""Random calls of every operation (B17)."""

from __future__ import annotations

import warnings

import pytest


@pytest.mark.parametrize(
    "examples",
    [
        pytest.param(4, marks=pytest.mark.timeout(600)),
        pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
    ],
)
def test_random_calls_of_every_operation_never_give_a_5xx(live, examples, monkeypatch):
    schemathesis = pytest.importorskip("schemathesis")
    monkeypatch.setattr(
        "benchmax.platform.server.services.live_sessions.NOBODY_SECONDS", 0.1
    )  # there is no runner here
    _, key = live.user()
    from hypothesis import HealthCheck, Phase, given, settings

    settings_of_ours = settings(
        max_examples=examples,
        deadline=None,
        derandomize=examples < 10,  # the few of every day are always the same, the many of `make soak` always new
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schema = schemathesis.openapi.from_dict(live.app.openapi())
        checked = []
        with live.client(key) as client:
            for result in schema.get_all_operations():
                operation = result.ok()
                if operation.path.endswith("/stream") and operation.method == "get":
                    continue

                @settings_of_ours
                @given(case=operation.as_strategy())
                def call(case):
                    sent = case.as_transport_kwargs(base_url=live.url)
                    sent = {
                        name: sent[name]
                        for name in ("method", "url", "params", "headers", "json", "data")
                        if name in sent
                    }
                    headers = dict(sent.pop("headers", None) or {})
                    headers.pop("Authorization", None)
                    try:
                        answer = client.request(**sent, headers=headers)
                    except (UnicodeError, ValueError):
                        return  # not something that can be sent
                    unasked = answer.status_code == 503 and "no runner" in answer.text
                    assert answer.status_code < 500 or answer.status_code == 501 or unasked, (sent, answer.text)

                call()
                checked.append(operation.label)
    assert len(checked) > 40
