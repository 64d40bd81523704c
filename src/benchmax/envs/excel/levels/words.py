"""Names for the cells of generated workbooks."""

from __future__ import annotations

import datetime
import random
from typing import Any

ITEMS = ("Lamp", "Chair", "Desk", "Shelf", "Rug", "Clock", "Vase", "Mirror", "Stool", "Sofa", "Bench", "Frame")
REGIONS = ("North", "South", "East", "West")
FIRST = ("Ada", "Ben", "Chen", "Dina", "Emil", "Fatou", "Gita", "Hugo", "Ines", "Jomo", "Kira", "Luis")
LAST = ("Abel", "Berg", "Cruz", "Dahl", "Engel", "Frey", "Gold", "Haas", "Ito", "Jansen", "Klein", "Lund")


def items(draw: random.Random, count: int) -> list[str]:
    return draw.sample(ITEMS, count)


def day(draw: random.Random) -> datetime.date:
    return datetime.date(2024, 1, 1) + datetime.timedelta(days=draw.randint(0, 364))


def date(moment: datetime.date) -> dict[str, Any]:
    """A date as a cell's value."""
    return {"date": f"{moment.isoformat()}T00:00:00"}
