"""fork."""
