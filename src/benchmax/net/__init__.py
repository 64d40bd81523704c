"""What servers and their clients share: `ports`, free ones and the platform's own; `sse`, server-sent events."""
