"""What every request passes before its route.

`middleware` is the way in: it checks Host and Origin, asks `authentication` who is calling, `scopes` whether the caller
may use the route, and `run_access` whether it may read the run that is named. `body_limits`, `connection_limits`,
`rate_limits` and `stream_watch` bound what a client can take; `passwords` hashes and compares; `last_uses` records when
keys were used.
"""
