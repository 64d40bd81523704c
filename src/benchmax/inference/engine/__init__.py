"""The local engine: continuous batching of one model, token ids in and out.

    engine       the public class: requests from any thread, one worker thread; start reading here
    request      a generation that was asked for
    sampling     how a token is drawn
    scheduler    what is computed next, with prefill (prompts: who joins, what is reused of them), delivery (who
                 leaves), preemption (who makes room for longer rows) and scheduler_state (what they share)
    row_table    what the host knows of each row
    kv_cache     keys and values of all rows
    runner       prefill and decode steps on a device; cuda_runner is the one for GPUs
    forward      one forward pass

Text, chat templates and HTTP are not known here (`tokens`, `server`).
"""
