"""The address of a PostgreSQL journal: a connection string with a few options of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PostgresAddress", "is_postgres", "parse_address"]

_SCHEMES = ("postgresql://", "postgres://")

_OWN_OPTIONS = frozenset({"schema", "pool_size"})

_DEFAULT_POOL_SIZE = 4
_MAX_POOL_SIZE = 100
_DEFAULT_SCHEMA = "holdfast"

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
"""Names that PostgreSQL reads the same with and without quotes."""

_QUOTED = re.compile(r'"[^"]*"')

_DEFAULTS = {
    "application_name": "holdfast",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
"""Parameters of libpq that find a dead server in seconds, unless the address sets others."""


class PostgresAddress(NamedTuple):
    """Where a journal is.

    Attributes:
        parameters: The parameters of libpq, with the password.
        shown: The address for people, without the password.
        schema: The schema of the journal's tables.
        pool_size: Connections of one process, at most.
    """

    parameters: Mapping[str, str]
    shown: str
    schema: str
    pool_size: int


def is_postgres(address: str) -> bool:
    """Return whether an address of a journal is one of PostgreSQL."""
    return address.startswith(_SCHEMES)


def parse_address(dsn: str) -> PostgresAddress:
    """Parse a connection string.

    Args:
        dsn: A URI or a list of keywords and values, as libpq reads them. The query of a URI may
            have the journal's own options ``schema`` and ``pool_size``.

    Raises:
        ValueError: libpq cannot read it, or an option is not valid; without the text of the
            address, which may hold a password.
    """
    from psycopg import ProgrammingError  # the extra is needed only here
    from psycopg.conninfo import conninfo_to_dict

    address, own = _split(dsn)
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(address).items() if value}
    except (ProgrammingError, UnicodeError) as error:
        text = f"the address of the journal is not a PostgreSQL connection string: {_why(error)}"
        raise ValueError(text) from None
    schema = own.get("schema", _DEFAULT_SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema):
        text = "schema must be lower-case letters, digits and _, at most 63 of them"
        raise ValueError(text)
    pool_size = own.get("pool_size", str(_DEFAULT_POOL_SIZE))
    if not (pool_size.isascii() and pool_size.isdigit() and 0 < int(pool_size) <= _MAX_POOL_SIZE):
        text = f"pool_size must be a number from 1 to {_MAX_POOL_SIZE}"
        raise ValueError(text)
    return PostgresAddress({**_DEFAULTS, **given}, _shown(given, schema), schema, int(pool_size))


def _shown(given: Mapping[str, str], schema: str) -> str:
    """Return the URI of a journal without its password, and without options of no meaning."""
    host = given.get("host", given.get("hostaddr", ""))
    is_directory = "/" in host or "," in host  # or several hosts
    server = "" if is_directory else host
    server += f":{given['port']}" if "port" in given else ""
    user = f"{given['user']}@" if "user" in given else ""
    options = {
        "host": host if is_directory else "",
        "service": given.get("service", ""),
        "schema": "" if schema == _DEFAULT_SCHEMA else schema,
    }
    query = "&".join(f"{name}={text}" for name, text in options.items() if text)
    return f"postgresql://{user}{server}/{given.get('dbname', '')}" + (query and f"?{query}")


def _split(dsn: str) -> tuple[str, dict[str, str]]:
    """Return the connection string for libpq, and the journal's own options."""
    if not is_postgres(dsn):
        return dsn, {}
    head, mark, query = dsn.partition("?")
    members = [member.partition("=") for member in query.split("&")]
    own = {name: unquote(value) for name, _, value in members if name in _OWN_OPTIONS}
    rest = "&".join("".join(member) for member in members if member[0] not in _OWN_OPTIONS)
    return head + (mark + rest if rest else ""), own


def _why(error: Exception) -> str:
    """Return libpq's reason without the parts that it quotes, except the names of parameters."""
    text = str(error).strip()
    is_name = re.search(r'(?:parameter|option): "([a-z_]{1,40})"', text)
    return text if is_name and text.count('"') == 2 else _QUOTED.sub('"…"', text)
