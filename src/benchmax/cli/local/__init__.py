"""Commands that need no platform: environments, validation, evaluation, training, models, MCP servers."""
