"""Commands of the platform: starting it (`up`), launching and watching runs, accounts, secrets, webhooks, profiles.

`connection` opens the client that all of them use.

    up                            up, down, status, logs, reindex and backup; quickstart does all in one
    launch, runs, watch           start a run; what runs do and did, run_compare among it; one as it goes
    validate_remote               rows played on the platform before a launch
    playground                    talk with a run's model
    account, keys, profile        who you are, with which key, on which platform
    endpoints_and_secrets         model servers to evaluate against; what runs may know
    webhooks                      who is notified
"""
