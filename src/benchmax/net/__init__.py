"""What servers and their clients share: `origins`, where an address leads; `ports`, free ones and the
platform's own; `sse`, server-sent events."""
