"""Requests to an authorization server, and its responses.

`oauthlib` encodes the messages; the `HttpEngine` carries them. Rules: no redirect is followed,
since requests contain secrets; no exception of the library leaves this module; `data` of an error
has the server's error response, and no error repeats a secret.
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
    "ClientIdentity",
    "OAuthEndpoint",
    "concerns_resource",
    "error_code",
    "oauth_library",
    "seconds_in",
    "token_in",
]

_TRANSIENT_CODES = frozenset({"temporarily_unavailable", "server_error", "slow_down"})
_MAX_TEXT_CHARACTERS = 200
_MAX_LIFETIME_S = 10 * 365 * 86400.0
_MAX_NUMBER_CHARACTERS = 30


def oauth_library() -> ModuleType:
    """Return the module ``oauthlib.oauth2``.

    Raises:
        ImportError: The extra ``oauth`` is not installed.
    """
    try:
        import oauthlib.oauth2
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "oauthlib":
            raise
        raise missing_extra("OAuth", "oauth", library="oauthlib") from None
    return oauthlib.oauth2


class ClientIdentity(RedactedRepr, msgspec.Struct, frozen=True, kw_only=True):
    """Identity of a client, and how it authenticates (RFC 6749, 2.3).

    Attributes:
        client_id: Id of the client.
        client_secret: Secret of the client; None for a public client, or one with a certificate.
        method: ``client_secret_basic``, ``client_secret_post`` or ``none``; None for one that the
            server supports.
    """

    client_id: str
    client_secret: str | None = None
    method: str | None = None

    def __repr__(self) -> str:
        return f"ClientIdentity({self.client_id!r}, method={self.method!r})"

    def authenticated(
        self, parameters: Mapping[str, str], supported: tuple[str, ...]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the headers and parameters of a request, with the client's authentication."""
        method = self.method or self._supported_method(supported)
        if method == "client_secret_basic" and self.client_secret is not None:
            pair = f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret)}"
            value = base64.b64encode(pair.encode()).decode()
            return {"authorization": f"Basic {value}"}, dict(parameters)
        combined = {**parameters, "client_id": self.client_id}
        if method == "client_secret_post" and self.client_secret is not None:
            combined["client_secret"] = self.client_secret
        return {}, combined

    def _supported_method(self, supported: tuple[str, ...]) -> str:
        if self.client_secret is None:
            return "none"
        # Every server must support Basic (RFC 6749, 2.3.1).
        is_post = "client_secret_post" in supported and "client_secret_basic" not in supported
        return "client_secret_post" if is_post else "client_secret_basic"


