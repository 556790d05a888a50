"""Checks of what callers pass: each wrong argument gets one helpful line, and no secret in it.

A value of the wrong type is a `TypeError`, one that cannot be right a `ValueError`; both come
before anything is sent.
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
from urllib.parse import urlsplit

from holdfast._model.addresses import address_fault, has_user, is_http_address
from holdfast._model.sendable import check_json, check_sendable, check_text
from holdfast._model.settings import check_count, check_kind, check_number, suggestion
from holdfast._wire.http import check_headers
from holdfast._wire.network_scope import AgentReach, Network, NetworkReach, network
from holdfast.types import SendMessageConfiguration, TaskPushNotificationConfig

__all__ = [
    "check_able",
    "check_age",
    "check_configuration",
    "check_credential",
    "check_hook",
    "check_kind",
    "check_networks",
    "check_one_of",
    "check_options",
    "check_port",
    "check_push_config",
    "check_rate",
    "check_seconds",
    "check_url",
    "extension_uris",
    "hooks",
    "items",
    "json_object",
    "not_empty",
    "not_negative",
    "observer_hooks",
    "timestamp",
]

T = TypeVar("T")

_OF_SECONDS = "number of seconds"

_SHOWN = 200
"""Characters of an address that a message shows at most."""

_LAST_PORT = 65535

_PATH = re.compile(
    r"(?:~|\.{0,2}[/\\](?!/)|[A-Za-z]:[/\\](?!/)|(?!localhost/)(?:[^/.:]+/[^:]*|[^/:]+)\.json\Z)"
)
"""What nobody means as an address: a path to a file, written into a string."""


def check_seconds(name: str, seconds: float) -> float:
    """Checks how long to wait: a positive number of seconds that has an end."""
    check_number(name, seconds, _OF_SECONDS)
    if not 0 < seconds < math.inf:
        text = f"{name} must be a positive number of seconds, not {seconds}"
        raise ValueError(text)
    return seconds


def check_one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Checks that a value is one of a few words."""
    check_kind(name, value, str)
    if value not in choices:
        text = f"{name} must be one of {', '.join(choices)}, not {value!r}"
        raise ValueError(text)


def check_options(
    what: str,
    given: Iterable[str],
    known: Sequence[str],
    *,
    of: Callable[..., Any] | None = None,
) -> None:
    """Checks the names of options that go through; one that is nearly right is suggested.

    Args:
        what: What messages call that which takes them.
        given: The names.
        known: The options that there are.
        of: The function that takes them, whose own arguments are suggested as well.
    """
    for name in given:
        if name not in known:
            hint = suggestion(name, (*_arguments_of(of), *known))
            text = f"{name!r} is not an option of {what}; {hint}"
            raise TypeError(text)


def _arguments_of(function: Callable[..., Any] | None) -> list[str]:
    """The arguments of a function, or of a method of a class, that can be passed by name."""
    if function is None:
        return []
    parameters = inspect.signature(function).parameters.values()
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [one.name for one in parameters if one.kind in by_name and one.name != "self"]


def check_rate(name: str, rate: float) -> float:
    """Checks how often in a second: a positive number that has an end."""
    check_number(name, rate)
    if not 0 < rate < math.inf:
        text = f"{name} must be a positive number, not {rate}"
        raise ValueError(text)
    return rate


def check_age(name: str, seconds: float) -> float:
    """Checks how long to keep something: zero for not at all, infinity for always."""
    check_number(name, seconds, _OF_SECONDS)
    if not seconds >= 0:
        text = f"{name} must be zero or more seconds, not {seconds}"
        raise ValueError(text)
    return seconds


def check_port(name: str, port: int) -> int:
    """Checks the number of a port; 0 is any that is free."""
    check_count(name, port)
    if port > _LAST_PORT:
        text = f"{name} must be between 0 and {_LAST_PORT}, not {port}"
        raise ValueError(text)
    return port


