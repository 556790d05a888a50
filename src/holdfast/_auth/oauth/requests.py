"""What is asked of an authorization server, and what it answers.

`oauthlib` writes and reads the messages; the bytes go through the `HttpEngine`. Rules: no redirect
is followed, since what is sent is secret; no exception of the library leaves this module; an error
says by `data` what the server said, and repeats no secret.
"""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote_plus

import msgspec

from holdfast._auth.oauth.servers import LIMITS, TIMEOUTS, object_in
from holdfast._auth.oauth.tokens import Token
from holdfast._model import codec
from holdfast._model.error_values import one_line
from holdfast._model.extras import missing_extra
from holdfast._model.redacted_repr import RedactedRepr
from holdfast._wire.credentials import bearer_fault
from holdfast._wire.http import HttpRequest, presentable
from holdfast._wire.redaction import redact
from holdfast._wire.status import from_http_status
from holdfast.errors import A2AError, AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from holdfast._aio.env import Env
    from holdfast._auth.oauth.servers import AuthorizationServer
    from holdfast._net.engine import HttpEngine
    from holdfast._wire.http import HttpReply
    from holdfast._wire.network_scope import NetworkReach

__all__ = [
    "AskedServer",
    "ClientIdentity",
    "concerns_resource",
    "error_code",
    "oauth_library",
    "seconds_in",
    "token_in",
]

_PASSING = frozenset({"temporarily_unavailable", "server_error", "slow_down"})
_SHOWN = 200
_LONGEST_LIFE = 10 * 365 * 86400.0
_LONGEST_NUMBER = 30


def oauth_library() -> ModuleType:
    """The library's module of OAuth 2; for those who will need it later, too.

    Raises:
        ImportError: It comes with an extra, which is not installed.
    """
    try:
        import oauthlib.oauth2
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "oauthlib":
            raise
        raise missing_extra("OAuth", "oauth", library="oauthlib") from None
    return oauthlib.oauth2


