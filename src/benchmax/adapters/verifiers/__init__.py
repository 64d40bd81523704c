"""Our environments in verifiers, and so in prime-rl. Start reading at `plugin`.

plugin    the taskset, the harness and the environment that verifiers loads by the id `benchmax-verifiers`
rollouts  one rollout, played in this process: its tools and rewards are ours, its model is verifiers' endpoint

verifiers finds a plug-in by the name of a top-level module: `benchmax_verifiers` beside this package names the classes.
"""

from benchmax.adapters.adapter import TrainerAdapter

ADAPTER = TrainerAdapter(
    name="verifiers",
    title="verifiers and prime-rl",
    works=("verifiers>=0.4,<0.5",),
    pin="verifiers==0.4.0",
    offers="the taskset and harness benchmax-verifiers, and environments by verifiers:NAME",
)
