"""Validation of callers' arguments.

Every check raises a `TypeError` for an argument of another type, and a `ValueError` for an invalid
one, before anything is sent. The message is one line, and quotes no secret. A check that returns a
value returns the checked argument.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, TypeVar, cast, get_args
from unicodedata import category
from urllib.parse import urlsplit

from holdfast._model.addresses import address_fault, has_user, is_http_address
from holdfast._model.hosts import ip_literal
from holdfast._model.sdk_values import is_of_sdk, kind_of
from holdfast._model.sendable import check_json, check_sendable, check_text
from holdfast._model.settings import (
    check_count,
    check_kind,
    check_number,
    explains_unknown_options,
    suggestion,
)
from holdfast._wire.bindings import BINDINGS
from holdfast._wire.http import check_caller_headers, check_headers
from holdfast._wire.network_scope import AgentReach, Network, NetworkReach, network
from holdfast.types import SendMessageConfiguration, TaskPushNotificationConfig

__all__ = [
    "MAX_KEY_LENGTH",
    "check_caller_headers",
    "check_configuration",
    "check_count",
    "check_credential",
    "check_duration",
    "check_extension_uris",
    "check_headers",
    "check_hook",
    "check_hooks",
    "check_interceptors",
    "check_items",
    "check_json_object",
    "check_key",
    "check_kind",
    "check_methods",
    "check_networks",
    "check_not_empty",
    "check_not_negative",
    "check_observers",
    "check_one_of",
    "check_options",
    "check_port",
    "check_producer",
    "check_push_config",
    "check_rate",
    "check_seconds",
    "check_url",
    "explains_unknown_options",
    "format_timestamp",
]

T = TypeVar("T")

_SECONDS = "number of seconds"

_MAX_SHOWN_CHARACTERS = 200
"""Maximum length of an address or text in a message."""

_MAX_PORT = 65535

_PATH = re.compile(
    r"(?:~|\.{0,2}[/\\](?!/)|[A-Za-z]:[/\\](?!/)|(?!localhost/)(?:[^/.:]+/[^:]*|[^/:]+)\.json\Z)"
)
"""Path of a file, which callers pass by mistake in place of an address."""


def check_seconds(name: str, seconds: float) -> float:
    """Check a timeout or an interval in seconds: more than 0, and finite."""
    check_number(name, seconds, _SECONDS)
    if not 0 < seconds < math.inf:
        text = f"{name} must be a positive number of seconds, not {seconds}"
        raise ValueError(text)
    return seconds


def check_one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Check that a value is one of the choices."""
    check_kind(name, value, str)
    if value not in choices:
        text = f"{name} must be one of {', '.join(choices)}, not {value!r}"
        raise ValueError(text)


def check_options(
    target: str,
    names: Iterable[str],
    allowed: Sequence[str],
    *,
    function: Callable[..., Any] | None = None,
) -> None:
    """Check the names of options that are forwarded.

    Args:
        target: Name of the recipient in messages, such as "a call".
        names: Names of the options.
        allowed: Allowed names.
        function: Function or class that the caller calls; its own arguments are suggested, too.
    """
    for name in names:
        if name not in allowed:
            hint = suggestion(name, (*_keyword_arguments(function), *allowed))
            text = f"{name!r} is not an option of {target}; {hint}"
            raise TypeError(text)


def _keyword_arguments(function: Callable[..., Any] | None) -> list[str]:
    """Return the names of a function's arguments that can be passed by keyword."""
    if function is None:
        return []
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind in kinds and parameter.name != "self"
    ]


def check_rate(name: str, rate: float) -> float:
    """Check a rate per second: more than 0, and finite."""
    check_number(name, rate)
    if not 0 < rate < math.inf:
        text = f"{name} must be a positive number, not {rate}"
        raise ValueError(text)
    return rate


def check_duration(name: str, seconds: float) -> float:
    """Check a duration in seconds: at least 0; infinity is allowed."""
    check_number(name, seconds, _SECONDS)
    if not seconds >= 0:
        text = f"{name} must be zero or more seconds, not {seconds}"
        raise ValueError(text)
    return seconds


def check_port(name: str, port: int) -> int:
    """Check a port to listen on; 0 means any free port."""
    check_count(name, port)
    if port > _MAX_PORT:
        text = f"{name} must be between 0 and {_MAX_PORT}, not {port}"
        raise ValueError(text)
    return port


