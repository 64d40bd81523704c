"""A command: `benchmax anagrams WORD`."""

from typing import Annotated

import typer

from anagrams.environment import WORDS


def anagrams(word: Annotated[str, typer.Argument(help="Letters in any order.")]) -> None:
    """Print the words that are made of these letters."""
    for each in WORDS:
        if sorted(each) == sorted(word):
            typer.echo(each)
