"""The jobs of the queue: what each kind does, who may run it, and how its end is judged.

Start with `job` (the base class).

    eval_jobs        evaluates a run, or scores an evaluation again
    job              what every job can do
    leases           leases on jobs, and the slots of this machine
    one_off_jobs     the doctor's report, the export of a checkpoint
    outcome          exit codes, and the rule for another attempt
    preparation      the files of a run, placed for its child, and what it is told of the machine
    train_job        trains a run
    queue_upkeep     cancelled, lost and deleted jobs
    venv_cleanup     removes packages that no environment needs any more

A job starts no process itself: the supervisor, which knows the kinds by name, does, the same way for all.
"""
