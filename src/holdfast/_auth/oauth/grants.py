"""OAuth grants: the ways in which a client obtains tokens (RFC 6749, 4; RFC 8628)."""

from __future__ import annotations

import asyncio
import hmac
import inspect
import secrets
import webbrowser
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import parse_qs, urlsplit

import msgspec

from holdfast._aio.cancel_scope import CancelScope
from holdfast._arguments import check_hook, check_seconds
from holdfast._auth.oauth.provider import GrantRequest, OAuthOptions, OAuthProvider
from holdfast._auth.oauth.redirects import LoopbackRedirect
from holdfast._auth.oauth.requests import error_code, oauth_library, seconds_in
from holdfast._auth.oauth.servers import PKCE_METHOD, PKCE_NOT_ADVERTISED, check_endpoint
from holdfast._model.error_values import one_line
from holdfast._model.settings import check_kind
from holdfast.errors import A2AConnectionError, A2AError, A2ATimeoutError, AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from holdfast._auth.oauth.servers import AuthorizationServer, FromCard
    from holdfast._auth.oauth.tokens import Token

__all__ = ["AuthorizationCode", "ClientCredentials", "DeviceCode", "DevicePrompt"]

_DEVICE_CODE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_DEFAULT_INTERVAL_S, _SLOW_DOWN_S, _MAX_INTERVAL_S = 5.0, 5.0, 60.0
_MAX_PROMPT_S = 1800.0


class ClientCredentials(OAuthProvider):
    """OAuth tokens for a program that acts for itself (RFC 6749, 4.4).

    Args:
        server: The issuer, whose metadata lists its endpoints (RFC 8414, OpenID Connect
            Discovery); an `AuthorizationServer`, which lists them itself; or `FromCard`.
        client_id: Id of the client at the server.
        client_secret: Secret of the client; None if a certificate authenticates it (``tls=``).
        options: Any of `OAuthOptions`: ``client_auth``, ``scopes``, ``resource``, ``step_up``,
            ``store``, ``margin`` (seconds, 30 by default), ``timeout`` (seconds, 30 by default),
            ``engine``, ``tls`` and ``env``.

    Raises:
        ValueError: A value is invalid.
        TypeError: A value has another type.
        ImportError: The extra ``oauth`` is not installed.

    Example:
        Let the server that you name issue the tokens::

            from holdfast.auth.oauth import ClientCredentials

            auth = ClientCredentials(
                "https://id.example.com", "my-client", "my-secret", scopes=["a2a"]
            )
            async with holdfast.connect("https://agent.example.com", auth=auth) as agent:
                print(agent.stats())
    """

    _flow = "client_credentials"

    def __init__(
        self,
        server: str | AuthorizationServer | FromCard,
        client_id: str,
        client_secret: str | None = None,
        **options: Unpack[OAuthOptions],
    ) -> None:
        super().__init__(server, client_id, client_secret=client_secret, **options)

    async def _grant(self, request: GrantRequest) -> Token:
        token = await request.endpoint.request_token(request.parameters("client_credentials"))
        return msgspec.structs.replace(token, refresh_token=None)  # RFC 6749, 4.4.3


