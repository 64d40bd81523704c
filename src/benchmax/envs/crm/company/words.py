"""Names and phrases of which a company is made."""

from __future__ import annotations

FIRST_NAMES = (
    "Alma", "Bruno", "Carla", "Dario", "Elena", "Felix", "Greta", "Hugo", "Ines", "Jonas", "Kira", "Leon", "Mara",
    "Nils", "Olga", "Pablo", "Rita", "Samir", "Tessa", "Ugo", "Vera", "Wanda", "Yusuf", "Zoe",
)  # fmt: skip
LAST_NAMES = (
    "Abbott", "Brandt", "Castro", "Doyle", "Ellis", "Fischer", "Garner", "Hale", "Ito", "Jensen", "Keller", "Lopez",
    "Moreau", "Novak", "Okafor", "Petrov", "Quinn", "Reyes", "Silva", "Tanaka", "Ueda", "Vance", "Weber", "Young",
)  # fmt: skip
FIRMS = (
    "Alder", "Beacon", "Copper", "Delta", "Ember", "Falcon", "Granite", "Harvest", "Indigo", "Juniper", "Keystone",
    "Lantern", "Maple", "Nimbus", "Opal", "Prairie", "Quill", "Ridge", "Summit", "Timber",
)  # fmt: skip
COMPANIES = ("Supply", "Stores", "Goods", "Trading", "Market")
"""What generated companies are called, after a word of FIRMS."""
TRADES = ("Bakery", "Clinic", "Hotel", "Library", "Museum", "School")
INDUSTRIES = ("Education", "Food", "Healthcare", "Hospitality", "Public Service")
CITIES = {
    "CA": "Fresno", "CO": "Boulder", "FL": "Tampa", "IL": "Peoria", "MA": "Salem", "NY": "Albany", "OR": "Eugene",
    "TX": "Waco",
}  # fmt: skip
"""A city for each state."""
FAMILIES = {
    "Lamps": "Lamp", "Kettles": "Kettle", "Speakers": "Speaker", "Cameras": "Camera", "Routers": "Router",
    "Vacuums": "Vacuum", "Heaters": "Heater", "Clocks": "Clock",
}  # fmt: skip
"""The kinds of products, and what one of each is called."""
SERIES = (
    "Aurora", "Bolt", "Cedar", "Drift", "Echo", "Flint", "Glow", "Haven", "Iris", "Jade", "Koda", "Lumen", "Mira",
    "Nova", "Onyx", "Pulse", "Quartz", "River", "Sol", "Terra", "Umbra", "Vista", "Willow", "Xeno", "Yarrow", "Zephyr",
    "Atlas", "Basil", "Coral", "Dune", "Elm", "Fjord",
)  # fmt: skip
"""One for each product."""
TRAITS = (
    "small and quiet",
    "made for travel",
    "with a long cable",
    "easy to clean",
    "in three colours",
    "for large rooms",
)
ISSUES = {
    "Battery drains fast": "The battery is empty after an hour.",
    "Does not switch on": "Nothing happens when the button is pressed.",
    "Screen flickers": "The display goes on and off.",
    "Damaged in transit": "The parcel arrived with a dent.",
    "Wrong item sent": "Something else was in the parcel.",
    "Charged twice": "The same order was billed two times.",
    "Refund missing": "The money has not come back.",
    "App cannot connect": "The phone does not find the device.",
    "Strange noise": "It hums and clicks while it runs.",
    "Part missing": "One piece was not in the box.",
    "Late delivery": "The order came a week after the promised day.",
    "Too hot to touch": "The case becomes very warm.",
}
"""What cases are about, and how a customer says it."""
PRIORITIES = ("Low", "Medium", "High")
ORIGINS = ("Chat", "Email", "Phone", "Web")
