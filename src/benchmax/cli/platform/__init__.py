"""Commands of the platform: starting it (`up`), launching and watching runs, accounts, secrets, webhooks, profiles.

`connection` opens the client that all of them use.
"""
