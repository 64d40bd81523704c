"""What verifiers loads for the id `benchmax-verifiers`: it looks for a top-level module that exports these three."""

from benchmax.adapters.verifiers.plugin import BenchmaxEnv, BenchmaxHarness, BenchmaxTaskset

__all__ = ["BenchmaxEnv", "BenchmaxHarness", "BenchmaxTaskset"]
