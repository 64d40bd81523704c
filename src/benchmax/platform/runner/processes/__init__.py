"""The processes of this machine: those of a run are started, tagged, watched, measured and ended here.

Start with `run_process` (one run's processes, from start to end).

    machine_usage        what a run uses: CPU, memory, GPUs
    parent_watch         the child's side: it ends when its runner is gone, unless another runner adopts it
    run_process          the runner's side: starts, adopts and ends the processes of one run
    process_ids          a process as pid and start time; all processes of the machine, through psutil
    process_tags         by what every process of a run is recognised, whoever its parent is

Nothing here knows jobs or the database. It runs on Linux and macOS; what only one kernel has is guarded.
"""