def check_url(
    url: object,
    what: str,
    *,
    any_scheme: bool = False,
    or_path: bool = False,
    no_user: str = "pass them as auth= instead",
) -> str:
    """Checks an address; what may be secret in it, such as the query, is not shown.

    Args:
        url: What the caller passes.
        what: What messages call it.
        any_scheme: Whether schemes other than HTTP's will do.
        or_path: Whether a `Path` would be taken in its place.
        no_user: What to do instead where it holds a user name or password.
    """
    if not isinstance(url, str):
        text = f"the {what} must be a string, not {type(url).__name__}"
        raise TypeError(text)
    if url.lstrip().startswith("{"):
        card = "; a card is passed as an AgentCard" if or_path else ""
        text = f"the {what} is JSON{card}"
        raise ValueError(text)
    shown = re.split(r"[?#]", url, maxsplit=1)[0]
    if has_user(url):
        text = f"the {what} holds a user name or password; {no_user}"
        raise ValueError(text)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}…"
    if or_path and _PATH.match(shown):
        home = ".expanduser()" if shown.startswith("~") else ""
        text = (
            f"the {what} {shown!r} must begin with http:// or https://; a file is named by a "
            f"Path: did you mean Path({shown!r}){home}?"
        )
        raise ValueError(text)
    why = address_fault(url)
    if why is None and "#" in url:
        why = "has a fragment (#…), which no request carries: leave it out"
    if why is not None:
        text = f"the {what} {shown!r} {why}"
        raise ValueError(text)
    parts = urlsplit(url)
    known = any_scheme and bool(parts.scheme)
    if known and not parts.hostname:
        return url  # such as gRPC's dns:///agent.example.com:50051
    if not (known or parts.scheme in {"http", "https"}) or not parts.hostname:
        hint = f"; did you mean http://{shown}?" if _lacks_scheme(shown) else ""
        text = f"the {what} {shown!r} must begin with http:// or https:// and name a host{hint}"
        raise ValueError(text)
    return url


def _lacks_scheme(shown: str) -> bool:
    """Whether an address would be one with ``http://`` before it."""
    is_begun = _PATH.match(shown) or shown.startswith(("http:", "https:"))
    return "://" not in shown and not is_begun and is_http_address(f"http://{shown}")


_PARSED = (IPv4Address, IPv4Network, IPv6Address, IPv6Network)
"""Networks and addresses (and interfaces, which are addresses) that are not text any more."""


def check_networks(name: str, given: Iterable[str]) -> tuple[Network, ...]:
    """Reads networks, such as ``10.0.0.0/8``, or single addresses."""
    found: list[Network] = []
    for text in items(name, given):
        if not isinstance(cast("object", text), _PARSED):
            check_kind(f"one of {name}", text, str)
        try:
            found.append(network(text))
        except ValueError:
            message = f"{text!r} in {name} is not a network, such as '10.0.0.0/8'"
            raise ValueError(message) from None
    return tuple(found)


def check_reach(reach: AgentReach, networks: tuple[Network, ...]) -> NetworkReach | None:
    """Reads how far the addresses of a client may lead; None for anywhere.

    Args:
        reach: What the caller passes.
        networks: Those that are reached in any case.
    """
    check_one_of("reach", reach, get_args(AgentReach))
    return NetworkReach(allowed=networks, is_strict=True) if reach == "public" else None


def check_able(name: str, value: object, *methods: str) -> None:
    """Checks what a caller passes for a protocol by what it can do."""
    _check_instance(name, value)
    if not all(callable(getattr(value, method, None)) for method in methods):
        text = f"{name} must have the methods {', '.join(methods)}; {type(value).__name__} has not"
        raise TypeError(text)


def check_hook(name: str, value: object, *, besides: str = "") -> None:
    """Checks a function that a caller passes.

    Args:
        name: What messages call it.
        value: What the caller passes.
        besides: What else may be passed, as "a CardVerifier or "; seen to by the caller.
    """
    _check_instance(name, value)
    if not callable(value):
        text = f"{name} must be {besides}a function, not {type(value).__name__}"
        raise TypeError(text)


def hooks(name: str, given: Iterable[T], *methods: str) -> tuple[T, ...]:
    """Checks hooks by what they can do; a class is a hook only where it is called itself."""
    checked = items(name, given)
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


def observer_hooks(given: Iterable[T]) -> tuple[T, ...]:
    """Checks observers, which are called and not awaited.

    Raises:
        TypeError: One cannot be called, or is a coroutine function.
    """
    checked = hooks("observers", given, "__call__")
    for observer in checked:
        called = getattr(type(observer), "__call__", None)  # noqa: B004  it is callable
        plain: Any = observer
        while isinstance(plain, functools.partial):
            plain = plain.func
        if inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(called):
            name = getattr(plain, "__name__", type(observer).__name__)
            text = (
                f"each of observers must be a plain function, but {name} is a coroutine function, "
                "which would never be awaited; put the observation into a queue instead"
            )
            raise TypeError(text)
    return checked


