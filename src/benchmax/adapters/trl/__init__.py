"""Our environments in TRL's GRPOTrainer. Start reading at `rollouts`.

rollouts      `BenchmaxRollouts`: a `rollout_func` that plays all rollouts, with their tools, at once
environments  `environment_factory` for the simple case: TRL's own loop with our tools
sampling      what samples inside it: TRL's vLLM, or the model itself
"""

from benchmax.adapters.adapter import TrainerAdapter

ADAPTER = TrainerAdapter(
    name="trl",
    title="TRL",
    works=("trl>=1.16,<1.17", "transformers>=5.2,<6"),
    pin="trl==1.16.0 transformers>=5.10,<6 torch>=2.6,<2.14",
    offers="rollout_func and environment_factory for GRPOTrainer",
)
