"""A task without a single right answer, scored by rubrics, with a fake judge.

    python examples/rubric_environment.py

The judge here is a script that counts words, so the example runs offline. Any OpenAI-compatible model takes its place:
`Judge(name="…", base_url="https://…/v1")`. One of the replies makes the judge fail: that rollout is unscored, with the
reason, and leaves the mean.
"""

import asyncio
import json
import re

from benchmax import BaseEnv, EnvHost, Judge, Rubric, ScriptedModel, evaluate, load_examples, score_rubrics
from benchmax.envs.reward_helpers import extract_completion_text

RUBRICS = [
    Rubric("Names a cause", "The summary says why it happened."),
    Rubric("Wordy", "The summary uses more than twelve words.", type="negative"),
]
ROWS = [
    {"prompt": "Summarise: the bridge was closed on Monday because ice made it unsafe."},
    {"prompt": "Summarise: the train was late because a tree lay on the track."},
    {"prompt": "Summarise: the match was moved because the field was under water."},
]
REPLIES = {
    ROWS[0]["prompt"]: "Ice closed the bridge because it was unsafe.",
    ROWS[1]["prompt"]: "There was, on that day, a train, and it was, as trains are at times, somewhat late.",
    ROWS[2]["prompt"]: "???",
}


def fake_judge(messages):
    """What a judge model would answer: JSON with a score. For `???` it says something unusable."""
    asked = messages[-1]["content"]
    response = re.search(r'<data name="response" id="(\w+)">\n(.*?)\n</data id="\1">', asked, re.DOTALL)[2]
    if response == "???":
        return "I would rather not."
    fault = "Criterion: Wordy" in asked
    score = len(response.split()) > 12 if fault else "because" in response
    return json.dumps({"reasoning": "counted", "score": int(score)})


class Summaries(BaseEnv):
    system_prompt = "Summarise in one sentence."

    def __init__(self, judge=None, **kwargs):
        super().__init__(**kwargs)
        self.judge = judge or Judge(ScriptedModel(fake_judge, name="fake-judge"), cache=1_000)

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return await score_rubrics(self.judge, RUBRICS, task["prompt"], extract_completion_text(messages))


async def main():
    async with EnvHost(Summaries) as host:
        result = await evaluate(host, load_examples(ROWS, Summaries), ScriptedModel.answers(REPLIES))
        usage = host.env.judge.usage
    for rollout in sorted(result.rollouts, key=lambda rollout: rollout.reward is None):
        print(rollout.reward, rollout.rewards or list(rollout.unscored))
    print(f"{result.report.scored} of {result.report.rollouts} scored; the judge failed {usage.failures} times")


if __name__ == "__main__":
    asyncio.run(main())
