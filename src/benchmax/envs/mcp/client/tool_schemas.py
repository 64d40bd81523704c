"""The schemas of tools as servers write them, without what is no JSON schema (`"type": "any"`, `"required": null`).

Model APIs refuse a request with such a schema, and with it all tools.
"""

from __future__ import annotations

import copy
import logging
from typing import Any

logger = logging.getLogger(__name__)

MOST_FAULTS = 100


def valid_schema(tool: str, schema: Any) -> dict[str, Any] | None:
    """The schema without its faulty keywords, which are logged; None when there is none."""
    if not isinstance(schema, dict):
        return None
    try:
        return _without_faults(tool, copy.deepcopy(schema))
    except RecursionError:
        logger.warning("The schema of MCP tool %r is left out: it is nested too deep.", tool)
        return None


def _without_faults(tool: str, kept: dict[str, Any]) -> dict[str, Any] | None:
    import jsonschema

    if not isinstance(kept.get("$schema", ""), str):
        del kept["$schema"]
    cls: Any = jsonschema.validators.validator_for(kept, default=jsonschema.Draft202012Validator)
    for _ in range(MOST_FAULTS):
        try:
            cls.check_schema(kept, format_checker=jsonschema.FormatChecker(()))
            return kept
        except jsonschema.SchemaError as error:
            path = list(error.absolute_path)
            if not path:
                break
            where = ".".join(map(str, path))
            logger.warning("In the schema of MCP tool %r, %s is left out: %.200s", tool, where, error.message)
            _leave_out(kept, path)
    logger.warning("The schema of MCP tool %r is left out: it is no JSON schema.", tool)
    return None


def _leave_out(schema: Any, path: list[Any]) -> None:
    *above, last = path
    for key in above:
        schema = schema[key]
    if above and above[-1] == "properties" and isinstance(schema, dict):
        schema[last] = {}  # the argument itself stays
    else:
        del schema[last]
