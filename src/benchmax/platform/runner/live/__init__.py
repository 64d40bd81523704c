"""Live sessions: an environment or a model kept open in a process of its own while it is used.

Start with `live_sessions` (the runner's side), then `session_child` (the process).

    chat            a conversation with a checkpoint in its environment
    live_sessions   starts, adopts, ends and sweeps them
    models          the local models they load, and chat completions of one
    rollouts        rollouts of examples, reported as they happen
    session_child   the process: opens the environment or model and answers at a socket

Nothing of a session is stored: it belongs to this machine, and a client opens another when it has ended.
"""
