"""Our environments in SkyRL. Start reading at `generator`.

generator              `make_generator`: rollouts on SkyRL's engines, token ids in and out
text_env               `register`: an environment for SkyRL's own generator
entrypoint             a training run of SkyRL with either, or on the CPU for a smoke test
smoke                  the smoke test: all of a training step but SkyRL's workers
benchmax_data_process  the dataset as SkyRL reads it
"""

from benchmax.adapters.adapter import TrainerAdapter

ADAPTER = TrainerAdapter(
    name="skyrl",
    title="SkyRL",
    works=("skyrl>=0.4,<0.5", "skyrl-gym>=0.4,<0.5"),
    pin="skyrl[fsdp]==0.4.0 skyrl-gym==0.4.0",
    offers="a generator on SkyRL's engines, and a BaseTextEnv",
    python=">=3.12",
)
