"""Training: the embedded GRPO trainer, supervised runs, and the port for other backends.

config ─▶ loop ─▶ sampling ──groups of rollouts──▶ learning (advantage, batch, loss, optim, policy) ─▶ sampling
            │                                                                            │
            └──▶ rundir: metrics, rollouts, events, checkpoints  ◀── watch               └──▶ export, open_checkpoint

    start           train a new run, resume one that stopped; start reading here
    task            what a run trains on: an environment and its rows
    loop            evaluate, sample, learn, push, repeat; progress is what it remembers
    ending          what ends a run; interrupts is how one is stopped from outside
    sampling        where rollouts come from
    learning        from scored rollouts to changed weights
    warm_start      what a model that finds nothing by itself is shown first
    watch           alerts, and what a run does about a collapse or a plateau
    supervised      a run on given answers alone
    rundir          the run directory; checkpoint is a part of it
    open_checkpoint the model of a run or checkpoint, for everybody else; export writes it for other programs
    display         what people see
    config          the settings
    backend         other trainers, added by installed packages
    tiny_model      a toy model for trials and tests

A run never needs the platform: it talks to the outside by its run directory and its events.
"""