def extension_uris(given: Iterable[str]) -> tuple[str, ...]:
    """Checks URIs of extensions, which go into one header; each of them once."""
    uris = tuple(not_empty("one of extensions", uri) for uri in items("extensions", given))
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


def items(name: str, given: Iterable[T]) -> tuple[T, ...]:
    """Checks a sequence; one string or dict would be taken apart."""
    check_iterable(name, given, Iterable)
    return tuple(given)


def check_iterable(name: str, given: object, *kinds: type) -> None:
    """Checks that a value can be iterated over and is not one string or dict.

    Raises:
        TypeError: It is a string, bytes, a mapping, or of none of the kinds.
    """
    if not isinstance(given, kinds) or _is_one(given):
        text = f"{name} must be a sequence, not {type(given).__name__}{_as_one(given)}"
        raise TypeError(text)


def _is_one(given: object) -> bool:
    """Return whether to iterate over a value would take it apart, as no ordered set is."""
    if not isinstance(given, Mapping):
        return isinstance(given, str | bytes)
    values = cast("Mapping[object, object]", given).values()  # all None of `dict.fromkeys`
    return any(value is not None for value in values)


def _as_one(given: object) -> str:
    """How to pass what was passed in place of a sequence of it."""
    if isinstance(given, str):
        shown = repr(given) if len(given) <= _SHOWN and not re.search(r"[?@]", given) else "…"
    elif callable(given):
        shown = getattr(given, "__name__", "…")
    elif isinstance(given, Mapping):
        shown = "{…}"
    else:
        return ""
    return f"; pass a list: [{shown}]"


def json_object(name: str, value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Checks a JSON object that may be left out, and copies it."""
    if value is None:
        return None
    if not isinstance(cast("object", value), Mapping):
        text = f"{name} must be a dict, not {type(value).__name__}"
        raise TypeError(text)
    copied = dict(value)
    check_json(name, copied)
    return copied


def not_empty(name: str, value: str) -> str:
    """Checks an id; an empty one would turn one task into the list of all of them."""
    _check_filled(name, value)
    if not value.isascii():
        check_text(name, value)
    return value


def _check_filled(name: str, value: str) -> None:
    if not isinstance(cast("object", value), str):
        text = f"{name} must be a string, not {type(value).__name__}"
        raise TypeError(text)
    if not value:
        text = f"{name} must not be empty"
        raise ValueError(text)


def check_credential(name: str, value: str) -> None:
    """Checks that a credential is there, and no text that Python writes for a missing one."""
    _check_filled(name, value)
    words = value.split()
    if not words:
        text = f"{name} must not be empty"
        raise ValueError(text)
    if words[-1] == "None" and len(words) <= 2:
        text = f"{name} holds None in place of a credential: is an environment variable not set?"
        raise ValueError(text)


def _media_types(name: str, given: Iterable[str]) -> tuple[str, ...]:
    """Checks names of media types, as far as a client can: they are text, and not empty."""
    return tuple(not_empty(f"one of {name}", one) for one in items(name, given))


def check_configuration(configuration: SendMessageConfiguration) -> SendMessageConfiguration:
    """Checks how messages are to be treated, whether a client, a factory or a call says it."""
    _media_types("accepted_output_modes", configuration.accepted_output_modes)
    not_negative("history_length", configuration.history_length)
    check_kind("return_immediately", configuration.return_immediately, bool)
    if configuration.task_push_notification_config is not None:
        check_push_config(
            "the push notification config", configuration.task_push_notification_config
        )
    return configuration


def check_push_config(name: str, config: TaskPushNotificationConfig) -> None:
    """Check where an agent is to send push notifications."""
    check_kind(name, config, TaskPushNotificationConfig)
    not_empty(f"{name}.url", config.url)
    check_sendable(name, config)


def not_negative(name: str, value: int | None) -> int | None:
    """Checks a count that may be left out."""
    if value is not None:
        check_count(name, value)
    return value


def timestamp(name: str, value: datetime | str | None) -> str | None:
    """Return a time in RFC 3339, in UTC with milliseconds (A2A 5.6.1); text as it is.

    Args:
        name: What messages call it.
        value: What the caller passes.

    Raises:
        TypeError: It is neither a datetime nor text.
        ValueError: The text is empty.
    """
    if value is None:
        return None
    if not isinstance(value, datetime):
        check_kind(name, value, str, or_else=" or datetime")
        return not_empty(name, value)
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
