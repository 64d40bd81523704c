"""Which model a caller means: one of this machine, one of the caller's endpoints, or a server the caller names.

When no model is chosen, published clients send the hosted service's address and the name of a hosted model. That
address, this server's own and an empty one mean the platform itself; an unknown name means its default model, and the
answer says so. Any other address is called directly, and never with a key of this platform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from benchmax.config import base_domain
from benchmax.errors import NotFoundError, UsageError, did_you_mean
from benchmax.models.address_rules import AddressRules, check_literal
from benchmax.net.origins import origin
from benchmax.platform.server.error_responses import required
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services.live_sessions import reach_of
from benchmax.platform.server.settings import ServerSettings
from benchmax.platform.store.accounts import api_keys
from benchmax.platform.store.statements import get_if
from benchmax.platform.store.tables import Endpoint, Secret
from benchmax.platform.wire.rollout_requests import DEFAULT_MODEL, RolloutLlm

DEFAULT_ENDPOINT = "default"
"""An endpoint of this name stands for every model the platform does not have."""
PUBLISHED_DOMAIN = "castform.com"


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """The model to ask."""

    model: str
    base_url: str = ""
    """Empty: it runs on this machine."""
    api_key: str = field(default="", repr=False)
    api_version: str = ""
    note: str = ""
    """Says that another model answers than the one requested, where it does."""

    def to_dict(self, settings: ServerSettings) -> dict[str, Any]:
        """As it is sent to a live session's process."""
        return {**asdict(self), "reach": reach_of(settings)}


def choose(services: Services, user_id: str, llm: RolloutLlm) -> ChosenModel:
    """The model a request names; UsageError when the platform's key would leave it."""
    hosted = is_hosted(llm.base_url)
    if not llm.base_url or hosted or is_here(services.settings, llm.base_url):
        return choose_own(services, user_id, llm.model, hosted=hosted)
    with services.database.read() as db:
        api_keys.refuse_own_key(db, llm.base_url, llm.api_key)
    return ChosenModel(llm.model, llm.base_url, llm.api_key, llm.api_version)


def choose_own(services: Services, user_id: str, asked: str, *, hosted: bool = False) -> ChosenModel:
    """The platform's model of that name; for one it cannot have, its default model with a note.

    A name much like one of this machine's is a typing error, unless it was meant for the hosted service.
    """
    stored, known = local_names()
    hosted = hosted or asked == DEFAULT_MODEL
    with services.database.read() as db:
        endpoints = endpoints_of(db, user_id)
        named = [each for each in endpoints if asked == each.name]
        if found := named or [each for each in endpoints if asked == each.model]:
            return _reach(services, db, found[0])
        if asked in (*stored, *known):
            return ChosenModel(asked)
        hint = did_you_mean(asked, {*stored, *known})
        if hint and not hosted:
            names = ", ".join(sorted({*stored, *known, *(each.name for each in endpoints)}))
            raise NotFoundError(f"There is no model {asked!r} here. {hint} There are {names}.")
        return _default(services, db, endpoints, asked)


def local_names() -> tuple[list[str], list[str]]:
    """Models of this machine: those that are here, and those that can be fetched."""
    from benchmax.inference.weights.store import KNOWN, list_models

    stored = [each.card.name for each in list_models()]
    return sorted(stored, key=lambda name: name not in KNOWN), [name for name in KNOWN if name not in stored]


def endpoints_of(db: Session, user_id: str) -> list[Endpoint]:
    return list(db.scalars(select(Endpoint).where(Endpoint.owner_id == user_id).order_by(Endpoint.created)))


def own_endpoint(db: Session, user_id: str, endpoint_id: str) -> Endpoint:
    """The user's endpoint of that id; Refused (404) when there is none."""
    found = get_if(db, Endpoint, endpoint_id, owner_id=user_id)
    return required(found, "You have no such endpoint. `benchmax endpoints list` shows yours.")


def is_hosted(url: str) -> bool:
    """Whether an address is the hosted service's, which clients name by default."""
    domains = (PUBLISHED_DOMAIN, base_domain())
    return origin(url).host in {f"{name}.{domain}" for name in ("llm", "api") for domain in domains}


def is_here(settings: ServerSettings, url: str) -> bool:
    """Whether an address is this server's own."""
    own = {(host, settings.port) for host in settings.hosts}
    return origin(url)[1:] in own | ({origin(settings.public_url)[1:]} if settings.public_url else set())


def check_elsewhere(settings: ServerSettings, url: str, advice: str) -> None:
    """Refuse an address that leads inside, or to this server itself; `advice` says what to name in its place."""
    check_literal(url, AddressRules.of(reach_of(settings)))
    if is_here(settings, url):
        raise UsageError(f"This is the platform's own address. {advice}")


def _reach(services: Services, db: Session, endpoint: Endpoint, note: str = "") -> ChosenModel:
    if is_here(services.settings, endpoint.base_url):
        raise UsageError(f"The endpoint {endpoint.name!r} is this platform itself. Remove it; name its model instead.")
    secret = db.get(Secret, endpoint.secret_id) if endpoint.secret_id else None
    key = services.vault.reveal(secret) if secret is not None else ""
    api_keys.refuse_own_key(db, endpoint.base_url, key)
    return ChosenModel(endpoint.model, endpoint.base_url, key, note=note)


def _default(services: Services, db: Session, endpoints: Sequence[Endpoint], asked: str) -> ChosenModel:
    stored, known = local_names()
    preferred = next((each for each in endpoints if each.name == DEFAULT_ENDPOINT), None)
    if preferred is None and not stored:
        preferred = next(iter(endpoints), None)
    name = preferred.model if preferred else [*stored, *known][0]
    note = f"The platform has no model {asked[:200]!r}; {name} answers in its place." if asked else ""
    return _reach(services, db, preferred, note) if preferred else ChosenModel(name, note=note)
