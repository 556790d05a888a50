"""Credentials by the security schemes of a card (A2A 4.5).

A service provides a credential for a scheme. The card determines which schemes are required, and
where each credential goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, cast

from holdfast._arguments import check_credential, check_methods, check_not_empty
from holdfast._pipeline.credentials import with_credentials
from holdfast._pipeline.listeners import Interceptor
from holdfast._wire.credentials import Credentials
from holdfast._wire.security import alternatives, unsatisfied_error
from holdfast.errors import AuthenticationError

if TYPE_CHECKING:
    from holdfast._pipeline.transport import AnyCall, ClientCallContext

__all__ = [
    "AuthInterceptor",
    "CredentialService",
    "InMemoryContextCredentialStore",
    "SchemeCredentials",
]

_NO_CREDENTIALS = Credentials()


class CredentialService(Protocol):
    """Source of credentials by the names of security schemes."""

    async def get_credentials(
        self, scheme: str, context: ClientCallContext | None, /
    ) -> str | None:
        """Return the credential for a scheme; None if there is none.

        The credential is the token for HTTP Bearer, OAuth 2.0 and OpenID Connect,
        ``user:password`` for HTTP Basic, and the key for an API key.

        Args:
            scheme: Name of the scheme in the card.
            context: The `ClientCallContext` of the call; None if the caller passed none.
        """
        ...


class SchemeCredentials:
    """The same credentials for every call of a client, by security scheme.

    Args:
        credentials: Credentials by the names of the card's security schemes.

    Raises:
        TypeError: The argument is not a mapping of strings to strings.
        ValueError: The mapping is empty, or a credential is empty or ``"None"``.

    Example:
        Name the credential by the card's security scheme::

            auth = holdfast.SchemeCredentials({"bearer": "my-token"})
            async with holdfast.connect("http://localhost:9999", auth=auth) as agent:
                print((await agent.ask("How far is the moon?")).text)
    """

    def __init__(self, credentials: Mapping[str, str]) -> None:
        if not isinstance(cast("object", credentials), Mapping):
            text = f"credentials must be a dict of strings, not {type(credentials).__name__}"
            raise TypeError(text)
        if not credentials:
            text = "SchemeCredentials must not be empty; omit auth= to send no credentials"
            raise ValueError(text)
        for name, credential in credentials.items():
            check_not_empty("the name of a scheme", name)
            check_credential(f"the credential for {name!r}", credential)
        self._credentials = dict(credentials)

    async def get_credentials(
        self, scheme: str, _context: ClientCallContext | None, /
    ) -> str | None:
        """Return the credential for a scheme; None if there is none.

        Args:
            scheme: Name of the scheme in the card.
            context: Not used.
        """
        return self._credentials.get(scheme)

    def __repr__(self) -> str:
        return f"SchemeCredentials({', '.join(self._credentials)})"  # names only


class InMemoryContextCredentialStore:
    """Credentials of many sessions, for one client that serves all of them.

    Pass the session of a call as ``context=ClientCallContext(state={"sessionId": …})``.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, dict[str, str]] = {}

    async def set_credentials(
        self, session_id: str, security_scheme_name: str, credential: str
    ) -> None:
        """Store a credential until it is replaced, or its session is forgotten.

        Args:
            session_id: Name of the session.
            security_scheme_name: Name of the security scheme in the card.
            credential: The credential for the scheme, as `CredentialService.get_credentials`
                returns it.

        Raises:
            ValueError: An argument is empty.
        """
        check_not_empty("session_id", session_id)
        check_not_empty("security_scheme_name", security_scheme_name)
        check_not_empty("the credential", credential)
        self._sessions.setdefault(session_id, {})[security_scheme_name] = credential

    async def forget_session(self, session_id: str) -> None:
        """Remove all credentials of a session; an unknown session is not an error.

        Args:
            session_id: Name of the session.
        """
        self._sessions.pop(session_id, None)

    async def get_credentials(
        self, security_scheme_name: str, context: ClientCallContext | None
    ) -> str | None:
        """Return the credential of the call's session for a scheme.

        Args:
            security_scheme_name: Name of the scheme in the card.
            context: The `ClientCallContext` of the call, with the ``"sessionId"`` in its
                ``state``.
        """
        session_id = None if context is None else context.state.get("sessionId")
        if not isinstance(session_id, str):
            return None
        return self._sessions.get(session_id, {}).get(security_scheme_name)

    def __repr__(self) -> str:
        return f"InMemoryContextCredentialStore({len(self._sessions)} sessions)"


class AuthInterceptor(Interceptor):
    """Adds the credentials that the agent's card requires to each call.

    The card's ``securityRequirements`` are tried in order: the first one whose schemes all have a
    credential is used. Mutual TLS needs none, since the connection carries it; a requirement
    without any credentials is tried last. If the card requires nothing, nothing is added. If the
    service lacks a required credential, the call fails before anything is sent. Requirements of
    single skills are ignored, because a message does not name its skill.

    It is an `AuthProvider`: both as ``auth=`` and among the ``interceptors``, its credentials are
    added to each attempt, and sent to trusted origins only. After a 401 it asks the service again,
    and retries once if that returns another credential.

    Args:
        credential_service: The source of the credentials.
    """

    def __init__(self, credential_service: CredentialService) -> None:
        check_methods("credential_service", credential_service, "get_credentials")
        self._service = credential_service

    async def credentials(self, call: AnyCall, /) -> Credentials:
        """Return the credentials that the card of the call's endpoint requires.

        Args:
            call: The call.

        Raises:
            AuthenticationError: A credential is missing or malformed, or the card requires an
                unsupported scheme. Nothing was sent.
        """
        required = [] if call.card is None else alternatives(call.card)
        if call.card is None or not required:
            return _NO_CREDENTIALS
        by_scheme: dict[str, str | None] = {}
        for alternative in required:
            for scheme in alternative.carriers:
                if scheme not in by_scheme:
                    by_scheme[scheme] = await self._ask(scheme, call.context)
            credentials = alternative.credentials_from(by_scheme)
            if credentials is not None:
                return credentials
        raise unsatisfied_error(call.card, required, by_scheme)

    async def on_unauthorized(self, call: AnyCall, _error: AuthenticationError, /) -> bool:
        """Return True if the service has other credentials by now.

        Args:
            call: The call as it was sent, with the credentials that were refused.
            error: The error of the agent.
        """
        try:
            credentials = await self.credentials(call)
        except AuthenticationError:
            return False
        retried = with_credentials(call, credentials)
        return (retried.headers, retried.query) != (call.headers, call.query)

    async def _ask(self, scheme: str, context: ClientCallContext | None) -> str | None:
        credential = await self._service.get_credentials(scheme, context)
        if not isinstance(cast("object", credential), str | None):
            text = (
                f"the credential for {scheme!r} must be a string, not {type(credential).__name__}"
            )
            raise TypeError(text)
        return credential

    def __repr__(self) -> str:
        return f"AuthInterceptor({type(self._service).__name__})"
