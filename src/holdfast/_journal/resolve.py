"""Resolve the ``journal=`` argument: a file, an address of a file, or a `Journal`."""

from __future__ import annotations

import math
import os
import re
from inspect import iscoroutinefunction

from holdfast._arguments import check_kind, check_methods
from holdfast._journal.protocol import Journal

__all__ = ["journal_file", "resolve_journal"]


def resolve_journal(journal: str | os.PathLike[str] | Journal) -> Journal:
    """Return the journal to use.

    Raises:
        ValueError: An address that names no file, or an in-memory database.
        TypeError: It is not a journal.
    """
    if isinstance(journal, str | os.PathLike):
        from holdfast._journal.sqlite import SqliteJournal  # not every Python has sqlite3

        return SqliteJournal(journal_file("journal", journal))
    check_methods("journal", journal)
    lease = getattr(journal, "lease", None)
    lacks = [method for method in _JOURNAL if not callable(getattr(journal, method, None))]
    if not isinstance(getattr(journal, "stores_messages", None), bool):
        lacks.append("stores_messages (a bool)")
    if not isinstance(lease, int | float) or not 0 < lease < math.inf:
        lacks.append("lease (seconds)")
    if lacks:
        kind = type(journal).__name__
        text = f"journal must be a file or a Journal; {kind} has no {', '.join(lacks)}"
        raise TypeError(text)
    return journal


_JOURNAL = tuple(name for name, member in vars(Journal).items() if iscoroutinefunction(member))
"""The methods of a journal."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def journal_file(name: str, journal: str | os.PathLike[str]) -> str:
    """Return the file of a journal.

    Args:
        name: The name of the option in error messages.
        journal: The file, or an address that names it.

    Raises:
        ValueError: An address that names no file.
        TypeError: A path of bytes.
    """
    address = os.fspath(journal)
    check_kind(name, address, str)
    scheme = _SCHEME.match(address)
    path = address.removeprefix("sqlite:///")
    if not path or (scheme and path == address):
        shown = address if scheme is None else f"{scheme[0]}…"
        text = f"{name} must be a file, such as 'calls.db' or 'sqlite:///calls.db', not {shown!r}"
        raise ValueError(text)
    return path
