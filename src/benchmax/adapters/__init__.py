"""Our environments in other trainers: one folder per trainer, over one shared core. Start reading at `adapter`.

adapter       how an adapter describes itself; the entry-point group `benchmax.trainers`
trainer_status which trainers are installed here, which versions work, what to pin
engine_model  an outside trainer's engine behind our model port, token ids in and out
batched_engine  an engine that generates in the trainer's own thread, in batches
batches       a trainer's batch of rows played as groups of rollouts
trajectory    a rollout as trainers take it: ids, masks, log-probs, rewards for each token
example_rows  examples carried through a trainer's dataset
pushed_rollout  a rollout whose turns come from a trainer that holds the conversation
env_session   an environment held open for a trainer that is not asynchronous

    trl, skyrl, tinker, verifiers, openenv, verl, …   one folder per trainer

    imports   the other way: environments of verifiers, OpenEnv and skyrl-gym as ours

The pins of the trainers exclude each other, so an adapter imports its trainer inside functions, and never another's.
`README.md` says how one is added.
"""
