"""Redirects: which are followed, and what goes along.

Rules:
- A call stays whole: its redirect is followed with 307 and 308 only, and within its origin.
- A public document may have moved to another origin. Only the protocol's own headers go there,
  nothing of the query of the address that redirects, and it reaches no further in than it is told
  to.
- Within an origin a redirect reaches no further in than the host that redirects: a name can lead
  elsewhere by the next request (DNS rebinding).
- None leads from https to http, and after five there is no sixth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote_plus, urljoin, urlsplit

import msgspec

from holdfast._model.addresses import in_ascii, is_http_address
from holdfast._wire.http import harmless_headers, presentable
from holdfast._wire.network_scope import NetworkReach, network, scope_of
from holdfast._wire.origins import origin
from holdfast._wire.redaction import repeats
from holdfast.errors import A2AHTTPError

if TYPE_CHECKING:
    from holdfast._wire.http import HttpReply, HttpRequest
    from holdfast._wire.network_scope import Network

__all__ = ["follow"]

_MOST = 5
_OF_THE_PROTOCOL = frozenset(
    {"accept", "a2a-version", "a2a-extensions", "user-agent", "x-a2a-extensions"}
)


def follow(
    request: HttpRequest,
    reply: HttpReply,
    *,
    elsewhere: NetworkReach | None,
    followed: int,
    allowed: tuple[Network, ...] = (),
) -> HttpRequest | None:
    """Decides what a redirect asks for.

    Args:
        request: What was sent.
        reply: What came back.
        elsewhere: How far a redirect of a public document may reach at another origin; None for
            a call, and for what must stay where it is.
        followed: How many redirects were followed already.
        allowed: Networks that a redirect within the origin may reach in any case.

    Returns:
        The request to send next, or None if the reply is no redirect.

    Raises:
        A2AHTTPError: It is a redirect that is not followed; the message names its target.
    """
    if reply.status not in {301, 302, 303, 307, 308}:
        return None
    target = _target(request.url, reply.headers.get("location", ""))
    refusal = _refusal(request, reply, target, elsewhere=elsewhere, followed=followed)
    if refusal:
        raise A2AHTTPError(
            f"HTTP {reply.status} redirect to {presentable(target)} was not followed: {refusal}",
            http_status=reply.status,
            headers=harmless_headers(reply.headers),
            agent=presentable(request.url),
        )
    if origin(target) == origin(request.url):
        return msgspec.structs.replace(request, url=target, reach=_reach(request, reply, allowed))
    kept = {name: value for name, value in request.headers.items() if name in _OF_THE_PROTOCOL}
    return msgspec.structs.replace(request, url=target, headers=kept, reach=elsewhere)


def _reach(
    request: HttpRequest, reply: HttpReply, allowed: tuple[Network, ...]
) -> NetworkReach | None:
    """How far the next request to the same origin may reach; None where nobody can say."""
    if request.reach is not None or reply.address is None:
        return request.reach
    inward = scope_of(reply.address)
    if inward == "metadata":  # where nothing leads, but for the host itself
        allowed = (*allowed, network(reply.address.partition("%")[0]))
    return NetworkReach(inward=inward, allowed=allowed)


def _target(here: str, location: str) -> str:
    try:
        return in_ascii(urljoin(here, location).partition("#")[0])
    except ValueError:
        return location  # and be refused for it


def _refusal(
    request: HttpRequest,
    reply: HttpReply,
    target: str,
    *,
    elsewhere: NetworkReach | None,
    followed: int,
) -> str | None:
    if "location" not in reply.headers:
        return "it names no location"
    if not is_http_address(target):
        return "it is not an HTTP address"
    here, there = urlsplit(request.url), urlsplit(target)
    if followed >= _MOST:
        return f"there were {_MOST} redirects before"
    if (here.scheme, there.scheme) == ("https", "http"):
        return "it leads from https to http"
    if elsewhere is not None:
        return _refusal_of_query(request.url, target)
    if reply.status not in {307, 308}:
        return "it would turn the request into another one; use the final address"
    if origin(target) != origin(request.url):
        return "it leads to another origin; if you trust it, use that address"
    return None


def _refusal_of_query(here: str, target: str) -> str | None:
    """Why a public document is not asked for at another address that repeats the query."""
    if origin(here) == origin(target):
        return None
    pairs = (pair.partition("=") for pair in urlsplit(here).query.split("&"))
    values = [unquote_plus(value or name) for name, _, value in pairs]
    if repeats(values, target) or repeats(values, unquote_plus(target)):
        return (
            "it takes the query of the address, which may hold a key, to another origin; if you "
            "trust it, use that address"
        )
    return None
