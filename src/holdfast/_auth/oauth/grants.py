"""The grants: by what a client gets its tokens (RFC 6749, 4; RFC 8628)."""

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
from holdfast._auth.oauth.provider import Asking, OAuthOptions, OAuthProvider
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

_DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
_INTERVAL, _SLOWER, _LONGEST_INTERVAL = 5.0, 5.0, 60.0
_LONGEST_PROMPT = 1800.0


class ClientCredentials(OAuthProvider):
    """Tokens for a program that acts for itself (RFC 6749, 4.4).

    Args:
        server: The issuer, whose metadata say where its endpoints are (RFC 8414, OpenID Connect
            Discovery); an `AuthorizationServer`, which says it itself; or `FromCard`.
        client_id: The client's id there.
        client_secret: Its secret; None where a certificate says who it is (``tls=``).
        options: See `OAuthOptions`.

    Raises:
        ValueError: A value that cannot be right.
        TypeError: A value of another type.
        ImportError: The extra ``oauth`` is not installed.
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

    async def _grant(self, asking: Asking) -> Token:
        token = await asking.endpoint.ask_token(asking.parameters("client_credentials"))
        return msgspec.structs.replace(token, refresh_token=None)  # RFC 6749, 4.4.3


class DevicePrompt(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is to be told, so that they allow it elsewhere (RFC 8628, 3.3).

    Attributes:
        verification_uri: Where to go.
        user_code: What to enter there.
        verification_uri_complete: The same with the code in it; None if there is none.
        expires_in: Seconds until it is too late.
    """

    verification_uri: str
    user_code: str
    verification_uri_complete: str | None = None
    expires_in: float = _LONGEST_PROMPT


class DeviceCode(OAuthProvider):
    """Tokens that a person allows on another device (RFC 8628).

    Args:
        server: See `ClientCredentials`.
        client_id: The client's id there.
        prompt: Told what the person has to do; a function or a coroutine function.
        client_secret: The client's secret, if it has one.
        options: See `OAuthOptions`.

    Raises:
        ValueError: A value that cannot be right.
        TypeError: A value of another type.
        ImportError: The extra ``oauth`` is not installed.
    """

    _flow = "device_code"
    _patience = _LONGEST_PROMPT

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

    async def _grant(self, asking: Asking) -> Token:
        url = asking.endpoint.server.device_authorization_endpoint
        if url is None:
            raise _lacks("device_authorization_endpoint")
        said = asking.parameters("")
        del said["grant_type"]
        loop = asyncio.get_running_loop()
        begun = loop.time()
        document = await self._within_timeout(asking.endpoint.post(url, said))
        prompt, code, interval = _read_prompt(document)
        await _told(self._prompt, prompt)
        ends = begun + prompt.expires_in
        while True:
            if loop.time() + interval >= ends:
                text = f"the login was not approved within {prompt.expires_in:g} s; begin again"
                raise AuthenticationError(text, data={"error": "expired_token"}, executed=False)
            await asyncio.sleep(interval)
            parameters = {"grant_type": _DEVICE_CODE, "device_code": code}
            if asking.resource is not None:
                parameters["resource"] = asking.resource
            try:
                return await self._within_timeout(asking.endpoint.ask_token(parameters))
            except A2AError as error:
                interval = _next_interval(error, interval)


