"""Queries about users: their keys and logins (`users`), administration, secrets, webhooks and the audit log."""
