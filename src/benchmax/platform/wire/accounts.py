"""Users, API keys, signing in, secrets and the audit log."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from benchmax.platform.wire.base import PlainText, Time, Wire
from benchmax.platform.wire.values import Scope


class UserRequest(Wire):
    name: Annotated[str, Field(min_length=3, max_length=320, pattern=r"^[^\s\x00]+$")]
    """The address to sign in with."""
    password: str = Field(min_length=10, max_length=1000)
    role: Literal["admin", "member"] = "member"


class UserInfo(Wire):
    id: str
    name: str
    role: str
    has_password: bool
    created_at: Time
    runs: int


class UserList(Wire):
    users: list[UserInfo]


class KeyRequest(Wire):
    name: PlainText = Field(default="", max_length=200)
    scopes: list[Scope] = Field(default=["read", "write"], min_length=1, max_length=3)
    days: float | None = Field(default=None, gt=0, le=3650)
    """Until it expires; never when not given."""


class KeyInfo(Wire):
    id: str
    name: str
    prefix: str
    scopes: list[str]
    created_at: Time
    expires_at: Time | None
    last_used_at: Time | None
    revoked: bool


class NewKey(KeyInfo):
    key: str
    """The key itself, shown only here."""


class KeyList(Wire):
    keys: list[KeyInfo]


class WhoAmI(Wire):
    id: str
    email: str
    role: str
    scopes: list[str]
    via: str
    has_password: bool = False
    """Whether a password signs this user in."""


class AuditLine(Wire):
    id: int
    created_at: Time
    user_id: str | None
    actor: str
    action: str
    target: str
    address: str
    details: dict[str, Any]


class AuditList(Wire):
    entries: list[AuditLine]


def _variable(value: str) -> str:
    if "\0" in value:
        raise ValueError("an environment variable cannot hold a zero byte. Encode it, as base64 say.")
    return value


class SecretValue(Wire):
    value: Annotated[str, AfterValidator(_variable)] = Field(min_length=1, max_length=65_536)


class SecretName(Wire):
    name: str
    created_at: Time


class SecretList(Wire):
    secrets: list[SecretName]


class PasswordChange(Wire):
    current_password: str = Field(default="", max_length=1000)
    """Not needed by a person who signed in by link and has none."""
    new_password: str = Field(max_length=1000)


class SignOut(Wire):
    keys: bool = False
    """Revoke every API key too, but for the one this is asked with."""


class DeviceCodeRequest(BaseModel):
    client_id: str = Field(default="castform-cli", max_length=100)


class DeviceCodeAnswer(BaseModel):
    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: int
    interval: int


class DeviceTokenRequest(BaseModel):
    grant_type: str = Field(max_length=100)
    device_code: str = Field(max_length=200)
    client_id: str = Field(default="castform-cli", max_length=100)


class DeviceToken(BaseModel):
    access_token: str
    token_type: str = "Bearer"
    expires_in: int


class DeviceApproval(Wire):
    user_code: str = Field(max_length=20)
    approve: bool = True


class DeviceWaiting(Wire):
    """A device that asks to act as you."""

    user_code: str
    client_id: str
    address: str
    created_at: Time
    expires_at: Time


class TokenAnswer(BaseModel):
    token: str
