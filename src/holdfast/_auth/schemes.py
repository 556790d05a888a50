"""Credentials by the names of the card's security schemes (A2A 4.5).

A service knows a credential for a scheme; which schemes count, and where each credential goes, the
card says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, cast

from holdfast._arguments import check_able, check_credential, not_empty
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

_NOTHING = Credentials()


class CredentialService(Protocol):
    """Knows credentials by the names of security schemes."""

    async def get_credentials(
        self, scheme: str, context: ClientCallContext | None, /
    ) -> str | None:
        """The credential for a scheme; None if there is none.

        For HTTP Bearer, OAuth 2.0 and OpenID Connect that is the token alone, for HTTP Basic
        ``user:password``, for an API key the key.

        Args:
            scheme: The name under which the card declares it.
            context: What the caller said about the call.
        """
        ...


class SchemeCredentials:
    """The same credentials for every call of a client.

    Args:
        credentials: By the names of the card's security schemes.

    Raises:
        TypeError: They are not a mapping of strings to strings.
        ValueError: There are none, or one is empty or ``"None"``.
    """

    def __init__(self, credentials: Mapping[str, str]) -> None:
        if not isinstance(cast("object", credentials), Mapping):
            text = f"credentials are a dict of strings, not {type(credentials).__name__}"
            raise TypeError(text)
        if not credentials:
            text = "SchemeCredentials are empty; leave auth out to send no credentials"
            raise ValueError(text)
        for name, credential in credentials.items():
            not_empty("the name of a scheme", name)
            check_credential(f"the credential for {name!r}", credential)
        self._credentials = dict(credentials)

    async def get_credentials(
        self, scheme: str, _context: ClientCallContext | None, /
    ) -> str | None:
        """The credential for a scheme, if it was given."""
        return self._credentials.get(scheme)

    def __repr__(self) -> str:
        return f"SchemeCredentials({', '.join(self._credentials)})"  # names only


class InMemoryContextCredentialStore:
    """Credentials of many sessions, for one client that serves them all.

    A call says which session it is for: ``context=ClientCallContext(state={"sessionId": …})``.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, dict[str, str]] = {}

    async def set_credentials(
        self, session_id: str, security_scheme_name: str, credential: str
    ) -> None:
        """Keeps a credential until its session is forgotten, or it is set anew.

        Raises:
            ValueError: One of them is empty.
        """
        not_empty("session_id", session_id)
        not_empty("security_scheme_name", security_scheme_name)
        not_empty("the credential", credential)
        self._sessions.setdefault(session_id, {})[security_scheme_name] = credential

    async def forget_session(self, session_id: str) -> None:
        """Forgets all credentials of a session; one that is not known is no error."""
        self._sessions.pop(session_id, None)

    async def get_credentials(
        self, security_scheme_name: str, context: ClientCallContext | None
    ) -> str | None:
        """The credential that the call's session has for a scheme."""
        session_id = None if context is None else context.state.get("sessionId")
        if not isinstance(session_id, str):
            return None
        return self._sessions.get(session_id, {}).get(security_scheme_name)

    def __repr__(self) -> str:
        return f"InMemoryContextCredentialStore({len(self._sessions)} sessions)"


class AuthInterceptor(Interceptor):
    """Gives each call the credentials that the agent's card asks for.

    The card's ``securityRequirements`` are tried in order: the first one whose schemes all have a
    credential counts. Mutual TLS needs none, since the connection carries it; a requirement that
    needs none at all is the last resort. If the card requires nothing, nothing is added. If it
    requires what the service does not have, the call fails before anything is sent. What single
    skills require is not looked at: a client cannot know which of them a message is for.

    It is an `AuthProvider`: wherever it is passed, as ``auth=`` or among the ``interceptors``,
    its credentials go with each attempt, and to trusted origins only. After a 401 it asks the
    service again, and tries once more if that gives something else.

    Args:
        credential_service: Who knows the credentials.
    """

    def __init__(self, credential_service: CredentialService) -> None:
        check_able("credential_service", credential_service, "get_credentials")
        self._service = credential_service

    async def credentials(self, call: AnyCall, /) -> Credentials:
        """What the card of the call's endpoint asks for.

        Raises:
            AuthenticationError: A credential is missing or malformed, or the card asks for what
                this client does not know. Nothing was sent.
        """
        asked = [] if call.card is None else alternatives(call.card)
        if call.card is None or not asked:
            return _NOTHING
        held: dict[str, str | None] = {}
        for alternative in asked:
            for scheme in alternative.carriers:
                if scheme not in held:
                    held[scheme] = await self._ask(scheme, call.context)
            credentials = alternative.credentials_from(held)
            if credentials is not None:
                return credentials
        raise unsatisfied_error(call.card, asked, held)

    async def on_unauthorized(self, call: AnyCall, _error: AuthenticationError, /) -> bool:
        """Whether there are other credentials by now."""
        try:
            credentials = await self.credentials(call)
        except AuthenticationError:
            return False
        again = with_credentials(call, credentials)
        return (again.headers, again.query) != (call.headers, call.query)

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
