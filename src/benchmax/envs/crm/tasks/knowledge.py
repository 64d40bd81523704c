"""Tasks about what the company promises: the rule itself, and whether an agent stated it rightly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any

from benchmax.envs.crm.company import Company
from benchmax.envs.crm.company.policies import TOPICS, Topic
from benchmax.envs.crm.tasks.kinds import FUZZY, NOTHING, Drawn, call, kind
from benchmax.envs.generated_tasks import Steps

_RIGHT_PERCENT = 12
"""Of the chats asked about, those in which the agent said nothing wrong."""


def _draw_question(company: Company, rng: Random, hard: bool) -> Drawn:
    policy = rng.choice(company.policies)
    facts = {"topic": policy.topic.title, "family": policy.family}
    return Drawn(policy.asked, policy.value, facts, metric=FUZZY)


@kind("knowledge_qa", _draw_question)
def _answer_question(facts: Mapping[str, Any]) -> Steps:
    articles = yield from call("search_knowledge_articles", search_term=f"{facts['topic']} {facts['family']}".lower())
    topic = next(each for each in TOPICS if each.title == facts["topic"])
    return _stated(topic, articles[0]["Content"])[1]


def _draw_violation(company: Company, rng: Random, hard: bool) -> Drawn:
    is_right = rng.randrange(100) < _RIGHT_PERCENT
    cases = [case for case, (policy, said) in company.chats.items() if (policy.value == said) == is_right]
    case = rng.choice(cases)
    policy = company.chats[case][0]
    [article] = [
        row["Id"] for row in company.table("Knowledge__kav")
        if row["Title"] == policy.title and row["PublishStatus"] == "Online" and row["Language"] == "en_US"
    ]  # fmt: skip
    query = (
        f"In the live chat of case {case}, did the agent state a rule otherwise than its knowledge article? "
        f"Give the Id of that article, or {NOTHING} if the agent was right."
    )
    return Drawn(query, NOTHING if is_right else article, {"case": case})


@kind("policy_violation_identification", _draw_violation)
def _find_violation(facts: Mapping[str, Any]) -> Steps:
    chat = yield from call("get_livechat_transcript_by_case_id", case_id=facts["case"])
    said = chat[0]["Body"]
    topic = next(each for each in TOPICS if _pattern(each).search(said))
    family, value = _stated(topic, said)
    articles = yield from call("search_knowledge_articles", search_term=f"{topic.title} {family}".lower())
    return NOTHING if _stated(topic, articles[0]["Content"])[1] == value else articles[0]["Id"]


def _pattern(topic: Topic) -> re.Pattern[str]:
    before, _, between, _, after = re.split(r"(\{\w+\})", topic.rule)
    return re.compile(
        re.escape(before) + r"(?P<family>\w+)" + re.escape(between) + r"(?P<value>[\w ]+?)" + re.escape(after)
    )


def _stated(topic: Topic, text: str) -> tuple[str, str]:
    """The kind of product and the value that a text states of a topic."""
    match = _pattern(topic).search(text)
    assert match is not None, f"{topic.title} is not stated"
    return match["family"], match["value"]
