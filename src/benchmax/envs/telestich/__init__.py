"""Short poems whose first or last letters spell a word, judged by rules and, with a judge, against one another.

telestich_env.py   the environment; start reading here
poems.py           what a poem is worth: which letters it spells, and what its words are like
words.py           words to spell, and words to write poems with
"""

from benchmax.envs.telestich.telestich_env import TelestichEnv

__all__ = ["TelestichEnv"]
