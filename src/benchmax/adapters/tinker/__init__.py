"""Our environments on Tinker. Start reading at `backend`.

backend         `benchmax train --backend tinker`: the embedded trainer's loop, settings, metrics and run directory
credentials     whether a run could begin: the package, a key
remote          the model on Tinker's server: sample, forward and backward, optimizer step, checkpoints
learner         one step of learning, computed there
sampler         rollouts in our environment, sampled there
server_liveness whether the server still answers
cookbook        for users of tinker-cookbook: its EnvGroupBuilder, Env and RLDataset, over `token_rollout`
"""

from benchmax.adapters.adapter import TrainerAdapter

ADAPTER = TrainerAdapter(
    name="tinker",
    title="Tinker",
    works=("tinker>=0.36,<0.37",),
    pin="tinker==0.36.0",
    offers="benchmax train --backend tinker, and EnvGroupBuilder for tinker-cookbook",
    backend="benchmax.adapters.tinker.backend:TinkerBackend",
    secrets=("TINKER_API_KEY",),
    check_launch="benchmax.adapters.tinker.credentials:check_launch",
)
