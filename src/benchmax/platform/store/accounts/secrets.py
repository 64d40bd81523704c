"""Secrets at rest: encrypted with the key in `secret.key`, written, never read back through the API.

The runner reads a run's secrets here, to hand them to that run's child process alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.fernet import Fernet, InvalidToken
from sqlalchemy import select
from sqlalchemy.orm import Session

from benchmax.errors import UsageError
from benchmax.files.atomic import write_text
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.tables import Secret


class Vault:
    """Encrypts and decrypts with one data directory's key."""

    def __init__(self, data: DataDir) -> None:
        if not data.secret_key.exists():
            # Server and runner start together: whoever is second takes the other's key.
            write_text(data.secret_key, Fernet.generate_key().decode(), keep=True, private=True)
        try:
            self._fernet = Fernet(data.secret_key.read_text().strip())
        except ValueError:
            raise UsageError(
                f"{data.secret_key} is damaged. Restore it from a backup; without it stored secrets are lost."
            ) from None

    def put(self, db: Session, owner_id: str, name: str, value: str, run_id: str = "") -> Secret:
        """Store a value under a name, in place of an earlier one."""
        row = find(db, owner_id, name, run_id)
        if row is None:
            row = Secret(owner_id=owner_id, run_id=run_id, name=name)
            db.add(row)
        row.ciphertext = self._fernet.encrypt(value.encode())
        db.flush()
        return row

    def reveal(self, row: Secret) -> str:
        try:
            return self._fernet.decrypt(row.ciphertext).decode()
        except InvalidToken:
            raise UsageError(f"The secret {row.name!r} was stored with another key. Set it again.") from None

    def copy(self, db: Session, run_id: str, other_id: str) -> None:
        """Copy the secrets one run was launched with to another."""
        for row in db.scalars(select(Secret).where(Secret.run_id == run_id)).all():
            self.put(db, row.owner_id, row.name, self.reveal(row), other_id)

    def for_run(self, db: Session, owner_id: str, run_id: str) -> Mapping[str, str]:
        """The values a run's child gets: the owner's own, then the launch's."""
        rows = db.scalars(select(Secret).where(Secret.owner_id == owner_id, Secret.run_id.in_(["", run_id])))
        return {row.name: self.reveal(row) for row in sorted(rows, key=lambda row: row.run_id)}


def find(db: Session, owner_id: str, name: str, run_id: str = "") -> Secret | None:
    query = select(Secret).where(Secret.owner_id == owner_id, Secret.run_id == run_id, Secret.name == name)
    return db.scalars(query).one_or_none()


def names(db: Session, owner_id: str) -> list[Secret]:
    """The owner's own secrets; only their names may be shown."""
    query = select(Secret).where(Secret.owner_id == owner_id, Secret.run_id == "")
    return list(db.scalars(query.order_by(Secret.name)))
