"""Credentials: where they come from; `holdfast._pipeline.credentials` adds them to requests."""

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
from holdfast._pipeline.credentials import AuthProvider
from holdfast._pipeline.transport import ClientCallContext
from holdfast._wire.credentials import Credentials
from holdfast._wire.http import check_headers
from holdfast._wire.security import explain_missing_scheme

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
    """Credentials that never change, whatever the card says.

    Args:
        headers: The headers that carry them.

    Raises:
        TypeError: They are no dict of headers.
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
        """The same headers for each attempt."""
        return self._credentials

    async def on_unauthorized(self, call: AnyCall, error: AuthenticationError, /) -> bool:
        """Return False: there are no other credentials; the error names a missing scheme."""
        explain_missing_scheme(error, self._credentials.headers, call.card)
        return False

    def __repr__(self) -> str:
        names = ", ".join(self._credentials.headers)
        return f"StaticAuth({names})"  # names only: the values are secret


def to_provider(
    auth: str | Mapping[str, str] | AuthProvider | CredentialService | None,
) -> AuthProvider | None:
    """Reads what a caller passes as ``auth=``.

    Args:
        auth: A value for ``Authorization``, such as ``"Bearer …"``; headers; a provider; or a
            credential service, to be asked as the card wants.

    Raises:
        ValueError: It holds no credential, or a header that HTTP does not allow.
        TypeError: It is none of these.
    """
    match auth:
        case None:
            return None
        case Mapping() | str() if not (auth.strip() if isinstance(auth, str) else auth):
            text = "auth is empty; leave it out to send no credentials"
            raise ValueError(text)
        case str():
            return StaticAuth(check_headers({"authorization": auth}))
        case Mapping():
            headers = check_headers(auth)
            for name, value in auth.items():
                check_credential(f"the header {name}", value)
            return StaticAuth(headers)
        case _ if _has(auth, "credentials", "on_unauthorized"):
            return cast("AuthProvider", auth)
        case _ if _has(auth, "get_credentials"):
            return AuthInterceptor(cast("CredentialService", auth))
        case _:
            text = (
                "auth is a header value, headers, an AuthProvider or a CredentialService, not "
                f"{type(auth).__name__}"
            )
            raise TypeError(text)


def one_provider(
    provider: AuthProvider | None, interceptors: Iterable[Interceptor]
) -> AuthProvider | None:
    """The one place that credentials come from: a provider, or an `AuthInterceptor`.

    Raises:
        ValueError: There is more than one.
    """
    found: list[AuthProvider] = [one for one in interceptors if isinstance(one, AuthInterceptor)]
    if provider is not None:
        found.append(provider)
    if len(found) > 1:
        text = "credentials come from one place: auth=, or one AuthInterceptor"
        raise ValueError(text)
    return found[0] if found else None


def _has(auth: object, *methods: str) -> bool:
    able = all(callable(getattr(auth, method, None)) for method in methods)
    return able and not isinstance(auth, type)