class ClientIdentity(RedactedRepr, msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and how that is said (RFC 6749, 2.3).

    Attributes:
        client_id: The client's id.
        client_secret: Its secret; None for a public client, or one that a certificate names.
        method: ``client_secret_basic``, ``client_secret_post`` or ``none``; None for what the
            server takes.
    """

    client_id: str
    client_secret: str | None = None
    method: str | None = None

    def __repr__(self) -> str:
        return f"ClientIdentity({self.client_id!r}, method={self.method!r})"

    def signed(
        self, parameters: Mapping[str, str], supported: tuple[str, ...]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """The headers and the parameters of a request by this client."""
        method = self.method or self._fitting(supported)
        if method == "client_secret_basic" and self.client_secret is not None:
            pair = f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret)}"
            value = base64.b64encode(pair.encode()).decode()
            return {"authorization": f"Basic {value}"}, dict(parameters)
        said = {**parameters, "client_id": self.client_id}
        if method == "client_secret_post" and self.client_secret is not None:
            said["client_secret"] = self.client_secret
        return {}, said

    def _fitting(self, supported: tuple[str, ...]) -> str:
        if self.client_secret is None:
            return "none"
        # Where nothing is said, Basic is what every server must take (RFC 6749, 2.3.1).
        is_post = "client_secret_post" in supported and "client_secret_basic" not in supported
        return "client_secret_post" if is_post else "client_secret_basic"


class AskedServer(NamedTuple):
    """An authorization server, and who asks it.

    Attributes:
        engine: What carries the requests.
        env: Where wall time comes from.
        server: The server.
        client: Who asks.
        reach: How far inside it may be; None where the caller named it.
    """

    engine: HttpEngine
    env: Env
    server: AuthorizationServer
    client: ClientIdentity
    reach: NetworkReach | None = None

    async def ask_token(self, parameters: Mapping[str, str]) -> Token:
        """Asks for a token.

        Args:
            parameters: Of the grant, ``grant_type`` among them.

        Raises:
            AuthenticationError: There is none; `data` is what the server said.
            A2AError: What the engine raises.
        """
        at = self.env.wall()
        document = await self.post(self.server.token_endpoint, parameters)
        secrets = self._secrets(parameters)
        try:
            return token_in(document, at=at)
        except AuthenticationError as error:
            redact(error, secrets)
            raise

    async def post(self, url: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        """Asks for anything, and gives the JSON object of a success.

        Raises:
            AuthenticationError: It is no success, or no object.
            A2AError: What the engine raises.
        """
        headers, said = self.client.signed(
            parameters, self.server.token_endpoint_auth_methods_supported
        )
        grant, rest = said.pop("grant_type", ""), said
        request = HttpRequest(
            method="POST",
            url=url,
            headers={
                **headers,
                "accept": "application/json",
                "content-type": "application/x-www-form-urlencoded",
            },
            body=_encoded(grant, rest).encode(),
            timeouts=TIMEOUTS,
            limits=LIMITS,
            max_idle=1.0,  # a code and a refresh token can be spent once only
            reach=self.reach,
        )
        try:
            reply = await self.engine.request(request)
            return _read(reply, url, now=self.env.wall())
        except A2AError as error:
            carried = headers.get("authorization", "").partition(" ")[2]
            redact(error, [*self._secrets(parameters), *filter(None, [carried])])
            error.agent = presentable(url)
            raise

    def _secrets(self, parameters: Mapping[str, str]) -> list[str]:
        said = [parameters.get(name, "") for name in _SECRET]
        own = self.client.client_secret or ""
        return [one for one in (*said, own, quote_plus(own)) if one]


_SECRET = ("code", "code_verifier", "device_code", "refresh_token", "token")


def _encoded(grant: str, parameters: Mapping[str, str]) -> str:
    oauth_library()
    if grant:
        from oauthlib.oauth2.rfc6749 import parameters as messages

        write = cast("Any", messages).prepare_token_request  # its types are not whole
        return str(write(grant, include_client_id=True, **parameters))
    from oauthlib import common

    return str(common.urlencode(list(parameters.items())))


def _read(reply: HttpReply, url: str, *, now: float) -> dict[str, Any]:
    document = object_in(reply.body)
    if reply.status == 200 and document is not None and "error" not in document:
        return document
    if 300 <= reply.status < 400:
        raise AuthenticationError(
            f"{presentable(url)} redirects (HTTP {reply.status}), which is not followed",
            http_status=reply.status,
            executed=False,
        )
    if document is not None and isinstance(document.get("error"), str):
        raise _refused(document, reply, url, now=now)
    told = from_http_status(reply, now=now)
    raise AuthenticationError(
        f"{presentable(url)} gave no token: {told.message}"
        if reply.status != 200
        else f"{presentable(url)} answered with something that is not a token",
        http_status=reply.status,
        headers=told.headers,
        transient=told.transient,
        retry_after=told.retry_after,
        executed=False,
    )


def _refused(
    document: Mapping[str, Any], reply: HttpReply, url: str, *, now: float
) -> AuthenticationError:
    """The error of an error response (RFC 6749, 5.2)."""
    code = one_line(str(document["error"]), _SHOWN)
    description = document.get("error_description")
    data = {"error": code}
    words = ""
    if isinstance(description, str) and description.strip():
        data["error_description"] = one_line(description, _SHOWN)
        words = f" ({data['error_description']})"
    told = from_http_status(reply, now=now)
    return AuthenticationError(
        f"{presentable(url)} gave no token: {code}{words}",
        data=data,
        http_status=reply.status,
        headers=told.headers,
        transient=code in _PASSING or (told.transient and reply.status >= 429),
        retry_after=told.retry_after,
        executed=False,
    )


def error_code(error: A2AError) -> str | None:
    """What the server calls an error (RFC 6749, 5.2); None if it did not say."""
    data = codec.as_object(error.data)
    code = None if data is None else data.get("error")
    return code if isinstance(code, str) else None


def concerns_resource(error: A2AError) -> bool:
    """Whether a server refuses the resource that a token was to be for (RFC 8707, 2).

    Some refuse the parameter itself, by ``invalid_request`` and a description.
    """
    code, data = error_code(error), codec.as_object(error.data) or {}
    described = str(data.get("error_description", "")).lower()
    return code == "invalid_target" or (code == "invalid_request" and "resource" in described)


def token_in(document: Mapping[str, Any], *, at: float) -> Token:
    """Reads a token response (RFC 6749, 5.1).

    Args:
        document: The response.
        at: Wall time when it was asked for, from which its life is counted.

    Raises:
        AuthenticationError: It is none, or of a type that is not known.
    """
    value, kind = document.get("access_token"), document.get("token_type", "Bearer")
    fault = bearer_fault(value) if isinstance(value, str) else "none at all"
    if not isinstance(value, str) or fault is not None:
        text = f"the authorization server gave an access token that is {fault}"
        raise AuthenticationError(text, executed=False)
    if not isinstance(kind, str) or kind.lower() != "bearer":
        text = f"the authorization server gave a token of type {str(kind)[:40]!r}, not Bearer"
        raise AuthenticationError(text, executed=False)
    refresh, scope = document.get("refresh_token"), document.get("scope")
    if not (_is_text(refresh) and _is_text(scope)):
        text = "the authorization server gave a token with a text that no request can carry"
        raise AuthenticationError(text, executed=False)
    life = seconds_in(document.get("expires_in"))
    return Token(
        access_token=value,
        refresh_token=refresh if isinstance(refresh, str) and refresh else None,
        issued_at=at,
        expires_at=None if life is None else at + life,
        scopes=tuple(scope.split()) if isinstance(scope, str) else None,
    )


def _is_text(value: object) -> bool:
    """Whether a text can be written; a JSON one may hold half a character."""
    return not isinstance(value, str) or not any("\ud800" <= one <= "\udfff" for one in value)


def seconds_in(value: object) -> float | None:
    """A number of seconds, which some servers write as a string; None if it is none."""
    if isinstance(value, str) and len(value) < _LONGEST_NUMBER:
        try:
            value = float(value)
        except ValueError:
            return None
    is_none = isinstance(value, float) and math.isnan(value)
    if is_none or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(min(max(0, value), _LONGEST_LIFE))
