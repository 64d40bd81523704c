"""What routes do, without HTTP: `routes` parses a request and calls one of these.

`datasets` and `runs` are rooms of their own. `catalogue` lists environments; `models`, `completions` and
`live_sessions` reach the processes and endpoints that answer as a model; `response_cache` and `sse` serve many readers
of one run; `webhooks` sends notifications. Who may do what is decided before, in `security`.
"""
