"""The wire: the shapes of requests and answers that server, SDK and console agree on.

One module for each noun: `runs`, `rollouts`, `rollout_requests`, `evals`, `playground`, `environments`, `datasets`,
`corpora`, `models`, `accounts`, `webhooks`; `base` has what all are made of, `values` the words that all use, such as
the statuses of a run. Answers are camelCase and times are ISO 8601 in UTC, except where
published clients or OpenAI's API have it otherwise.

Start with `runs`, or with `launches` and `launch_args` for what a launch may ask for: one table, its check, and the
trainer's settings that it becomes, for client, server and runner alike. Otherwise a shape holds no logic, and no module
here imports the server, the runner or the store. The console's TypeScript types are generated from these.
"""
