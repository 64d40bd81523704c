"""Whether a bundle works: it is opened in a process of its own, with the packages that it declares."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from benchmax.bundle.compatibility import check_compatible, with_implied_packages
from benchmax.bundle.errors import BundlingError, ValidationError
from benchmax.bundle.metadata import Bundle
from benchmax.bundle.venv import envs_venv
from benchmax.concurrency import run_sync
from benchmax.errors import BenchmaxError, describe_cause


def validate_bundle(bundle: Bundle, constructor_args: Mapping[str, Any] | None = None) -> None:
    """Raise BundlingError unless the environment can be built and lists its tools.

    Its packages are installed into a virtual environment, which is removed afterwards.
    """
    from benchmax.envs.remote import RemoteEnv  # twice what packing a bundle needs to import
    from benchmax.rollouts.toolbox import Toolbox

    if constructor_args is not None:
        raise BundlingError("A bundle brings its constructor_args with it. Give them to dump_bundle instead.")
    check_compatible(bundle.pickled, bundle.metadata)
    whole = Bundle(bundle.pickled, with_implied_packages(bundle.pickled, bundle.metadata))
    with tempfile.TemporaryDirectory(prefix="benchmax-validate-") as cache:
        python = envs_venv(whole.metadata, cache)
        try:
            with closing(RemoteEnv(whole, python=python)) as env:
                Toolbox(run_sync(env.list_tools()))
        except BundlingError:
            raise
        except BenchmaxError as error:
            raise ValidationError(
                f"The environment in the bundle does not work: {describe_cause(error)}. Correct it, and pack it again."
            ) from error
