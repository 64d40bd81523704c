"""What runs on the far side of the sandbox's socket: under any Python from 3.9, with the standard library alone.

    launcher        one process that starts the rest, and ends it when its own starter is gone
    fork_server     takes calls, watches their limits, kills what is over them
    calls           what the server knows about one call
    zygote          a child of the server that has imported packages, and forks itself for each call
    namespaces      pid 1 of one call: its namespaces and mounts
    call_process    from fork to the first line of the call's own code: sets up each guard, in order
    file_tree       the file tree every call sees
    landlock, seccomp, kernel   system calls
    cgroup          as root: memory and processes of all calls, bounded by the kernel
    resource_usage  measures memory, CPU time, processes and disk of a call
    call_tags       which call a process belongs to, where there are no pid namespaces
    script          running Python source in a forked interpreter
    guards          the names of all guards, and which of them this machine can keep

Nothing here may import benchmax: the interpreter need not have it, and after the change of root its files are gone.
"""
