"""Watching a run: alerts for the ways it goes wrong while its loss looks fine, and what the run does about them.

    monitor          checks every step and evaluation with all alarms; start reading here
    history          what the alarms see: the metrics of past steps, and the range of rewards
    reward_alarms    rewards that fall, stand still or are missing
    response_alarms  answers that grow, are cut off, repeat themselves or do not fit
    update_alarms    updates: entropy, drift between sampler and trainer, NaN
    signal_alarms    groups of samples from which nothing can be learned
    recovery         after a collapse: back to the last good checkpoint with a smaller step, a few times

An alarm is a function of the history and a step's rollouts; its name is the `alert` of the event it raises, and a line
in `docs/training.md`. Alarms look at records only: they change nothing in the run.
"""
