"""The programs of the child processes: each works in one folder and exits.

Start with `child_process` (what every child does), then `train_child`.

    child_files      names and format of the small files between runner and child
    child_process    waits for the runner, reports its phase, writes exit.json
    doctor_child     examines an environment, by `doctor_worker` in the environment's own interpreter
    run_environment  opens the run's environment in a process of its own; sandboxing: its sandbox
    model_relay      the platform's models, for an environment to which the network is closed
    eval_child       a model plays the run's eval rows
    export_child     a checkpoint becomes one file
    rescore_child    stored rollouts are scored again
    train_child      trains a run

A child knows neither the database nor the queue: its folder and the runner's message are all it has. The bundle's code
runs in none of these processes but `doctor_worker`.
"""
