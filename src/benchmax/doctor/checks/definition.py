"""Can the environment be built, sent elsewhere, and does it say what it wants?"""

from __future__ import annotations

import pickle
from collections.abc import Iterator

from benchmax.doctor.evidence import Evidence
from benchmax.doctor.findings import Finding, error, info, warning
from benchmax.doctor.quoting import advice
from benchmax.doctor.registry import check, environment, examples, needs
from benchmax.errors import describe_error, describe_failure

PROMPT_CHARS = 10_000


@check("cannot-construct", "the environment can be built")
def cannot_construct(evidence: Evidence) -> Iterator[Finding]:
    if evidence.build_error is not None:
        arguments = ", ".join(evidence.env_args) or "none"
        fix = "Correct the constructor, implement compute_reward, or pass the arguments it needs as env_args."
        yield error(
            f"{evidence.env_class.__name__} cannot be built.",
            f"{describe_failure(evidence.build_error)} (env_args given: {arguments})",
            advice(evidence.build_error) or fix,
        )


@check("not-picklable", "the environment can be sent to another process")
def not_picklable(evidence: Evidence) -> Iterator[Finding]:
    try:
        pickle.dumps(evidence.env_args)
    except Exception as failure:
        yield warning(
            "env_args cannot be sent to another process.",
            describe_error(failure),
            "Pass plain values (paths, names, numbers) and open files, locks and clients inside the environment.",
        )
    if "<locals>" in evidence.env_class.__qualname__:
        yield info(
            "The class is defined inside a function.",
            evidence.env_class.__qualname__,
            "Define it at the top of a module, so that others can import it.",
        )


@check("system-prompt-missing", "there is a system prompt", examples)
def system_prompt_missing(evidence: Evidence) -> Iterator[Finding]:
    without = [e for e in evidence.examples if not any(m.get("role") == "system" for m in e["prompt_messages"])]
    if without and not evidence.system_prompt.strip():
        yield warning(
            "There is no system prompt.",
            f"system_prompt is empty and {len(without)} of {len(evidence.examples)} rows bring no system message.",
            "Say in system_prompt what is asked and in which form; a model that must guess learns slowly.",
        )


@check("system-prompt-too-long", f"the system prompt has at most {PROMPT_CHARS:,} characters")
def system_prompt_too_long(evidence: Evidence) -> Iterator[Finding]:
    length = len(evidence.system_prompt)
    if length > PROMPT_CHARS:
        yield warning(
            "The system prompt is very long.",
            f"{length:,} characters, sent with every rollout.",
            "Shorten it; what differs between rows belongs in the rows.",
        )


_PROBED = needs(lambda e: e.own_probe is not None, "validate_probe is not overridden", after=environment)


@check("own-probe", "the environment's own check passes", _PROBED)
def own_probe(evidence: Evidence) -> Iterator[Finding]:
    result = evidence.own_probe
    if result is not None and not result.get("ok", True):
        summary = str(result.get("summary") or result)
        yield warning("validate_probe fails.", summary, "See what validate_probe of the class checks.")
