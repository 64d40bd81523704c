"""What routes do: `routes` parses a request and calls one of these.

`datasets` and `runs` are rooms of their own. `catalogue` lists environments; `models`, `completions` and
`live_sessions` reach the processes and endpoints that answer as a model, and `model_sessions`, `recorded_calls` and
`streamed_reply` record what they answer; `response_cache` and `run_feed` serve many readers of one run; `wire_shapes`
shows rows of the store as the wire has them, `event_response` is the answer that events come in; `webhooks` sends
notifications. Who may do what is decided before, in `security`.
"""