def check_url(
    url: object,
    subject: str,
    *,
    any_scheme: bool = False,
    or_path: bool = False,
    no_user: str = "pass them as auth= instead",
) -> str:
    """Check an absolute URL; messages omit its query and fragment, which may be secret.

    Args:
        url: The caller's value.
        subject: Name of the value in messages.
        any_scheme: Accept schemes other than ``http`` and ``https``, such as gRPC's ``dns:``.
        or_path: The function also accepts a `Path`; a message may suggest it.
        no_user: Advice for a URL with a user name or password.
    """
    if not isinstance(url, str):
        text = f"the {subject} must be a string, not {type(url).__name__}"
        raise TypeError(text)
    if url.lstrip().startswith("{"):
        card = "; a card is passed as an AgentCard" if or_path else ""
        text = f"the {subject} is JSON{card}"
        raise ValueError(text)
    shown = re.split(r"[?#]", url, maxsplit=1)[0]
    if has_user(url):
        text = f"the {subject} contains a user name or password; {no_user}"
        raise ValueError(text)
    if len(shown) > _MAX_SHOWN_CHARACTERS:
        shown = f"{shown[:_MAX_SHOWN_CHARACTERS]}…"
    if or_path and _PATH.match(shown):
        home = ".expanduser()" if shown.startswith("~") else ""
        text = (
            f"the {subject} {shown!r} must begin with http:// or https://; a file is named by a "
            f"Path: did you mean Path({shown!r}){home}?"
        )
        raise ValueError(text)
    fault = address_fault(url)
    if fault is None and "#" in url:
        fault = "has a fragment (#…), which requests cannot carry; remove it"
    if fault is not None:
        text = f"the {subject} {shown!r} {fault}"
        raise ValueError(text)
    parts = urlsplit(url)
    is_accepted = any_scheme and bool(parts.scheme)
    if is_accepted and not parts.hostname:
        return url  # such as gRPC's dns:///agent.example.com:50051
    if not (is_accepted or parts.scheme in {"http", "https"}) or not parts.hostname:
        hint = f"; did you mean {_with_scheme(shown)}?" if _lacks_scheme(shown) else ""
        text = f"the {subject} {shown!r} must begin with http:// or https:// and name a host{hint}"
        raise ValueError(text)
    return url


def _lacks_scheme(shown: str) -> bool:
    """Return whether only ``http://`` is missing for the text to be an address."""
    is_other = _PATH.match(shown) or shown.startswith(("http:", "https:"))
    return "://" not in shown and not is_other and is_http_address(f"http://{shown}")


def _with_scheme(shown: str) -> str:
    """Return an address with the scheme that its host probably has."""
    host = urlsplit(f"//{shown}").hostname or ""
    is_near = "." not in host or ip_literal(host) is not None
    return f"http://{shown}" if is_near else f"https://{shown}"


_NETWORK_TYPES = (IPv4Address, IPv4Network, IPv6Address, IPv6Network)
"""Parsed networks and addresses; the classes of interfaces are subclasses of the addresses'."""


def check_networks(name: str, values: Iterable[str]) -> tuple[Network, ...]:
    """Parse networks, such as ``10.0.0.0/8``, or single addresses."""
    networks: list[Network] = []
    for text in check_items(name, values):
        if not isinstance(cast("object", text), _NETWORK_TYPES):
            check_kind(f"one of {name}", text, str)
        try:
            networks.append(network(text))
        except ValueError:
            message = f"{text!r} in {name} is not a network, such as '10.0.0.0/8'"
            raise ValueError(message) from None
    return tuple(networks)


def check_reach(reach: AgentReach, networks: tuple[Network, ...]) -> NetworkReach | None:
    """Return the networks that a client may reach; None for no limit.

    Args:
        reach: ``"any"`` or ``"public"``.
        networks: Networks that the client may always reach.
    """
    check_one_of("reach", reach, get_args(AgentReach))
    return NetworkReach(allowed=networks, is_strict=True) if reach == "public" else None


def check_methods(name: str, value: object, *methods: str) -> None:
    """Check that an object has the methods of a protocol."""
    _check_instance(name, value)
    if not all(callable(getattr(value, method, None)) for method in methods):
        text = f"{name} must have the methods {', '.join(methods)}; {type(value).__name__} has not"
        raise TypeError(text)


