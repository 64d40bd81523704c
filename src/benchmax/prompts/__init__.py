"""Tools and messages into text, and back."""
