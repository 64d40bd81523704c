"""Keys and sign-in, at their documented path. The code is in `benchmax.platform.sdk.credentials`."""

from benchmax.platform.sdk.credentials import (
    as_token_provider,
    clear_castform_session,
    data_dir,
    ensure_session,
    env_token,
    poll_for_token,
    read_castform_session,
    request_device_code,
    resolve_judge_key,
    resolve_token_provider,
    write_castform_session,
)
from benchmax.platform.sdk.exceptions import DeviceAuthError

__all__ = [
    "DeviceAuthError",
    "as_token_provider",
    "clear_castform_session",
    "data_dir",
    "ensure_session",
    "env_token",
    "poll_for_token",
    "read_castform_session",
    "request_device_code",
    "resolve_judge_key",
    "resolve_token_provider",
    "write_castform_session",
]
