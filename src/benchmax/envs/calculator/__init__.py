"""Products too large for a small model's head, and a calculator it must learn to call."""

from benchmax.envs.calculator.calculator_env import CalculatorEnv

__all__ = ["CalculatorEnv"]
