"""Tools as text in a prompt, and tool calls parsed from text: `tools` has both."""
