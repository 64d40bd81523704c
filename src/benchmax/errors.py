"""The errors benchmax raises, named for the boundary they cross.

    BenchmaxError
    ├── UsageError (ValueError)          you can fix it: a bad flag, file, row or definition
    │   ├── ConfigError                  a setting has a wrong name, type or range
    │   ├── DatasetError                 rows that cannot be used; carries every issue found
    │   ├── EnvDefinitionError           the environment class cannot be loaded or used
    │   ├── NotFoundError (LookupError)  a model, run or file that is not there
    │   ├── PluginError                  what an installed package adds cannot be loaded
    │   ├── SandboxUnavailable           this machine cannot confine untrusted code
    │   └── BundlingError                in `benchmax.bundle.errors`: an environment cannot be packed or opened
    ├── RolloutError (RuntimeError)      one rollout failed; its siblings go on
    │   ├── EnvError                     init_rollout or release_rollout
    │   │   ├── EnvLost                  the environment's process ended while it held the rollout
    │   │   ├── McpError                 an MCP server died, did not answer, or was not available
    │   │   └── SandboxError             the sandbox died, or could not start a call
    │   ├── ToolError                    run_tool; its text is shown to the model
    │   ├── RewardError                  compute_reward or compute_group_reward
    │   ├── JudgeError                   a language-model judge returned no usable verdict
    │   ├── DeadlineExceeded (TimeoutError)
    │   └── ModelError                   the model returned no reply
    │       ├── ModelTimeout (TimeoutError)
    │       ├── ModelUnavailable (ConnectionError)   connection lost, 5xx
    │       ├── ModelRateLimited                     429; carries retry_after
    │       ├── ModelRejected                        4xx: the request itself is wrong
    │       ├── ModelProtocolError                   an answer that is not the API's
    │       └── ContextExceeded                      the conversation no longer fits
    ├── RecordError (ValueError)         a file benchmax wrote is damaged or from a newer version
    └── TrainerError (RuntimeError)      in `benchmax.platform.exceptions`: the platform refused a request

All are picklable, and a message ends with what to do next. `RolloutError` is about a rollout played in this process; a
rollout that the platform plays fails with a `PlatformRolloutError`.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from traceback import walk_tb
from typing import Any

from benchmax.limits import ERROR_CHARS

PLACE = "_benchmax_place"
"""The attribute of an error from another process that says where in the user's code it was raised there."""
_BENCHMAX = str(Path(__file__).parent)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class BenchmaxError(Exception):
    """Something went wrong in benchmax."""


class UsageError(BenchmaxError, ValueError):
    """The input cannot be used as given."""


class ConfigError(UsageError):
    """A setting is wrong."""


class DatasetError(UsageError):
    """Rows cannot be used. `issues` holds every problem found, not only the first."""

    def __init__(self, message: str, issues: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.issues = list(issues)


class EnvDefinitionError(UsageError):
    """The environment class cannot be loaded or used."""


class NotFoundError(UsageError, LookupError):
    """There is nothing under that name."""


class PluginError(UsageError):
    """What an installed package adds to benchmax cannot be loaded."""


class SandboxUnavailable(UsageError):
    """This machine cannot confine untrusted code."""


class RolloutError(BenchmaxError, RuntimeError):
    """One rollout failed."""


class EnvError(RolloutError):
    """An environment hook other than tools and rewards failed."""


class EnvLost(EnvError):
    """The environment's process ended while it held the rollout."""


class McpError(EnvError):
    """An MCP server died, did not answer, or was not available."""


class SandboxError(EnvError):
    """The sandbox died, or could not start a call."""


class ToolError(RolloutError):
    """A tool failed; the text goes back to the model as an error."""


class RewardError(RolloutError):
    """A reward could not be computed; the sample is unscored, not 0."""


class JudgeError(RolloutError):
    """A judge returned no usable verdict; the sample is unscored, not 0."""


class DeadlineExceeded(RolloutError, TimeoutError):
    """A hook took longer than its deadline."""


class ModelError(RolloutError):
    """The model returned no reply."""


class ModelTimeout(ModelError, TimeoutError):
    """The model did not answer in time."""


class ModelUnavailable(ModelError, ConnectionError):
    """The model server is unreachable or failing."""


class ModelRateLimited(ModelError):
    """The model server asks to slow down."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ModelRejected(ModelError):
    """The model server refused the request as wrong."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class ModelProtocolError(ModelError):
    """The model server's answer is not the API's."""


class ContextExceeded(ModelError):
    """The conversation no longer fits the model's context."""


class RecordError(BenchmaxError, ValueError):
    """A record file is damaged or written by a newer benchmax."""


def describe_error(error: BaseException) -> str:
    """The type and message of any error as one bounded text, also of an error whose message cannot be read."""
    kind, message = type(error).__name__, error_message(error)
    return clean(f"{kind}: {message}" if message else kind)


def describe_failure(error: BaseException) -> str:
    """The same, with the line of the user's own code that the error comes from, where there is one."""
    place = place_of(error)
    where = f" (at {place})" if place else ""
    return describe_error(error)[: ERROR_CHARS - len(where)] + where


def place_of(error: BaseException) -> str:
    """That line, as `main.py:12, in compute_reward`; for an error from another process, what that one said."""
    own = [(frame, line) for frame, line in walk_tb(error.__traceback__) if _is_own(frame.f_code.co_filename)]
    place = error.__dict__.get(PLACE)
    if own and not place:
        frame, line = own[-1]
        place = f"{Path(frame.f_code.co_filename).name}:{line}, in {frame.f_code.co_name}"
    return clean(str(place or ""))[: ERROR_CHARS // 8]


def _is_own(file: str) -> bool:
    return not file.startswith(("<", _BENCHMAX, *_LIBRARIES)) and "site-packages" not in Path(file).parts


def describe_cause(error: BaseException) -> str:
    """The same without a full stop, to stand before one and a sentence of advice."""
    return describe_error(error).rstrip(".")


def error_message(error: BaseException) -> str:
    """`str(error)`; user code may define errors for which that raises."""
    try:
        return str(error)
    except Exception:
        return "(its message could not be read)"


def clean(text: str) -> str:
    """A text of user code as a record can hold it: bounded, and without lone surrogates."""
    return text[:ERROR_CHARS].encode("utf-8", "replace").decode("utf-8")


def plural(number: int, noun: str) -> str:
    """1 example, 2 examples."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'x'?` for a name that is nearly a known one, else an empty text: advice that many errors give."""
    import difflib  # only for a message

    near = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean {near[0]!r}?" if near else ""
