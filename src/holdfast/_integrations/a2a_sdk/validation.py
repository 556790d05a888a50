"""Checks of the arguments of the SDK's user, in the SDK's own terms."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from a2a.client.client import ClientCallContext, ClientConfig
from a2a.types import AgentCard
from google.protobuf.message import Message

from holdfast import compat, types
from holdfast._arguments import check_options
from holdfast._integrations.a2a_sdk.retry_config import RetryConfig
from holdfast.extend import Interceptor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

__all__ = [
    "check_card",
    "check_config",
    "check_context",
    "check_interceptors",
    "check_names",
    "check_request",
]

_RETRYING = frozenset(field.name for field in fields(RetryConfig))
_OF_CARDS = frozenset({"card_verifier", "require_signature", "signature_verifier"})
"""Options for the signatures of a card, of which a transport has only the converted form."""


def check_names(what: str, given: Mapping[str, object], known: Collection[str]) -> None:
    """Check the names of options, with a hint for one that belongs elsewhere.

    Raises:
        TypeError: There is no option of that name.
    """
    for name, value in given.items():
        if name in _OF_CARDS:
            text = (
                f"{name!r} is not an option of {what}: the official SDK verifies the card that it "
                "fetches; pass signature_verifier=a2a.utils.signing.create_signature_verifier(…) "
                "to create_from_url"
            )
            raise TypeError(text)
        if name not in known and name in _RETRYING:
            shown = repr(value) if isinstance(value, int | float) else "…"
            text = (
                f"{name!r} is not an option of {what}; did you mean "
                f"retry_config=RetryConfig({name}={shown})?"
            )
            raise TypeError(text)
    check_options(what, given, tuple(known))


def check_config(config: object) -> None:
    """Check the SDK's configuration; Holdfast has a class of the same name.

    Raises:
        TypeError: It is of another type.
    """
    if config is not None and not isinstance(config, ClientConfig):
        kind, hint = _kind(config), ""
        if isinstance(config, compat.ClientConfig):
            hint = "; pass the ClientConfig of the official SDK, and an engine as engine="
        elif "httpx" in kind:
            hint = "; pass ClientConfig(httpx_client=…)"
        text = f"config must be a2a.client.ClientConfig, not {kind}{hint}"
        raise TypeError(text)


def check_context(context: object) -> None:
    """Check the context of a call; Holdfast has a class of the same name.

    Raises:
        TypeError: It is of another type.
    """
    if context is not None and not isinstance(context, ClientCallContext):
        text = f"context must be a2a.client.ClientCallContext, not {_kind(context)}"
        raise TypeError(text)


def check_request(request: object) -> None:
    """Check the request of a call; Holdfast has classes of the same names.

    Raises:
        TypeError: It is not a message of the SDK.
    """
    if isinstance(request, Message):
        return
    hint = ""
    if isinstance(request, types.WireValue):
        name = type(request).__name__
        hint = f"; pass holdfast.integrations.a2a_sdk.to_proto(…, a2a.types.{name})"
        if isinstance(request, types.Task):
            hint = "; pass a request with its id"
    elif isinstance(request, str):
        hint = "; pass a request with this id"
    text = f"request must be a request of the official SDK, not {_kind(request)}{hint}"
    raise TypeError(text)


def check_interceptors(interceptors: Iterable[object] | None) -> None:
    """Check the interceptors of a client of the SDK; Holdfast's have other arguments.

    Raises:
        TypeError: One of them is not an interceptor of the SDK.
    """
    for interceptor in interceptors or ():
        is_own = isinstance(interceptor, Interceptor | compat.AuthInterceptor)
        if is_own or not (hasattr(interceptor, "before") and hasattr(interceptor, "after")):
            text = (
                f"{_kind(interceptor)} is not an interceptor of the official SDK: derive it from "
                "a2a.client.ClientCallInterceptor, whose before(args) and after(args) change "
                "args and return nothing"
            )
            raise TypeError(text)


def check_card(card: object) -> None:
    """Check the SDK's card.

    Raises:
        TypeError: It is of another type.
    """
    if not isinstance(card, AgentCard):
        kind = _kind(card)
        hint = "; pass a client as ClientConfig(httpx_client=…)" if "httpx" in kind else ""
        if isinstance(card, types.AgentCard):
            hint = (
                "; pass holdfast.integrations.a2a_sdk.to_proto(card, a2a.types.AgentCard), or use "
                "holdfast.compat.ClientFactory"
            )
        if isinstance(card, str):
            hint = "; for an address, use await client_factory(…).create_from_url(url)"
        text = f"card must be a2a.types.AgentCard, not {kind}{hint}"
        raise TypeError(text)


def _kind(value: object) -> str:
    """Return the name of a value's class, with its package."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if package == "holdfast":
        return f"{kind.__module__}.{kind.__qualname__}"
    return kind.__qualname__ if package == "builtins" else f"{package}.{kind.__qualname__}"
