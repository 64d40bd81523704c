"""Words to spell, themes, and words that begin or end with each letter, for poems that are written by rule."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from benchmax import extras

_SHORT_TEXT = """
sun sea sky ice oak elm fox owl cat dog hen bee ant bat cow pig ram yak rat eel arc art ash bay bed bell bow box cap
car day den dew dry ear egg end eye fan far fen fig fin fir fog fun gem hat hay hill hot ink ivy jam jar joy key kit
lab lad lap law leg lid lip log low man map mat mud net new nut oar old one pan paw pea pen pet pie pin pit pot ray
red rib rim rod row rug rum rye sad saw set shy sip six son spy tan tap tar tea ten tie tin tip toe top toy try tub
two use van wax way web wet win wit yes zoo
"""
SHORT = tuple(_SHORT_TEXT.split())
_LONG_TEXT = """
winter summer silver golden garden forest meadow harbor island desert candle mirror shadow silent gentle bright
morning evening whisper thunder lantern feather blossom orchard river stone cloud storm flame ocean light night
dream heart bread water earth music dance paper glass round field grass trail north south shore coast frost rain
snow wind leaf tree bird song hand home road door star moon rose lake ship sail tide sand wave fire gold iron salt
wool silk bell lamp desk book word line tale hope time year week hour dusk dawn noon
"""
LONG = tuple(_LONG_TEXT.split())


def _bank(text: str) -> dict[str, str]:
    """Words by the letter that stands before them."""
    return dict(line.split(" ", 1) for line in text.strip().splitlines())


THEMES = (
    "the sea", "rain", "a garden", "the night", "a journey", "winter", "an old friend", "the city", "a river",
    "morning", "music", "the mountains", "a lost key", "bread", "the stars", "a train", "the wind", "autumn",
    "a letter", "the harbor",
)  # fmt: skip

FIRST = _bank(
    """
a all along afar
b below bright beyond
c cold clear calm
d deep down dark
e eight early elder
f far fine fair
g green gold gentle
h high here huge
i idle icy iron
j just joyful jade
k kind keen key
l long low light
m many mild moving
n near now nine
o over open old
p past pale plain
q quiet quick quaint
r red round rising
s soft slow still
t tall then two
u under upper upon
v vast violet vivid
w warm wild white
x xenon xeric xebec
y young yellow yonder
z zero zesty zonal
"""
)
"""Words that begin with each letter."""
MIDDLE = (
    "birds sing", "leaves fall", "lamps glow", "roads wind", "bells ring", "waves roll", "winds blow", "stars shine",
    "fires burn", "boats drift", "clouds pass", "shadows move",
)  # fmt: skip
LAST = _bank(
    """
a sea area idea
b herb bulb web
c music magic public
d road gold wind
e fire stone tree
f leaf roof reef
g song ring spring
h earth path beach
i taxi alibi rabbi
j raj taj
k rock oak creek
l hill sail well
m storm dream farm
n rain moon garden
o echo piano studio
p ship camp lamp
r river air harbor
s grass moss glass
t night light coast
u menu bayou tutu
v shiv rev lev
w snow window meadow
x fox wax phoenix
y sky bay valley
z quartz jazz waltz
"""
)
"""Words that end with each letter."""
_SMALL_TEXT = """
a i o am an as at be by do go he if in is it me my no of oh on or so to up us we the and but for you she her his its
our all one out now who how was are has had not let
"""
SMALL = frozenset(_SMALL_TEXT.split())
"""Words that any poem may say again and again."""
FILES = ("words3to10.txt", "holdout_words.txt", "words.csv")
_ENDINGS = ("'s", "ies", "es", "s", "ed", "d", "ing", "ly", "er", "est")


@lru_cache(maxsize=1)
def dictionary() -> frozenset[str]:
    """English words of three to ten letters, from reasoning-gym's data, and those that stand here."""
    extras.require("The telestich environment", "envs")
    spec = find_spec("reasoning_gym")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "data"
    listed = (word for name in FILES for word in (folder / name).read_text("utf-8").lower().replace(",", " ").split())
    banks = (word for bank in (*FIRST.values(), *LAST.values(), *MIDDLE) for word in bank.split())
    return frozenset((*listed, *banks, *SHORT, *LONG)) | SMALL


@lru_cache(maxsize=50_000)
def is_word(text: str) -> bool:
    """Whether a text is an English word, inflected or not."""
    known = dictionary()
    word = text.lower()
    if "-" in word:
        return all(map(is_word, word.split("-")))
    if word in known:
        return True
    stems = (word.removesuffix(ending) for ending in _ENDINGS if word.endswith(ending))
    return any(stem in known or f"{stem}y" in known or f"{stem}e" in known for stem in stems if len(stem) > 1)