def check_hook(name: str, value: object, *, besides: str = "") -> None:
    """Check that a value is a function, or another callable.

    Args:
        name: Name of the value in messages.
        value: The caller's value.
        besides: Other accepted values, for the message, such as "a CardVerifier or "; the caller
            accepts them before this check.
    """
    _check_instance(name, value)
    if not callable(value):
        text = f"{name} must be {besides}a function, not {type(value).__name__}"
        raise TypeError(text)


def check_hooks(name: str, values: Iterable[T], *methods: str) -> tuple[T, ...]:
    """Check that each hook has certain methods; a class is accepted only for ``__call__``."""
    checked = check_items(name, values)
    for hook in checked:
        if methods != ("__call__",):
            _check_instance(f"each of {name}", hook)
        if not all(callable(getattr(hook, method, None)) for method in methods):
            kind = type(hook).__name__
            text = f"each of {name} must have {' and '.join(methods)}; {kind} has not"
            if methods == ("__call__",):
                text = f"each of {name} must be callable; {kind} is not"
            raise TypeError(text)
    return checked


def check_interceptors(interceptors: Iterable[T]) -> tuple[T, ...]:
    """Check interceptors; those of the official SDK have other arguments."""
    checked = check_items("interceptors", interceptors)
    for interceptor in checked:
        if any(is_of_sdk(base) for base in type(interceptor).__mro__):
            text = (
                f"{type(interceptor).__name__} is an interceptor of the official SDK; derive it "
                "from holdfast.extend.Interceptor, whose before(call) returns the call and "
                "after(call, outcome) the outcome; credentials are passed as auth="
            )
            raise TypeError(text)
    return check_hooks("interceptors", checked, "before", "after")


def check_producer(name: str, producer: object) -> None:
    """Check a function that makes the transports of a binding; the SDK's are of another kind."""
    if isinstance(producer, type) and any(is_of_sdk(base) for base in producer.__mro__):
        text = (
            f"{producer.__name__} is a transport of the official SDK: register it in a factory of "
            f"the SDK; Holdfast's own client needs none for {', '.join(BINDINGS)}"
        )
        raise TypeError(text)
    check_hooks(name, (producer,), "__call__")


def check_observers(observers: Iterable[T]) -> tuple[T, ...]:
    """Check observers, which are called but not awaited."""
    checked = check_hooks("observers", observers, "__call__")
    for observer in checked:
        method = getattr(type(observer), "__call__", None)  # noqa: B004  it is callable
        function: Any = observer
        while isinstance(function, functools.partial):
            function = function.func
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method):
            name = getattr(function, "__name__", type(observer).__name__)
            text = (
                f"each of observers must be a plain function, but {name} is a coroutine function, "
                "which would never be awaited; put the observation into a queue instead"
            )
            raise TypeError(text)
    return checked


def check_extension_uris(extensions: Iterable[str]) -> tuple[str, ...]:
    """Check URIs of extensions, which go into one header, and remove repeated ones."""
    checked = check_items("extensions", extensions)
    uris = tuple(check_not_empty("one of extensions", uri) for uri in checked)
    for uri in uris:
        if "," in uri:
            text = f"the extension {uri!r} has a comma; the protocol separates URIs by commas"
            raise ValueError(text)
    check_headers({"a2a-extensions": ",".join(uris)})
    return tuple(dict.fromkeys(uris))


def _check_instance(name: str, value: object) -> None:
    if isinstance(value, type):
        text = f"{name} must be an instance, not the class {value.__name__}"
        raise TypeError(text)


def check_items(name: str, values: Iterable[T]) -> tuple[T, ...]:
    """Check and copy a sequence."""
    check_iterable(name, values, Iterable)
    return tuple(values)


def check_iterable(name: str, values: object, *kinds: type) -> None:
    """Check that a value can be iterated over, and is not a single item.

    Args:
        name: Name of the value in messages.
        values: The caller's value.
        kinds: Accepted classes, such as `Iterable`.
    """
    if not isinstance(values, kinds) or _is_single_item(values):
        text = f"{name} must be a sequence, not {type(values).__name__}{_as_list(values)}"
        raise TypeError(text)


