"""Environments by an address behind a name: `scrambled:apple+river`."""

from anagrams.environment import AnagramEnv


def environment(address: str) -> type[AnagramEnv]:
    """The environment with these words only."""
    wanted = address.split("+")

    class Chosen(AnagramEnv):
        @classmethod
        def load_dataset(cls, dataset_name: str = "", **kwargs):
            rows, folder = super().load_dataset()
            return [row for row in rows if row["ground_truth"] in wanted], folder

    return Chosen
