"""The script of the documents, as it stands there: only its rows are a user's own."""

SCRIPT = """
import os, re, dataclasses
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.platform.training_run import upload_training_run
from benchmax.platform.client import TrainerClient

API_KEY = os.environ["CASTFORM_API_KEY"]

# --- dataset ---
dataset = ROWS
split = int(len(dataset) * 0.8)
train_data, eval_data = dataset[:split], dataset[split:]

# --- environment ---
class MyEnv(BaseEnv):
    system_prompt = "answer the question concisely. put your answer in <answer> tags."

    async def list_tools(self):
        return []

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return ""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = extract_completion_text(messages)
        match = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
        answer = match.group(1).strip().lower() if match else ""
        expected = (task or {}).get("ground_truth", "").strip().lower()
        return {"correct": 1.0 if answer == expected else 0.0}

# --- upload and launch ---
uploaded = upload_training_run(
    env_class=MyEnv, train_dataset=train_data,
    eval_dataset=eval_data, run_name="my-first-run", api_key=API_KEY,
)
trainer = TrainerClient(api_key=API_KEY)
run_id = trainer.launch_training_run(
    training_run_type="simple", **dataclasses.asdict(uploaded),
)
print(f"https://app.castform.com/experiments/{run_id}")
"""


def with_rows(expression: str) -> str:
    """The script over rows that a Python expression gives."""
    return SCRIPT.replace("ROWS", expression)
