"""Sums, answered in tags: small enough for a 135M model to learn on a laptop."""

from benchmax.envs.arithmetic.arithmetic_env import ArithmeticEnv

__all__ = ["ArithmeticEnv"]
