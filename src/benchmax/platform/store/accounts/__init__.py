"""Queries about users (`users`): their keys (`api_keys`), logins, failed passwords (`lockout`), secrets and webhooks.

`device_codes` is the sign-in of the command line, `tokens` what links, logins and codes share, `user_admin` what
administrators see and do, `audit` the log of it.
"""
