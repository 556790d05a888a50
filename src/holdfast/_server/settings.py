"""The settings of an agent's server, and their checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._arguments import (
    check_count,
    check_kind,
    check_methods,
    check_not_empty,
    check_one_of,
    check_seconds,
)
from holdfast._wire.network_scope import Network
from holdfast.observe import ServerTelemetry
from holdfast.types import AgentCard, AgentExtension

if TYPE_CHECKING:
    from collections.abc import Awaitable

__all__ = ["Authenticate", "CardModifier", "Middleware", "PushUrlValidator", "ServerSettings"]

Authenticate = Callable[[Mapping[str, str]], "str | Awaitable[str | None] | None"]
"""Function that returns the name of a caller from the headers of a request; None refuses it."""

CardModifier = Callable[[AgentCard], AgentCard]
"""Function that gets the complete public card, and returns the card to serve; sign the card there.
"""

Middleware = Callable[[Any], Any]
"""Function that gets an ASGI application, and returns one that wraps it."""

PushUrlValidator = Callable[[str], "Awaitable[bool]"]
"""Coroutine function that returns whether push notifications may be sent to a URL."""

_VERSIONS = ("1.0", "0.3")

_PORT = re.compile(r"^[^:]*:[0-9]*$|\]:")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#@]+")


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `A2AServer`, where they are documented."""

    extended_card: AgentCard | None = None
    card_modifier: Any = None
    task_store: Any = None
    push: Any = False
    push_sender: Any = None
    push_url_validator: Any = None
    push_networks: tuple[Network, ...] | None = None
    push_engine: Any = None
    versions: tuple[str, ...] = ("1.0",)
    streaming: bool = True
    extensions: tuple[AgentExtension, ...] = ()
    authenticate: Any = None
    middleware: tuple[Any, ...] = ()
    allowed_hosts: tuple[str, ...] | None = None
    allowed_origins: tuple[str, ...] | None = None
    max_body: int = 16 * 1024 * 1024
    max_body_memory: int = 64 * 1024 * 1024
    max_parts: int = 1_000
    max_json_values: int = 100_000
    max_push_configs: int = 32
    body_timeout: float = 30.0
    keep_alive: float = 15.0
    timeout: float | None = 3600.0
    handler_options: dict[str, Any] = {}
    telemetry: ServerTelemetry | None = None

    def __post_init__(self) -> None:
        for version in self.versions:
            check_one_of("versions", version, _VERSIONS)
        if not self.versions or len(set(self.versions)) != len(self.versions):
            raise ValueError("versions must name each version once, and at least one")
        check_kind("streaming", self.streaming, bool)
        for name in ("max_body", "max_parts", "max_json_values", "max_push_configs"):
            check_count(name, getattr(self, name), least=1)
        check_count("max_body_memory", self.max_body_memory, least=self.max_body)
        _check_names(self.allowed_hosts, self.allowed_origins)
        check_seconds("body_timeout", self.body_timeout)
        check_seconds("keep_alive", self.keep_alive)
        if self.timeout is not None:
            check_seconds("timeout", self.timeout)
        if not isinstance(self.push, bool) and not hasattr(self.push, "get_info"):
            kind = type(self.push).__name__
            raise TypeError(f"push must be True, False or a store of the SDK's, not {kind}")
        self._check_callables()
        push_options = ("push_sender", "push_url_validator", "push_networks", "push_engine")
        if not self.push and any(getattr(self, name) is not None for name in push_options):
            raise ValueError(
                f"{', '.join(push_options[:-1])} and {push_options[-1]} need push=True or a store"
            )
        if self.push_sender is not None and self.push_engine is not None:
            raise ValueError("push_engine configures the server's own sender; omit push_sender")
        if self.push_sender is not None:
            check_methods("push_sender", self.push_sender, "send_notification")
        if self.telemetry is not None:
            check_methods("telemetry", self.telemetry, "start_span")

    def _check_callables(self) -> None:
        for name in ("card_modifier", "push_url_validator", "authenticate"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise TypeError(f"{name} must be callable, not {type(value).__name__}")
        for wrapper in self.middleware:
            if not callable(wrapper):
                raise TypeError(f"middleware must be callables, not {type(wrapper).__name__}")


def _check_names(hosts: tuple[str, ...] | None, origins: tuple[str, ...] | None) -> None:
    for host in hosts or ():
        check_not_empty("one of allowed_hosts", host)
        if "/" in host or _PORT.search(host):
            text = f"{host!r} in allowed_hosts must be a host alone, without scheme and port"
            raise ValueError(text)
    for origin in origins or ():
        check_not_empty("one of allowed_origins", origin)
        if origin not in {"*", "null"} and not _ORIGIN.fullmatch(origin):
            text = f"{origin!r} in allowed_origins is not an origin, such as 'https://example.com'"
            raise ValueError(text)
