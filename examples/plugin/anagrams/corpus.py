"""A corpus: `dictionary:` holds one chunk per word."""

from anagrams.environment import WORDS


def open_corpus(address: str) -> list[dict[str, str]]:
    return [{"id": word, "content": f"{word}: a word of {len(word)} letters"} for word in WORDS]