class DevicePrompt(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions for a user who approves the login on another device (RFC 8628, 3.3).

    Attributes:
        verification_uri: URL to open.
        user_code: Code to enter there.
        verification_uri_complete: URL that includes the code; None if there is none.
        expires_in: Seconds until the code expires.
    """

    verification_uri: str
    user_code: str
    verification_uri_complete: str | None = None
    expires_in: float = _MAX_PROMPT_S


class DeviceCode(OAuthProvider):
    """OAuth tokens that a user approves on another device (RFC 8628).

    Args:
        server: The issuer, an `AuthorizationServer`, or `FromCard`, as for `ClientCredentials`.
        client_id: Id of the client at the server.
        prompt: Function or coroutine function that gets a `DevicePrompt`, and shows it to the
            user.
        client_secret: Secret of the client, if it has one.
        options: Any of `OAuthOptions`: ``client_auth``, ``scopes``, ``resource``, ``step_up``,
            ``store``, ``margin`` (seconds, 30 by default), ``timeout`` (seconds, 30 by default),
            ``engine``, ``tls`` and ``env``.

    Raises:
        ValueError: A value is invalid.
        TypeError: A value has another type.
        ImportError: The extra ``oauth`` is not installed.

    Example:
        Print the code that the user enters on another device::

            from holdfast.auth.oauth import DeviceCode

            auth = DeviceCode(
                "https://id.example.com",
                "my-client",
                prompt=lambda shown: print(shown.verification_uri, shown.user_code),
            )
            async with holdfast.connect("https://agent.example.com", auth=auth) as agent:
                print(agent.stats())
    """

    _flow = "device_code"
    _user_timeout = _MAX_PROMPT_S

    def __init__(
        self,
        server: str | AuthorizationServer | FromCard,
        client_id: str,
        prompt: Callable[[DevicePrompt], Awaitable[None] | None],
        client_secret: str | None = None,
        **options: Unpack[OAuthOptions],
    ) -> None:
        super().__init__(server, client_id, client_secret=client_secret, **options)
        check_hook("prompt", prompt)
        self._prompt = prompt

    async def _grant(self, request: GrantRequest) -> Token:
        url = request.endpoint.server.device_authorization_endpoint
        if url is None:
            raise _missing_endpoint_error("device_authorization_endpoint")
        parameters = request.parameters("")
        del parameters["grant_type"]
        loop = asyncio.get_running_loop()
        requested_at = loop.time()
        document = await self._within_timeout(request.endpoint.post(url, parameters))
        prompt, code, interval = _read_prompt(document)
        await _call(self._prompt, prompt)
        expires_at = requested_at + prompt.expires_in
        while True:
            if loop.time() + interval >= expires_at:
                text = (
                    f"the login was not approved within {prompt.expires_in:g} s; start the login "
                    "again"
                )
                raise AuthenticationError(text, data={"error": "expired_token"}, executed=False)
            await asyncio.sleep(interval)
            parameters = {"grant_type": _DEVICE_CODE_GRANT, "device_code": code}
            if request.resource is not None:
                parameters["resource"] = request.resource
            try:
                return await self._within_timeout(request.endpoint.request_token(parameters))
            except A2AError as error:
                interval = _next_interval(error, interval)


class AuthorizationCode(OAuthProvider):
    """OAuth tokens that a user approves in a browser (RFC 6749, 4.1, with PKCE, RFC 7636).

    Args:
        server: The issuer, an `AuthorizationServer`, or `FromCard`, as for `ClientCredentials`.
        client_id: Id of the client at the server.
        client_secret: Secret of the client, if it has one.
        open_url: Function or coroutine function that shows the user the URL to open; by default it
            is opened in the system's browser.
        redirect_uri: Redirect URI, if you receive the redirect yourself; needs ``receive``. By
            default a port of 127.0.0.1 is opened during the login (RFC 8252, 7.3).
        receive: Coroutine function that waits for the redirect, and returns the URL that the
            browser requested.
        login_timeout: Seconds that the user has to approve the login; more than 0, 300 by default.
        allow_unadvertised_pkce: Whether to log in even if neither the server's metadata (RFC 8414,
            ``code_challenge_methods_supported``) nor the card's flow (``pkceRequired``) advertises
            PKCE with S256; False by default. The code challenge is sent in any case, but if the
            server ignores it, anyone can redeem a stolen authorization code.
        options: Any of `OAuthOptions`: ``client_auth``, ``scopes``, ``resource``, ``step_up``,
            ``store``, ``margin`` (seconds, 30 by default), ``timeout`` (seconds, 30 by default),
            ``engine``, ``tls`` and ``env``.

    Raises:
        ValueError: A value is invalid.
        TypeError: A value has another type.
        ImportError: The extra ``oauth`` is not installed.
    """

    _flow = "authorization_code"

    def __init__(
        self,
        server: str | AuthorizationServer | FromCard,
        client_id: str,
        client_secret: str | None = None,
        *,
        open_url: Callable[[str], Awaitable[Any] | Any] = webbrowser.open,
        redirect_uri: str | None = None,
        receive: Callable[[], Awaitable[str]] | None = None,
        login_timeout: float = 300.0,
        allow_unadvertised_pkce: bool = False,
        **options: Unpack[OAuthOptions],
    ) -> None:
        super().__init__(server, client_id, client_secret=client_secret, **options)
        check_hook("open_url", open_url)
        self._open_url = open_url
        if (redirect_uri is None) != (receive is None):
            text = "redirect_uri and receive must be passed together"
            raise ValueError(text)
        if redirect_uri is not None:
            check_endpoint(redirect_uri, "redirect_uri")
        self._redirect_uri, self._receive = redirect_uri, receive
        self._user_timeout = self._seconds = check_seconds("login_timeout", login_timeout)
        check_kind("allow_unadvertised_pkce", allow_unadvertised_pkce, bool)
        self._allows_unadvertised_pkce = allow_unadvertised_pkce

    async def _grant(self, request: GrantRequest) -> Token:
        if request.endpoint.server.authorization_endpoint is None:
            raise _missing_endpoint_error("authorization_endpoint")
        methods = request.endpoint.server.code_challenge_methods_supported
        if PKCE_METHOD not in methods and not self._allows_unadvertised_pkce:
            text = (
                f"{PKCE_NOT_ADVERTISED}: log in with DeviceCode, or pass "
                "allow_unadvertised_pkce=True to accept the risk"
            )
            raise AuthenticationError(text, executed=False)
        async with CancelScope.within(self._seconds):
            state = secrets.token_urlsafe(32)
            if self._redirect_uri is not None and self._receive is not None:
                return await self._authorize(request, self._redirect_uri, self._receive, state)
            async with LoopbackRedirect(state) as redirect:
                return await self._authorize(request, redirect.uri, redirect.received, state)
        text = f"the login was not approved within {self._seconds:g} s; start the login again"
        raise AuthenticationError(text, executed=False)

    async def _authorize(
        self,
        request: GrantRequest,
        redirect_uri: str,
        receive: Callable[[], Awaitable[str]],
        state: str,
    ) -> Token:
        client: Any = oauth_library().WebApplicationClient(request.endpoint.client.client_id)
        verifier: str = client.create_code_verifier(64)
        challenge: str = client.create_code_challenge(verifier, PKCE_METHOD)
        resource = {} if request.resource is None else {"resource": request.resource}
        endpoint = request.endpoint.server.authorization_endpoint or ""
        # The library accepts only https, but the authorization server may be on this machine.
        url: str = client.prepare_request_uri(
            _https(endpoint),
            redirect_uri=redirect_uri,
            scope=list(request.scopes) or None,
            state=state,
            code_challenge=challenge,
            code_challenge_method=PKCE_METHOD,
            **resource,
        )
        await self._show(endpoint.partition(":")[0] + url[len("https") :])
        redirect_url = await receive()
        code = _code_in(redirect_url, state, request.endpoint.server)
        parameters = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
            **resource,
        }
        return await request.endpoint.request_token(parameters)

    async def _show(self, url: str) -> None:
        if self._open_url is not webbrowser.open:
            await _call(self._open_url, url)
        # Some browsers run in the terminal, and return when they are closed.
        elif not await asyncio.to_thread(webbrowser.open, url):
            text = (
                "no browser was found on this machine; pass open_url= to show the address in "
                "another way"
            )
            raise AuthenticationError(text, executed=False)


async def _call(hook: Callable[[Any], Any], value: Any) -> None:
    result = hook(value)
    if inspect.isawaitable(result):
        await result


def _https(url: str) -> str:
    return f"https:{url.partition(':')[2]}"


def _missing_endpoint_error(endpoint: str) -> AuthenticationError:
    text = f"the authorization server has no {endpoint}, which this grant needs"
    return AuthenticationError(text, executed=False)


def _read_prompt(document: Mapping[str, Any]) -> tuple[DevicePrompt, str, float]:
    """Decode a device authorization response (RFC 8628, 3.2)."""
    code, user_code = document.get("device_code"), document.get("user_code")
    uri = document.get("verification_uri", document.get("verification_url"))  # Google's name
    complete_uri = document.get("verification_uri_complete")
    try:
        if not isinstance(code, str) or not isinstance(user_code, str):
            text = "it has no code"
            raise TypeError(text)  # noqa: TRY301  reported below, like other faults
        prompt = DevicePrompt(
            verification_uri=check_endpoint(uri, "verification_uri"),
            user_code=one_line(user_code, 100),
            verification_uri_complete=(
                None
                if complete_uri is None
                else check_endpoint(complete_uri, "verification_uri_complete")
            ),
            expires_in=min(seconds_in(document.get("expires_in")) or 600.0, _MAX_PROMPT_S),
        )
    except (ValueError, TypeError) as error:
        text = f"the device authorization response is not valid: {error}"
        raise AuthenticationError(text, executed=False) from None
    interval = seconds_in(document.get("interval"))
    return prompt, code, min(max(interval or _DEFAULT_INTERVAL_S, 1.0), _MAX_INTERVAL_S)


def _next_interval(error: A2AError, interval: float) -> float:
    """Return the seconds until the next poll (RFC 8628, 3.5), or raise a final error.

    A transient failure only makes polls less frequent, since the user may be approving.
    """
    code = error_code(error)
    if code == "authorization_pending":
        return interval
    if code == "slow_down":
        return interval + _SLOW_DOWN_S
    if error.transient or isinstance(error, A2AConnectionError | A2ATimeoutError):
        return max(min(interval * 2, _MAX_INTERVAL_S), error.retry_after or 0.0)
    raise error


def _code_in(redirect_url: str, state: str, server: AuthorizationServer) -> str:
    """Return the code of the browser's redirect (RFC 6749, 4.1.2), after validation."""
    response = {name: values[0] for name, values in parse_qs(urlsplit(redirect_url).query).items()}
    if not hmac.compare_digest(response.get("state", "").encode(), state.encode()):
        text = "OAuth state mismatch: the browser response does not belong to this login"
        raise AuthenticationError(text, executed=False)
    issuer, named_issuer = server.issuer, response.get("iss")
    is_missing = named_issuer is None and server.authorization_response_iss_parameter_supported
    if is_missing or (named_issuer is not None and issuer is not None and named_issuer != issuer):
        text = "OAuth issuer mismatch: the browser response is from another server (iss)"
        raise AuthenticationError(text, executed=False)
    if "error" in response:
        code = one_line(response["error"], 200)
        description = one_line(response.get("error_description", ""), 200)
        denial = (
            f"the authorization was denied: {code}{f' ({description})' if description else ''}"
        )
        raise AuthenticationError(denial, data={"error": code}, executed=False)
    if "code" not in response:
        text = "the browser response has no authorization code"
        raise AuthenticationError(text, executed=False)
    return response["code"]
