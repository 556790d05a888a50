"""Redirects: which ones are followed, and which headers go along.

Rules:
- A call must not change: its redirect is followed for 307 and 308 only, and within its origin.
- A public document may have moved to another origin. Only the protocol's own headers are sent
  there, nothing of the query of the redirecting URL, and only to the networks of `other_origins`.
- Within an origin a redirect reaches no more private network than the redirecting host: the name
  may resolve to another address for the next request (DNS rebinding).
- A redirect from https to http is refused, and so is the sixth redirect in a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote_plus, urljoin, urlsplit

import msgspec

from holdfast._model.addresses import is_http_address, with_ascii_host
from holdfast._wire.http import harmless_headers, presentable
from holdfast._wire.network_scope import NetworkReach, network, scope_of
from holdfast._wire.origins import origin
from holdfast._wire.redaction import repeats
from holdfast.errors import A2AHTTPError

if TYPE_CHECKING:
    from holdfast._wire.http import HttpReply, HttpRequest
    from holdfast._wire.network_scope import Network

__all__ = ["follow"]

_MAX_REDIRECTS = 5
_PROTOCOL_HEADERS = frozenset(
    {"accept", "a2a-version", "a2a-extensions", "user-agent", "x-a2a-extensions"}
)


def follow(
    request: HttpRequest,
    reply: HttpReply,
    *,
    other_origins: NetworkReach | None,
    followed: int,
    allowed: tuple[Network, ...] = (),
) -> HttpRequest | None:
    """Return the request that follows a redirect.

    Args:
        request: The request that was sent.
        reply: Its reply.
        other_origins: Networks that a redirect of a public document may reach at another origin;
            None for a call, and for anything that must stay at its origin.
        followed: Number of redirects that were already followed.
        allowed: Networks that a redirect within the origin may reach in any case.

    Returns:
        The request to send next; None if the reply is not a redirect.

    Raises:
        A2AHTTPError: The redirect is refused; the message names its target.
    """
    if reply.status not in {301, 302, 303, 307, 308}:
        return None
    target = _target(request.url, reply.headers.get("location", ""))
    refusal = _refusal(request, reply, target, other_origins=other_origins, followed=followed)
    if refusal:
        raise A2AHTTPError(
            f"HTTP {reply.status} redirect to {presentable(target)} was not followed: {refusal}",
            http_status=reply.status,
            headers=harmless_headers(reply.headers),
            agent=presentable(request.url),
        )
    if origin(target) == origin(request.url):
        return msgspec.structs.replace(request, url=target, reach=_reach(request, reply, allowed))
    headers = {name: value for name, value in request.headers.items() if name in _PROTOCOL_HEADERS}
    return msgspec.structs.replace(request, url=target, headers=headers, reach=other_origins)


def _reach(
    request: HttpRequest, reply: HttpReply, allowed: tuple[Network, ...]
) -> NetworkReach | None:
    """Return the reach of the next request to the same origin; None if unrestricted."""
    if request.reach is not None or reply.address is None:
        return request.reach
    inward = scope_of(reply.address)
    if inward == "metadata":  # unreachable except from the host itself
        allowed = (*allowed, network(reply.address.partition("%")[0]))
    return NetworkReach(inward=inward, allowed=allowed)


def _target(url: str, location: str) -> str:
    try:
        return with_ascii_host(urljoin(url, location).partition("#")[0])
    except ValueError:
        return location  # `_refusal` rejects it


def _refusal(
    request: HttpRequest,
    reply: HttpReply,
    target: str,
    *,
    other_origins: NetworkReach | None,
    followed: int,
) -> str | None:
    if "location" not in reply.headers:
        return "it has no Location"
    if not is_http_address(target):
        return "it is not an HTTP address"
    if followed >= _MAX_REDIRECTS:
        return f"there were {_MAX_REDIRECTS} redirects before"
    if (urlsplit(request.url).scheme, urlsplit(target).scheme) == ("https", "http"):
        return "it leads from https to http"
    if other_origins is not None:
        return _refusal_of_query(request.url, target)
    if reply.status not in {307, 308}:
        return "it would turn the request into another one; use the final address"
    if origin(target) != origin(request.url):
        return "it leads to another origin; if you trust that origin, use that address"
    return None


def _refusal_of_query(url: str, target: str) -> str | None:
    """Return why a redirect to another origin that repeats the query is refused."""
    if origin(url) == origin(target):
        return None
    pairs = (pair.partition("=") for pair in urlsplit(url).query.split("&"))
    values = [unquote_plus(value or name) for name, _, value in pairs]
    if repeats(values, target) or repeats(values, unquote_plus(target)):
        return (
            "it takes the query of the address, which may hold a key, to another origin; if you "
            "trust that origin, use that address"
        )
    return None