def _is_single_item(value: object) -> bool:
    """Return whether a value is a string or a mapping; `dict.fromkeys` makes an ordered set."""
    if not isinstance(value, Mapping):
        return isinstance(value, str | bytes)
    members = cast("Mapping[object, object]", value).values()
    return any(member is not None for member in members)


def _as_list(value: object) -> str:
    """Return advice to pass a single item in a list; empty for other values."""
    if isinstance(value, str):
        is_short = len(value) <= _MAX_SHOWN_CHARACTERS
        shown = repr(value) if is_short and not re.search(r"[?@]", value) else "…"
    elif callable(value):
        shown = getattr(value, "__name__", "…")
    elif isinstance(value, Mapping):
        shown = "{…}"
    else:
        return ""
    return f"; pass a list: [{shown}]"


def check_json_object(name: str, value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Check and copy an optional JSON object."""
    if value is None:
        return None
    if not isinstance(cast("object", value), Mapping):
        text = f"{name} must be a dict, not {kind_of(value, dict)}"
        raise TypeError(text)
    copied = dict(value)
    check_json(name, copied)
    return copied


def check_not_empty(name: str, value: str) -> str:
    """Check a text, such as an id; a path with an empty id would list all tasks."""
    _check_filled(name, value)
    if not value.isascii():
        check_text(name, value)
    return value


MAX_KEY_LENGTH = 512
"""Characters of the key of a call, and of the name of a run, at most."""


def check_key(key: str, name: str = "key") -> None:
    """Check a name in the journal: from 1 to 512 characters, without control characters.

    Args:
        key: The key of a call, or the name of a run.
        name: The name of the argument.

    Raises:
        ValueError: The key is empty or too long, or has control characters.
        TypeError: The key is not a string.
    """
    check_not_empty(name, key)
    if len(key) > MAX_KEY_LENGTH:
        text = f"{name} must have at most {MAX_KEY_LENGTH} characters, not {len(key)}"
        raise ValueError(text)
    control = next((character for character in key if category(character) == "Cc"), None)
    if control is not None:
        text = f"{name} must not contain control characters; it has {control!r}"
        raise ValueError(text)


def _check_filled(name: str, value: str) -> None:
    if not isinstance(cast("object", value), str):
        text = f"{name} must be a string, not {kind_of(value, str)}"
        raise TypeError(text)
    if not value:
        text = f"{name} must not be empty"
        raise ValueError(text)


def check_credential(name: str, value: str) -> None:
    """Check that a credential is neither empty nor the text ``None`` of a missing variable."""
    _check_filled(name, value)
    words = value.split()
    if not words:
        text = f"{name} must not be empty"
        raise ValueError(text)
    if words[-1] == "None" and len(words) <= 2:
        text = f"{name} contains None instead of a credential: is an environment variable unset?"
        raise ValueError(text)


def check_configuration(configuration: SendMessageConfiguration) -> SendMessageConfiguration:
    """Check the configuration of messages, from a client, a factory or a call."""
    modes = "accepted_output_modes"
    for media_type in check_items(modes, configuration.accepted_output_modes):
        check_not_empty(f"one of {modes}", media_type)
    check_not_negative("history_length", configuration.history_length)
    check_kind("return_immediately", configuration.return_immediately, bool)
    if configuration.task_push_notification_config is not None:
        check_push_config(
            "the push notification config", configuration.task_push_notification_config
        )
    return configuration


def check_push_config(name: str, config: TaskPushNotificationConfig) -> None:
    """Check the configuration of a push receiver, for the agent."""
    check_kind(name, config, TaskPushNotificationConfig)
    check_not_empty(f"{name}.url", config.url)
    check_sendable(name, config)


def check_not_negative(name: str, value: int | None) -> int | None:
    """Check an optional count."""
    if value is not None:
        check_count(name, value)
    return value


def format_timestamp(name: str, value: datetime | str | None) -> str | None:
    """Return a time in RFC 3339, in UTC with milliseconds (A2A 5.6.1); text is returned unchanged.

    Args:
        name: Name of the value in messages.
        value: The caller's value; a datetime without a time zone counts as UTC.
    """
    if value is None:
        return None
    if not isinstance(value, datetime):
        check_kind(name, value, str, or_else=" or datetime")
        return check_not_empty(name, value)
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
