"""The keys that a command verifies cards with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from holdfast._cli.settings import Settings
    from holdfast.signatures import CardVerifier

__all__ = ["card_verifier"]


def card_verifier(settings: Settings) -> CardVerifier | None:
    """Who verifies cards, by what the command was told.

    Raises:
        click.UsageError: The keys cannot be read, or nobody can verify what must be.
    """
    if settings.card_keys is None and not settings.card_key_hosts:
        if settings.require_signature:
            message = "--require-signature: name keys by --card-keys or --card-key-host"
            raise click.UsageError(message)
        return None
    from holdfast.signatures import CardVerifier  # with an extra

    try:
        keys = None if settings.card_keys is None else _read_keys(settings.card_keys)
        return CardVerifier(keys, jku_hosts=settings.card_key_hosts)
    except (ValueError, ImportError) as error:
        flag = "--card-key-host" if settings.card_keys is None else "--card-keys"
        message = f"{flag}: {error}"
    raise click.UsageError(message)


def _read_keys(reference: str) -> str:
    if "://" in reference and not reference.startswith("file://"):
        return reference
    path = Path(reference.removeprefix("file://")).expanduser()
    try:
        keys = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        message = f"{reference} cannot be read: {why}"
        raise ValueError(message) from None
    if not keys.lstrip().startswith(("{", "-----BEGIN ")):  # which would be taken for an address
        message = f"{reference} holds neither a JWK set nor a key as PEM"
        raise ValueError(message)
    return keys