class OAuthEndpoint(NamedTuple):
    """Authorization server, as a client calls it.

    Attributes:
        engine: Carries the requests.
        env: Provides wall time.
        server: The server.
        client: Identity of the client.
        reach: Networks where the server may be; None if the caller named it.
    """

    engine: HttpEngine
    env: Env
    server: AuthorizationServer
    client: ClientIdentity
    reach: NetworkReach | None = None

    async def request_token(self, parameters: Mapping[str, str]) -> Token:
        """Request a token.

        Args:
            parameters: Parameters of the grant, including ``grant_type``.

        Raises:
            AuthenticationError: The server issued no token; `data` is its error response.
            A2AError: An error of the engine.
        """
        requested_at = self.env.wall()
        document = await self.post(self.server.token_endpoint, parameters)
        secrets = self._secrets(parameters)
        try:
            return token_in(document, requested_at=requested_at)
        except AuthenticationError as error:
            redact(error, secrets)
            error.agent = presentable(self.server.token_endpoint)
            raise

    async def post(self, url: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        """Send a request, and return the JSON object of a successful response.

        Raises:
            AuthenticationError: The response is an error, or not a JSON object.
            A2AError: An error of the engine.
        """
        headers, form = self.client.authenticated(
            parameters, self.server.token_endpoint_auth_methods_supported
        )
        grant = form.pop("grant_type", "")
        request = HttpRequest(
            method="POST",
            url=url,
            headers={
                **headers,
                "accept": "application/json",
                "content-type": "application/x-www-form-urlencoded",
            },
            body=_form_encoded(grant, form).encode(),
            timeouts=TIMEOUTS,
            limits=LIMITS,
            max_idle=1.0,  # a code or refresh token can be used only once
            reach=self.reach,
        )
        try:
            reply = await self.engine.request(request)
            return _read(reply, url, now=self.env.wall())
        except A2AError as error:
            credentials = headers.get("authorization", "").partition(" ")[2]
            redact(error, [*self._secrets(parameters), *filter(None, [credentials])])
            error.agent = presentable(url)
            raise

    def _secrets(self, parameters: Mapping[str, str]) -> list[str]:
        values = [parameters.get(name, "") for name in _SECRET_PARAMETERS]
        client_secret = self.client.client_secret or ""
        return [value for value in (*values, client_secret, quote_plus(client_secret)) if value]


_SECRET_PARAMETERS = ("code", "code_verifier", "device_code", "refresh_token", "token")


def _form_encoded(grant: str, parameters: Mapping[str, str]) -> str:
    oauth_library()
    if grant:
        from oauthlib.oauth2.rfc6749 import parameters as messages

        write = cast("Any", messages).prepare_token_request  # incompletely typed
        return str(write(grant, include_client_id=True, **parameters))
    from oauthlib import common

    return str(common.urlencode(list(parameters.items())))


def _read(reply: HttpReply, url: str, *, now: float) -> dict[str, Any]:
    document = object_in(reply.body)
    if reply.status == 200 and document is not None and "error" not in document:
        return document
    if 300 <= reply.status < 400:
        raise AuthenticationError(
            f"{presentable(url)} answered with a redirect (HTTP {reply.status}), which is not "
            "followed",
            http_status=reply.status,
            executed=False,
        )
    if document is not None and isinstance(document.get("error"), str):
        raise _error_response(document, reply, url, now=now)
    http_error = from_http_status(reply, now=now)
    if reply.status == 200:
        text = f"{presentable(url)} did not return a valid token response"
    elif http_error.transient:
        text = (
            f"could not get a token: the authorization server {presentable(url)} is unavailable: "
            f"{http_error.message}"
        )
    else:
        text = f"{presentable(url)} returned no token: {http_error.message}"
    raise AuthenticationError(
        text,
        http_status=reply.status,
        headers=http_error.headers,
        transient=http_error.transient,
        retry_after=http_error.retry_after,
        executed=False,
    )


def _error_response(
    document: Mapping[str, Any], reply: HttpReply, url: str, *, now: float
) -> AuthenticationError:
    """Return the error of an error response (RFC 6749, 5.2)."""
    code = one_line(str(document["error"]), _MAX_TEXT_CHARACTERS)
    description = document.get("error_description")
    data = {"error": code}
    suffix = ""
    if isinstance(description, str) and description.strip():
        data["error_description"] = one_line(description, _MAX_TEXT_CHARACTERS)
        suffix = f" ({data['error_description']})"
    http_error = from_http_status(reply, now=now)
    return AuthenticationError(
        f"{presentable(url)} returned no token: {code}{suffix}",
        data=data,
        http_status=reply.status,
        headers=http_error.headers,
        transient=code in _TRANSIENT_CODES or (http_error.transient and reply.status >= 429),
        retry_after=http_error.retry_after,
        executed=False,
    )


def error_code(error: A2AError) -> str | None:
    """Return the server's error code (RFC 6749, 5.2); None if there is none."""
    data = codec.as_object(error.data)
    code = None if data is None else data.get("error")
    return code if isinstance(code, str) else None


def concerns_resource(error: A2AError) -> bool:
    """Return whether a server rejects the requested resource (RFC 8707, 2).

    Some servers reject the parameter itself, by ``invalid_request`` and a description.
    """
    code, data = error_code(error), codec.as_object(error.data) or {}
    description = str(data.get("error_description", "")).lower()
    return code == "invalid_target" or (code == "invalid_request" and "resource" in description)


def token_in(document: Mapping[str, Any], *, requested_at: float) -> Token:
    """Decode a token response (RFC 6749, 5.1).

    Args:
        document: The response.
        requested_at: Wall time of the request, from which the lifetime counts.

    Raises:
        AuthenticationError: The response has no token, or one of an unsupported type.
    """
    access_token, token_type = document.get("access_token"), document.get("token_type", "Bearer")
    if not isinstance(access_token, str):
        text = "the response of the authorization server has no access_token"
        raise AuthenticationError(text, executed=False)
    if (fault := bearer_fault(access_token)) is not None:
        text = f"the authorization server returned an access token that is {fault}"
        raise AuthenticationError(text, executed=False)
    if not isinstance(token_type, str) or token_type.lower() != "bearer":
        text = (
            f"the authorization server returned a token of type {str(token_type)[:40]!r}, not "
            "Bearer"
        )
        raise AuthenticationError(text, executed=False)
    refresh, scope = document.get("refresh_token"), document.get("scope")
    if not (_is_text(refresh) and _is_text(scope)):
        text = "the refresh token or the scope from the authorization server is not valid Unicode"
        raise AuthenticationError(text, executed=False)
    lifetime = seconds_in(document.get("expires_in"))
    return Token(
        access_token=access_token,
        refresh_token=refresh if isinstance(refresh, str) and refresh else None,
        issued_at=requested_at,
        expires_at=None if lifetime is None else requested_at + lifetime,
        scopes=tuple(scope.split()) if isinstance(scope, str) else None,
    )


def _is_text(value: object) -> bool:
    """Return whether a value, if it is a string, has no lone surrogate."""
    return not isinstance(value, str) or not any("\ud800" <= char <= "\udfff" for char in value)


def seconds_in(value: object) -> float | None:
    """Convert a number of seconds, possibly in a string; None if it is invalid."""
    if isinstance(value, str) and len(value) < _MAX_NUMBER_CHARACTERS:
        try:
            value = float(value)
        except ValueError:
            return None
    is_nan = isinstance(value, float) and math.isnan(value)
    if is_nan or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(min(max(0, value), _MAX_LIFETIME_S))
