"""Parsers of option values: text in, a value out, or a usage error with the reason."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from holdfast._cli.options.masking import masked_reference, names_user
from holdfast._wire.versions import BINDINGS, PROTOCOL_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.types import AuthenticationInfo, TaskState

__all__ = [
    "SHORT_BINDINGS",
    "Flow",
    "did_you_mean",
    "nearest",
    "read_bearer",
    "read_directory",
    "read_duration",
    "read_endpoint",
    "read_extension",
    "read_grace",
    "read_id",
    "read_journal",
    "read_key",
    "read_listen",
    "read_metadata",
    "read_push_credentials",
    "read_push_url",
    "read_rate",
    "read_run_id",
    "read_secret",
    "read_state",
    "read_svc_param",
    "read_switch",
    "read_time",
    "read_timeout",
    "read_transport",
    "read_version",
    "shown_duration",
    "shown_rate",
]

Flow = Literal["device-code", "client-credentials", "authorization-code"]
"""The flows of a login; all but the second require a person."""

_DURATION = r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+"
_DURATION_PART = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)"
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_WORD = r"[\w-]+"


def read_duration(text: str, advice: str = "") -> float:
    """Parse ``30``, ``30s``, ``500ms``, ``1m30s``, ``2h`` as seconds.

    Raises:
        ValueError: It is none of these, zero, or infinite.
    """
    compact = text.strip()
    if re.fullmatch(_NUMBER, compact):
        compact = f"{compact}s"
    if not re.fullmatch(_DURATION, compact):
        message = f"{text!r} is not a duration; write 30, 30s, 1m30s or 500ms"
        raise ValueError(message)
    seconds = sum(float(n) * _SECONDS[unit] for n, unit in re.findall(_DURATION_PART, compact))
    if not 0 < seconds < math.inf:
        message = f"{text!r} must be greater than 0 and finite; write 500ms, 30s or 1m30s{advice}"
        raise ValueError(message)
    return seconds


def read_timeout(text: str) -> float:
    """Parse the maximum time to wait.

    Raises:
        ValueError: It is not a duration.
    """
    return read_duration(text, "; to wait very long, write 1000h")


def read_grace(text: str) -> float:
    """Parse the time to wait for work in flight; ``0`` is not at all.

    Raises:
        ValueError: It is not a duration.
    """
    return 0.0 if re.fullmatch(_ZERO, text.strip()) else read_duration(text)


_ZERO = r"0+(?:\.0+)?(?:ms|s|m|h)?"


def read_switch(text: str) -> bool:
    """Read a switch: ``1``, ``true``, ``yes``, ``on`` or the opposite of each.

    Raises:
        ValueError: It is none of these.
    """
    is_on = click.types.BoolParamType.str_to_bool(text)
    if is_on is None:
        message = f"{text!r} is neither true nor false; write 1 or 0"
        raise ValueError(message)
    return is_on


def read_rate(text: str) -> float:
    """Parse ``50``, ``50/s``, ``3/min``, ``100/h`` as a number per second.

    Raises:
        ValueError: It is none of these, zero, or infinite.
    """
    match = re.fullmatch(_RATE, "".join(text.split()))
    if match is None:
        message = f"{text!r} is not a rate; write 50 or 50/s, 3/min or 100/h"
        raise ValueError(message)
    rate = float(match[1]) / _PER[match[2] or "s"]
    if not 0 < rate < math.inf:
        message = f"{text!r} must be greater than 0; leave it out for no limit"
        raise ValueError(message)
    return rate


def shown_rate(rate: float) -> str:
    """Return a rate for people to read, in a unit that makes it whole if there is one."""
    units = ((unit, rate * _PER[unit]) for unit in ("s", "min", "h"))
    unit, number = next(
        (candidate for candidate in units if candidate[1] >= 1), ("h", rate * 3600)
    )
    return f"{number:.15g}/{unit}"


_RATE = r"([0-9]+(?:\.[0-9]+)?)(?:/(s|sec|m|min|h))?"
_PER = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def shown_duration(seconds: float) -> str:
    """Return a duration for people to read."""
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:
        return f"{max(milliseconds, 1)}ms"
    hours, rest = divmod(milliseconds, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    pieces = ((hours, "h"), (minutes, "m"), (rest / 1000, "s"))
    return "".join(f"{number:g}{unit}" for number, unit in pieces if number)


def read_version(text: str) -> str:
    """Parse a protocol version, supported or not; a patch number is ignored (A2A 3.6).

    Returns:
        Its first two numbers, as ``0.3``.
    """
    version = re.fullmatch(_VERSION, text.strip())
    if version is None:
        versions = " or ".join(PROTOCOL_VERSIONS)
        message = f"{text!r} is not a protocol version; write it as {versions}"
        raise ValueError(message)
    return version[1]


_VERSION = r"([0-9]{1,5}\.[0-9]{1,5})(?:\.[0-9]{1,5})?"


def read_extension(text: str) -> str:
    """Parse the URI of an extension, which is sent in a header (A2A 14.2.2)."""
    from holdfast._arguments import check_extension_uris

    (uri,) = check_extension_uris([text.strip()])
    return uri


def read_transport(text: str) -> str:
    """Parse the name of a binding of the protocol, or its short name, ignoring case."""
    binding = text.strip().upper().replace("-", "")
    binding = SHORT_BINDINGS.get(binding.lower(), binding)
    if binding not in BINDINGS:
        advice = did_you_mean(text, (*BINDINGS, *SHORT_BINDINGS))
        message = f"{text!r} is not an A2A transport; holdfast supports {_BINDINGS}{advice}"
        raise ValueError(message)
    return binding


SHORT_BINDINGS = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON", "grpc": "GRPC"}
"""The names of bindings in the a2a command line."""

_BINDINGS = ", ".join(BINDINGS)
_OWN_PARAMETERS = {"a2a-version": "--a2a-version", "host": "--agent-card"}


def read_endpoint(text: str) -> str:
    """Parse the address of an agent's interface; a host without a scheme is for gRPC.

    Raises:
        ValueError: It is not an address.
    """
    from holdfast._arguments import check_url
    from holdfast._model.grpc_addresses import grpc_address, is_of_grpc_alone

    url = read_id(text).strip()
    if is_of_grpc_alone(url):
        if grpc_address(url) is None:
            message = f"{masked_reference(url)!r} is not a gRPC address, such as grpc://host:50051"
            raise ValueError(message)
        return url
    return check_url(url, "address") if "://" in url else url


def read_journal(text: str) -> str:
    """Parse the file or address of a journal, which is never standard input or output.

    Raises:
        ValueError: It is empty, or -.
    """
    if read_id(text) == "-":
        message = (
            "a journal is a file or a postgresql:// address, not -; a file of that name is ./-"
        )
        raise ValueError(message)
    return text


def read_directory(text: str) -> str:
    """Parse the path of a directory that may not exist yet.

    Raises:
        ValueError: It is a file, or below one.
    """
    path = Path(read_id(text)).expanduser()
    for place in (path, *path.parents):
        with contextlib.suppress(OSError):  # of the writing, then
            if place.exists() and not place.is_dir():
                message = f"{str(place)!r} is a file; name a directory"
                raise ValueError(message)
            if place.exists():
                break
    return text


def read_svc_param(text: str) -> tuple[str, str]:
    """Parse ``name:value`` as a valid HTTP header, the name in lower case."""
    from holdfast._wire.http import check_caller_headers

    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip(" \t")
    if not colon or not name:
        message = "a service parameter is written name:value"
        raise ValueError(message)
    if (flag := _OWN_PARAMETERS.get(name.lower())) is not None:
        message = f"{name} is set by {flag}"
        raise ValueError(message)
    ((lowered, checked),) = check_caller_headers({name: value}).items()
    return lowered, checked


def read_metadata(text: str) -> dict[str, Any]:
    """Parse a JSON object."""
    from holdfast._model import codec

    try:
        value = codec.parse(text.encode())
        codec.encode(value)
    except (ValueError, OverflowError) as error:
        path, hint = text.strip().removeprefix("@"), ""
        if path.endswith(".json") or os.path.isfile(path):  # noqa: PTH113  any text may stand there
            hint = f'; it takes JSON itself, not a file: "$(cat {shlex.quote(path)})"'
        message = f"is refused: {error}{hint}"
        raise ValueError(message) from None
    if not isinstance(value, dict):
        message = f"must be a JSON object, not {type(value).__name__}"
        raise ValueError(message)  # noqa: TRY004  it is the value of a flag
    return cast("dict[str, Any]", value)


def read_id(text: str) -> str:
    """Parse an identifier, or another text that must not be empty."""
    if not text.strip():
        message = "must not be empty"
        raise ValueError(message)
    try:
        text.encode()
    except UnicodeEncodeError:
        message = "is not UTF-8"
        raise ValueError(message) from None
    return text


def read_key(text: str) -> str:
    """Parse the key of a call."""
    return _key(text, "key")


def read_run_id(text: str) -> str:
    """Parse the name of a run."""
    return _key(text, "the name of a run")


def _key(text: str, name: str) -> str:
    from holdfast._arguments import check_key  # other options do not need it

    check_key(text, name)
    return text


def read_secret(text: str) -> str:
    """Parse a credential; no message shows it."""
    from holdfast._wire.http import check_headers

    secret = text.strip()
    if not secret:
        message = "must not be empty"
        raise ValueError(message)
    check_headers({"credential": secret})  # names the header, never the value
    return secret


def read_bearer(text: str) -> str:
    """Parse a bearer token; no message shows it."""
    from holdfast._wire.credentials import bearer_fault

    token = read_secret(text)
    if (fault := bearer_fault(token)) is not None:
        message = f"is {fault}"
        raise ValueError(message)
    return token


def read_push_url(text: str) -> str:
    """Parse the URL for push notifications; no message shows its possible secrets."""
    from holdfast._arguments import check_url

    url = text.strip()
    if names_user(url):
        message = "contains a user name or password; --push-credentials is the place for them"
        raise ValueError(message)
    if re.fullmatch(_WORD, url):
        message = (
            f"{url!r} is not an address; the task's id comes before the URL, which names a host"
        )
        raise ValueError(message)
    return check_url(url, "address")


def read_listen(text: str) -> tuple[str, int]:
    """Parse an address to listen on, as ``127.0.0.1:8080`` or ``[::1]:8080``."""
    host, colon, port = text.strip().rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) < 6 and int(port) < 65_536
    host = host.removeprefix("[").removesuffix("]")
    if not (host and colon and is_port):
        message = f"{text!r} is not HOST:PORT, as in 127.0.0.1:8080; port 0 takes a free one"
        raise ValueError(message)
    return host, int(port)


def read_push_credentials(text: str) -> AuthenticationInfo:
    """Parse the value of ``Authorization``, as ``Bearer TOKEN``; no message shows it."""
    from holdfast.types import AuthenticationInfo

    scheme, _, credentials = read_secret(text).partition(" ")
    credentials = credentials.strip()
    if not credentials and scheme.lower() != "bearer":  # it may be an unsigned token
        message = "is written SCHEME CREDENTIALS, as in Bearer TOKEN"
        raise ValueError(message)
    return AuthenticationInfo(scheme=scheme, credentials=credentials or None)


def read_state(text: str) -> TaskState:
    """Parse the name of a state: ``working``, ``input-required``, ``TASK_STATE_WORKING``."""
    from holdfast.types import TaskState

    name = text.strip().upper().replace("-", "_").removeprefix("TASK_STATE_")
    state = TaskState.__members__.get(name)
    if state is None or state is TaskState.UNSPECIFIED:  # which would be no filter
        states = state_names()
        advice = did_you_mean(name.lower().replace("_", "-"), states)
        message = f"{text!r} is not a task state; the states are {', '.join(states)}{advice}"
        raise ValueError(message)
    return state


def state_names() -> tuple[str, ...]:
    """Return the names of states, for people to read."""
    from holdfast.types import TaskState

    names = (name for name in TaskState.__members__ if name != "UNSPECIFIED")
    return tuple(name.lower().replace("_", "-") for name in names)


def read_time(text: str) -> datetime:
    """Parse a date or a time of ISO 8601; one without a zone is UTC."""
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        message = f"{text!r} is not a time; write 2026-11-21 or 2026-11-21T09:00:00Z"
        raise ValueError(message) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Return the name that a misspelled word is probably meant to be; None if none is like it."""
    from difflib import get_close_matches  # only mistakes need it

    by_lower = {name.lower(): name for name in names}
    similar = get_close_matches(word.strip().lower(), by_lower, n=1)
    return by_lower[similar[0]] if similar else None


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return the end of an error about a misspelled word: the nearest name, if one is like it."""
    similar = nearest(word, names)
    return "" if similar is None else f"; did you mean {similar}?"