class AuthorizationCode(OAuthProvider):
    """Tokens that a person allows in their browser (RFC 6749, 4.1, with PKCE, RFC 7636).

    Args:
        server: See `ClientCredentials`.
        client_id: The client's id there.
        client_secret: The client's secret, if it has one.
        open_url: Shows the person the address to go to; a function or a coroutine function. The
            system's browser if left out.
        redirect_uri: Where the server sends the browser back to, if that is a place of yours;
            pass `receive` with it. If left out, a port of 127.0.0.1 is opened for the while (RFC
            8252, 7.3).
        receive: Waits for the browser there, and gives the address that it came with.
        patience: Seconds that the person has.
        allow_unadvertised_pkce: Whether to log in although neither the server's metadata (RFC
            8414, ``code_challenge_methods_supported``) nor the card's flow (``pkceRequired``)
            advertises PKCE with S256. The code challenge is sent in any case, but a server that
            ignores it lets anyone redeem a stolen authorization code.
        options: See `OAuthOptions`.

    Raises:
        ValueError: A value that cannot be right.
        TypeError: A value of another type.
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
        patience: float = 300.0,
        allow_unadvertised_pkce: bool = False,
        **options: Unpack[OAuthOptions],
    ) -> None:
        super().__init__(server, client_id, client_secret=client_secret, **options)
        check_hook("open_url", open_url)
        self._open_url = open_url
        if (redirect_uri is None) != (receive is None):
            text = (
                "redirect_uri and receive belong together: where the browser goes, and who waits"
            )
            raise ValueError(text)
        if redirect_uri is not None:
            check_endpoint(redirect_uri, "redirect_uri")
        self._redirect_uri, self._receive = redirect_uri, receive
        self._patience = self._seconds = check_seconds("patience", patience)
        check_kind("allow_unadvertised_pkce", allow_unadvertised_pkce, bool)
        self._allows_unadvertised_pkce = allow_unadvertised_pkce

    async def _grant(self, asking: Asking) -> Token:
        if asking.endpoint.server.authorization_endpoint is None:
            raise _lacks("authorization_endpoint")
        methods = asking.endpoint.server.code_challenge_methods_supported
        if PKCE_METHOD not in methods and not self._allows_unadvertised_pkce:
            text = (
                f"{PKCE_NOT_ADVERTISED}: log in with DeviceCode, or pass "
                "allow_unadvertised_pkce=True to log in all the same"
            )
            raise AuthenticationError(text, executed=False)
        async with CancelScope.within(self._seconds):
            state = secrets.token_urlsafe(32)
            if self._redirect_uri is not None and self._receive is not None:
                return await self._through(asking, self._redirect_uri, self._receive, state)
            async with LoopbackRedirect(state) as redirect:
                return await self._through(asking, redirect.uri, redirect.received, state)
        text = f"the login was not approved within {self._seconds:g} s; begin again"
        raise AuthenticationError(text, executed=False)

    async def _through(
        self,
        asking: Asking,
        redirect_uri: str,
        receive: Callable[[], Awaitable[str]],
        state: str,
    ) -> Token:
        client: Any = oauth_library().WebApplicationClient(asking.endpoint.client.client_id)
        verifier: str = client.create_code_verifier(64)
        challenge: str = client.create_code_challenge(verifier, PKCE_METHOD)
        more = {} if asking.resource is None else {"resource": asking.resource}
        endpoint = asking.endpoint.server.authorization_endpoint or ""
        # The library takes https alone, and the authorization server may be on this machine.
        url: str = client.prepare_request_uri(
            _https(endpoint),
            redirect_uri=redirect_uri,
            scope=list(asking.scopes) or None,
            state=state,
            code_challenge=challenge,
            code_challenge_method=PKCE_METHOD,
            **more,
        )
        await self._shown(endpoint.partition(":")[0] + url[len("https") :])
        answer = await receive()
        code = _code_in(answer, state, asking.endpoint.server)
        parameters = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
            **more,
        }
        return await asking.endpoint.ask_token(parameters)

    async def _shown(self, url: str) -> None:
        if self._open_url is not webbrowser.open:
            await _told(self._open_url, url)
        # Some browsers run in the terminal, and come back when they are closed.
        elif not await asyncio.to_thread(webbrowser.open, url):
            text = "there is no browser on this machine; pass open_url=, which shows the address"
            raise AuthenticationError(text, executed=False)


async def _told(hook: Callable[[Any], Any], value: Any) -> None:
    done = hook(value)
    if inspect.isawaitable(done):
        await done


def _https(url: str) -> str:
    return f"https:{url.partition(':')[2]}"


def _lacks(endpoint: str) -> AuthenticationError:
    text = f"the authorization server has no {endpoint}, which this grant needs"
    return AuthenticationError(text, executed=False)


def _read_prompt(document: Mapping[str, Any]) -> tuple[DevicePrompt, str, float]:
    """Reads a device authorization response (RFC 8628, 3.2)."""
    code, user_code = document.get("device_code"), document.get("user_code")
    uri = document.get("verification_uri", document.get("verification_url"))  # as Google has it
    complete = document.get("verification_uri_complete")
    try:
        if not isinstance(code, str) or not isinstance(user_code, str):
            text = "it has no code"
            raise TypeError(text)  # noqa: TRY301  told below, with what else may be wrong
        prompt = DevicePrompt(
            verification_uri=check_endpoint(uri, "verification_uri"),
            user_code=one_line(user_code, 100),
            verification_uri_complete=(
                None if complete is None else check_endpoint(complete, "verification_uri_complete")
            ),
            expires_in=min(seconds_in(document.get("expires_in")) or 600.0, _LONGEST_PROMPT),
        )
    except (ValueError, TypeError) as error:
        text = f"the authorization server's answer to a device cannot be used: {error}"
        raise AuthenticationError(text, executed=False) from None
    interval = seconds_in(document.get("interval"))
    return prompt, code, min(max(interval or _INTERVAL, 1.0), _LONGEST_INTERVAL)


def _next_interval(error: A2AError, interval: float) -> float:
    """Seconds until the next look (RFC 8628, 3.5); raises what is the end of it.

    A server that is away for a moment is asked again, less often: the person may be typing.
    """
    said = error_code(error)
    if said == "authorization_pending":
        return interval
    if said == "slow_down":
        return interval + _SLOWER
    if error.transient or isinstance(error, A2AConnectionError | A2ATimeoutError):
        return max(min(interval * 2, _LONGEST_INTERVAL), error.retry_after or 0.0)
    raise error


def _code_in(answer: str, state: str, server: AuthorizationServer) -> str:
    """The code that the browser brought (RFC 6749, 4.1.2), if it is the answer to our question."""
    said = {name: values[0] for name, values in parse_qs(urlsplit(answer).query).items()}
    if not hmac.compare_digest(said.get("state", "").encode(), state.encode()):
        text = "OAuth state mismatch: the browser response does not belong to this login"
        raise AuthenticationError(text, executed=False)
    issuer, named = server.issuer, said.get("iss")
    is_missing = named is None and server.authorization_response_iss_parameter_supported
    if is_missing or (named is not None and issuer is not None and named != issuer):
        text = "OAuth issuer mismatch: the browser response is from another server (iss)"
        raise AuthenticationError(text, executed=False)
    if "error" in said:
        code = one_line(said["error"], 200)
        words = one_line(said.get("error_description", ""), 200)
        told = f"the authorization was denied: {code}{f' ({words})' if words else ''}"
        raise AuthenticationError(told, data={"error": code}, executed=False)
    if "code" not in said:
        text = "the browser response has no authorization code"
        raise AuthenticationError(text, executed=False)
    return said["code"]
