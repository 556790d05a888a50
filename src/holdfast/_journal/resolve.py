"""Resolve the ``journal=`` argument: a file, an address, or a `Journal`."""

from __future__ import annotations

import math
import os
import re
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from holdfast._arguments import check_kind, check_methods
from holdfast._journal.postgres_address import is_postgres
from holdfast._journal.protocol import Journal

if TYPE_CHECKING:
    from holdfast._journal.postgres import PostgresJournal
    from holdfast._journal.sqlite import SqliteJournal

__all__ = ["open_journal", "resolve_journal"]


class JournalOptions(TypedDict, total=False):
    """Options that the journals of all stores have."""

    store_messages: bool
    lease: float
    retention: float | None
    read_only: bool


def resolve_journal(journal: str | os.PathLike[str] | Journal) -> Journal:
    """Return the journal to use.

    Raises:
        ValueError: An address of no journal, or an in-memory database.
        TypeError: It is not a journal.
        ImportError: The extra for a database is not installed.
    """
    if isinstance(journal, str | os.PathLike):
        return open_journal("journal", journal)
    check_methods("journal", journal)
    lease = getattr(journal, "lease", None)
    lacks = [method for method in _JOURNAL if not callable(getattr(journal, method, None))]
    if not isinstance(getattr(journal, "stores_messages", None), bool):
        lacks.append("stores_messages (a bool)")
    if not isinstance(lease, int | float) or not 0 < lease < math.inf:
        lacks.append("lease (seconds)")
    if lacks:
        kind = type(journal).__name__
        text = f"journal must be a file, an address or a Journal; {kind} has no {', '.join(lacks)}"
        raise TypeError(text)
    return journal


_JOURNAL = tuple(name for name, member in vars(Journal).items() if iscoroutinefunction(member))
"""The methods of a journal."""

# "sqlite:calls.db" would otherwise be a file of that name.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(?:sqlite|postgres|postgresql):", re.IGNORECASE)


def open_journal(
    name: str, journal: str | os.PathLike[str], **options: Unpack[JournalOptions]
) -> SqliteJournal | PostgresJournal:
    """Return the journal at an address; nothing is opened before its first use.

    Args:
        name: The name of the option in error messages.
        journal: The file, an address that names it, or the address of a PostgreSQL database.
        options: Options of the journal.

    Raises:
        ValueError: An address of no journal, or an in-memory database.
        TypeError: A path of bytes.
        ImportError: The extra for a database is not installed.
    """
    address = os.fspath(journal)
    check_kind(name, address, str)
    if isinstance(journal, str) and is_postgres(journal):
        from holdfast._journal.postgres import PostgresJournal  # needs an extra

        return PostgresJournal(journal, **options)
    from holdfast._journal.sqlite import SqliteJournal  # not every Python has sqlite3

    return SqliteJournal(Path(_file(name, address)).expanduser(), **options)


def _file(name: str, address: str) -> str:
    scheme = _SCHEME.match(address)
    path = address.removeprefix("sqlite:///")
    if not path or (scheme and path == address):
        shown = address if scheme is None else f"{scheme[0]}…"
        text = (
            f"{name} must be a file, such as 'calls.db' or 'sqlite:///calls.db', or a database, "
            f"such as 'postgresql://host/name', not {shown!r}"
        )
        raise ValueError(text)
    return path
