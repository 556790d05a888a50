"""The layer that adds credentials to each attempt, and the reference to their source.

Rules: credentials are requested for each attempt, once the endpoint is chosen and its origin is
known to be trusted; after a failure of the provider itself, the message counts as not sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import msgspec

from holdfast._model.operations import SEND_NAMES
from holdfast._pipeline.transport import (
    AnyCall,
    AuthProvider,
    BaseLayer,
    Call,
    CallNext,
    Reply,
    Transport,
)
from holdfast._policy.attempts import was_executed
from holdfast._wire.credentials import Credentials, check_credentials, with_cookies
from holdfast._wire.security import explain_unused_credentials
from holdfast.errors import A2AError, AuthenticationError, PermissionDeniedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from holdfast._pipeline.security_warnings import SecurityWarnings

__all__ = ["AuthProvider", "AuthProviderRef", "CredentialsLayer", "with_credentials"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class AuthProviderRef:
    """A reference to a client's only provider, which may be set after the client was made.

    Attributes:
        provider: The provider; None while there is none.
    """

    def __init__(self, provider: AuthProvider | None) -> None:
        self.provider = provider


class CredentialsLayer(BaseLayer):
    """Adds the credentials to each attempt, and replays one after a 401 where that is safe.

    Args:
        inner: The transport below.
        warnings: Logs warnings about their destinations; none if left out.
    """

    def __init__(self, inner: Transport, warnings: SecurityWarnings | None = None) -> None:
        super().__init__(inner)
        self._warnings = warnings
        self._last = (Credentials(), Credentials())

    def handle(
        self, call: Call[P, R], call_next: CallNext[P, R, T], /
    ) -> Coroutine[Any, Any, Reply[T]]:
        provider = call.auth
        if provider is not None:
            return self._authorized(call, call_next, provider)
        self._warn(call)
        return call_next(call)

    def _warn(self, call: AnyCall) -> None:
        if self._warnings is not None and call.endpoint is not None:
            self._warnings.check_credentials(call, call.endpoint)

    async def _authorized(
        self, call: Call[P, R], call_next: CallNext[P, R, T], provider: AuthProvider
    ) -> Reply[T]:
        call.progress.lacks_credentials = False
        refused: A2AError | None = None  # the failure after which this attempt is the replay
        while True:
            try:
                provided = await provider.credentials(call)
            except A2AError as error:
                _blame_provider(call, error, refused)
                raise
            last = self._last  # read once: another thread may be using this client
            credentials = last[1] if provided == last[0] else self._checked(provided)
            call.progress.call_group.secrets.note_credentials(credentials)
            sent = with_credentials(call, credentials)
            if self._warnings is not None and call.endpoint is not None:
                self._warnings.check_credentials(sent, call.endpoint)
            try:
                return await call_next(sent)
            except A2AError as error:
                if refused is not None:
                    error.executed = was_executed([refused.executed, error.executed])
                if not isinstance(error, AuthenticationError | PermissionDeniedError):
                    raise
                if call.card is not None and not credentials.values:
                    explain_unused_credentials(error, call.card)
                if refused is not None or not await _is_to_be_replayed(sent, error, provider):
                    raise
                refused = error

    def _checked(self, provided: Credentials) -> Credentials:
        """Check new credentials; most providers return the same object for a while."""
        checked = check_credentials(provided)
        copied = Credentials(
            headers=dict(provided.headers), query=checked.query, cookies=checked.cookies
        )
        self._last = (copied, checked)
        return checked


async def _is_to_be_replayed(
    sent: AnyCall, error: AuthenticationError | PermissionDeniedError, provider: AuthProvider
) -> bool:
    """Return whether a call may be sent once more, with new credentials.

    It may after a 401, and after a 403 if the provider handles it.
    """
    if isinstance(error, PermissionDeniedError) and not isinstance(provider, _KnowsForbidden):
        return False
    if sent.progress.call_group.is_abandoned and sent.operation.name in SEND_NAMES:
        return False  # its caller waits no longer
    safe = sent.operation.safety != "conditional" or error.executed is False
    if error.executed is False:
        sent.progress.end_request()
    if not safe:
        if isinstance(error, AuthenticationError) and isinstance(provider, _KnowsRefused):
            provider.note_refused(sent, error)
        return False
    if isinstance(error, AuthenticationError):
        return await _before_replay(sent, error, provider.on_unauthorized(sent, error))
    return isinstance(provider, _KnowsForbidden) and await _before_replay(
        sent, error, provider.on_forbidden(sent, error)
    )


@runtime_checkable
class _KnowsForbidden(Protocol):
    """An `AuthProvider` that handles a 403, for example by requesting more scopes."""

    def on_forbidden(
        self, call: AnyCall, error: PermissionDeniedError, /
    ) -> Coroutine[Any, Any, bool]: ...


@runtime_checkable
class _KnowsRefused(Protocol):
    """An `AuthProvider` that is notified of a 401 even if the call must not be sent again."""

    def note_refused(self, call: AnyCall, error: AuthenticationError, /) -> None: ...


def with_credentials(call: Call[P, R], credentials: Credentials) -> Call[P, R]:
    """Return the call with the credentials, which replace headers and parameters of its own."""
    headers = {**call.headers, **credentials.headers}
    if credentials.cookies:
        headers["cookie"] = with_cookies(headers.get("cookie", ""), credentials.cookies)
    query = {**call.query, **credentials.query} if credentials.query else call.query
    return msgspec.structs.replace(call, headers=headers, query=query)


async def _before_replay(call: AnyCall, refused: A2AError, provider: Awaitable[T]) -> T:
    try:
        return await provider
    except A2AError as error:
        _blame_provider(call, error, refused)
        raise


def _blame_provider(call: AnyCall, error: A2AError, refused: A2AError | None) -> None:
    """Mark an error of the provider, whose requests are its own: the call was not sent.

    It was sent before if it was refused, and may have been executed then.
    """
    error.executed = False if refused is None else was_executed([refused.executed, False])
    call.progress.lacks_credentials = True
