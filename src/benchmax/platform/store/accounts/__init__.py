"""Queries about users (`users`): their keys (`api_keys`), logins, failed passwords (`lockout`), secrets and webhooks.

`device_codes` is the sign-in of the command line, `tokens` what links, logins and codes share, `audit` the log of what
was done.
"""
