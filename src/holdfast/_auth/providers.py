"""Sources of credentials; `holdfast._pipeline.credentials` adds the credentials to requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from holdfast._arguments import check_credential
from holdfast._auth.schemes import (
    AuthInterceptor,
    CredentialService,
    InMemoryContextCredentialStore,
    SchemeCredentials,
)
from holdfast._model.sdk_values import is_of_sdk, kind_of
from holdfast._pipeline.credentials import AuthProvider
from holdfast._pipeline.transport import ClientCallContext
from holdfast._wire.credentials import Credentials
from holdfast._wire.http import check_caller_headers, check_headers
from holdfast._wire.security import (
    explain_missing_scheme,
    explain_refusal,
    required_alternatives,
)

if TYPE_CHECKING:
    from holdfast._pipeline.listeners import Interceptor
    from holdfast._pipeline.transport import AnyCall
    from holdfast.errors import AuthenticationError

__all__ = [
    "AuthInterceptor",
    "AuthProvider",
    "ClientCallContext",
    "CredentialService",
    "Credentials",
    "InMemoryContextCredentialStore",
    "SchemeCredentials",
    "StaticAuth",
    "one_provider",
    "to_provider",
]


class StaticAuth:
    """The same credentials for every request, independently of the card.

    Args:
        headers: Headers that carry the credentials.

    Raises:
        TypeError: The argument is not a dict of headers.

    Example:
        Send a bearer token::

            auth = holdfast.auth.StaticAuth({"Authorization": "Bearer my-token"})
            async with holdfast.connect("http://localhost:9999", auth=auth) as agent:
                print((await agent.ask("How far is the moon?")).text)
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        if not isinstance(cast("object", headers), Mapping):
            text = (
                f"headers must be a dict, as {{'authorization': 'Bearer …'}}, not "
                f"{type(headers).__name__}; pass one value as auth= itself"
            )
            raise TypeError(text)
        self._credentials = Credentials(headers=dict(headers))

    async def credentials(self, _call: AnyCall, /) -> Credentials:
        """Return the same headers for each attempt."""
        return self._credentials

    async def on_unauthorized(self, call: AnyCall, error: AuthenticationError, /) -> bool:
        """Return False: there are no other credentials. The error names what the card requires.

        Args:
            call: The call as it was sent.
            error: The error of the agent.
        """
        headers = {name.lower(): value for name, value in self._credentials.headers.items()}
        if call.card is not None and required_alternatives(call.card):
            explain_refusal(error, call.card, headers)
        else:
            explain_missing_scheme(error, headers, call.card)
        return False

    def __repr__(self) -> str:
        names = ", ".join(self._credentials.headers)
        return f"StaticAuth({names})"  # names only: the values are secret


def to_provider(
    auth: str | Mapping[str, str] | AuthProvider | CredentialService | None,
) -> AuthProvider | None:
    """Convert the caller's ``auth=`` to a provider.

    Args:
        auth: A value for ``Authorization``: a scheme and a credential, such as ``"Bearer …"``;
            headers; a provider; or a credential service, which provides what the card requires.

    Raises:
        ValueError: There is no credential, a value has no scheme, or a header is invalid in HTTP.
        TypeError: The argument has another type.
    """
    match auth:
        case None:
            return None
        case Mapping() | str() if not (auth.strip() if isinstance(auth, str) else auth):
            text = "auth must not be empty; omit it to send no credentials"
            raise ValueError(text)
        case str():
            headers = check_headers({"authorization": auth})
            if len(auth.split()) == 1:
                text = (
                    'auth has no scheme; pass auth="Bearer …" to send a token, or '
                    'auth={"authorization": …} to send the value as it is'
                )
                raise ValueError(text)
            return StaticAuth(headers)
        case Mapping():
            headers = check_caller_headers(auth)
            for name, value in auth.items():
                check_credential(f"the header {name}", value)
            return StaticAuth(headers)
        case _ if _has(auth, "credentials", "on_unauthorized"):
            return cast("AuthProvider", auth)
        case _ if _has(auth, "get_credentials"):
            return AuthInterceptor(cast("CredentialService", auth))
        case _:
            raise TypeError(_rejection(auth))


def _rejection(auth: object) -> str:
    """Return why a value cannot be ``auth=``, and what to pass in place of those of others."""
    text = (
        "auth must be a header value, a dict of headers, an AuthProvider or a "
        f"CredentialService, not {kind_of(auth)}"
    )
    if is_of_sdk(type(auth)) and _has(auth, "before", "after"):
        return f"{text}; pass the credential service of the interceptor"
    packages = {kind.__module__.partition(".")[0] for kind in type(auth).__mro__}
    if not packages.isdisjoint({"httpx", "httpx2"}):
        return (
            f"{text}, an Auth of httpx; pass the value of its header, as in "
            'auth="Bearer …", or an AuthProvider for values that change'
        )
    return text


def one_provider(
    provider: AuthProvider | None, interceptors: Iterable[Interceptor]
) -> AuthProvider | None:
    """Return the only source of credentials: the provider, or an `AuthInterceptor`.

    Raises:
        ValueError: There is more than one source.
    """
    providers: list[AuthProvider] = [
        interceptor for interceptor in interceptors if isinstance(interceptor, AuthInterceptor)
    ]
    if provider is not None:
        providers.append(provider)
    if len(providers) > 1:
        text = "pass credentials as auth= or in one AuthInterceptor, not both"
        raise ValueError(text)
    return providers[0] if providers else None


def _has(auth: object, *methods: str) -> bool:
    has_methods = all(callable(getattr(auth, method, None)) for method in methods)
    return has_methods and not isinstance(auth, type)
