"""What stands between your code and a training run: checks before it, and the way to it."""
