"""The schemas of tools as servers write them, without what is no JSON schema (`"type": "any"`, `"required": null`).

Model APIs refuse a request with such a schema, and with it all tools.
"""

from __future__ import annotations

import copy
from typing import Any

MOST_FAULTS = 100
WHOLE = "its schema"


def valid_schema(schema: Any) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """The schema without its faulty keywords, None when nothing is left; and what was left out, with the reason."""
    if not isinstance(schema, dict):
        return None, {}
    try:
        return _without_faults(copy.deepcopy(schema))
    except RecursionError:
        return None, {WHOLE: "it is nested too deep"}


def _without_faults(kept: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, str]]:
    import jsonschema

    if not isinstance(kept.get("$schema", ""), str):
        del kept["$schema"]
    cls: Any = jsonschema.validators.validator_for(kept, default=jsonschema.Draft202012Validator)
    faults: dict[str, str] = {}
    for _ in range(MOST_FAULTS):
        try:
            cls.check_schema(kept, format_checker=jsonschema.FormatChecker(()))
            return kept, faults
        except jsonschema.SchemaError as error:
            path = list(error.absolute_path)
            if not path:
                break
            faults[".".join(map(str, path))] = f"it is no JSON schema: {error.message:.200}"
            _leave_out(kept, path)
    return None, {WHOLE: "it is no JSON schema"}


def _leave_out(schema: Any, path: list[Any]) -> None:
    *above, last = path
    for key in above:
        schema = schema[key]
    if above and above[-1] == "properties" and isinstance(schema, dict):
        schema[last] = {}  # the argument itself stays
    else:
        del schema[last]
