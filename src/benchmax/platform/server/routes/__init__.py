"""The routes of the API, one module for each noun; `routers` lists all, `parameters` has what many take. Those about
one run are in `runs`.

    signin, account, users       who calls; the caller's keys, secrets and endpoints; other users
    storage, datasets, corpora   uploads; rows; chunks of text to search
    environments                 which there are, and the doctor's reports
    openai_api, model_sessions   models, asked as OpenAI's are; with a record of every call
    webhooks, health, console    notifications; whether the server is up; the pages

A route parses its request, calls `services` or the store, and returns a shape of the wire. A new route needs a line in
`security/scopes.py`: without it the server does not start.
"""
