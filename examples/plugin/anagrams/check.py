"""A check of the doctor: importing this module registers it."""

from collections.abc import Iterator

from benchmax.doctor.evidence import Evidence
from benchmax.doctor.findings import Finding, warning
from benchmax.doctor.registry import check, examples


@check("long-prompts", "prompts are short", examples)
def long_prompts(evidence: Evidence) -> Iterator[Finding]:
    longest = max(len(str(example["prompt_messages"])) for example in evidence.examples)
    if longest > 20_000:
        yield warning("long prompts", f"the longest has {longest:,} characters", "Shorten them.")
