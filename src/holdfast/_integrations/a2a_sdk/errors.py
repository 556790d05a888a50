"""Conversion of Holdfast's errors to the SDK's, for programs that catch those.

Rules: an error of the agent becomes the SDK's class of the same name, with the ``data`` of the
SDK's own transports; a timeout becomes a `CallTimeoutError`; a missing or invalid card becomes the
SDK's `AgentCardResolutionError`; any other error becomes a `CallFailedError`. The message is that
of Holdfast's error, which, with all its facts, is the ``__cause__``: errors are raised with
``raise to_sdk_error(error) from error``.
"""

from __future__ import annotations

import re
from copy import copy
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from a2a.client.errors import A2AClientError, A2AClientTimeoutError, AgentCardResolutionError
from a2a.utils import errors as sdk

from holdfast import errors
from holdfast._client.options import ClientOptions
from holdfast._model.codec import MalformedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from holdfast.errors import A2AError, Attempt

__all__ = ["SDK_ERRORS", "CallFailedError", "CallTimeoutError", "SdkErrors", "to_sdk_error"]


class CallFailedError(A2AClientError):
    """A call failed for a reason other than an A2A error of the agent.

    Attributes:
        executed: Whether the agent executed the operation: True, False, or None if unknown.
        transient: Whether the same call may succeed later.
        retry_after: Seconds to wait before a retry, by the agent's Retry-After or its circuit
            breaker; None if there is no hint.
        attempts: All attempts, in order.
        http_status: Status of the HTTP reply; None without one.
        message_id: The id of the message if its outcome is unknown or known to be wrong; None
            otherwise.
    """

    def __init__(self, message: str | None = None, data: dict[Any, Any] | None = None) -> None:
        super().__init__(message, data)  # pyright: ignore[reportUnknownMemberType]  a bare dict
        self.executed: bool | None = None
        self.transient: bool = False
        self.retry_after: float | None = None
        self.attempts: tuple[Attempt, ...] = ()
        self.http_status: int | None = None
        self.message_id: str | None = None

    @classmethod
    def of(cls, error: A2AError) -> CallFailedError:
        """Return the error for one of Holdfast's errors, with its message and facts.

        Args:
            error: The error of Holdfast.
        """
        failed = cls(str(error))
        failed.executed = error.executed
        failed.transient = error.transient
        failed.retry_after = error.retry_after
        failed.attempts = error.attempts
        failed.http_status = error.http_status
        failed.message_id = getattr(error, "message_id", None)
        return failed


class CallTimeoutError(CallFailedError, A2AClientTimeoutError):
    """A call exceeded its time limit; the attributes are those of `CallFailedError`."""


def to_sdk_error(error: A2AError) -> sdk.A2AError:
    """Return the SDK's error for one of Holdfast's errors.

    Args:
        error: The error; the caller makes it the ``__cause__`` of the result.

    Returns:
        An error of the SDK's class of the same name, a `CallFailedError` or a `CallTimeoutError`.
    """
    for kind in type(error).__mro__:
        make = _MAKERS.get(kind)
        if make is not None:
            return make(error)
    return CallFailedError.of(error)


_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


def _answered(name: str) -> Callable[[A2AError], sdk.A2AError]:
    """Return a factory of an A2A error; of `CallFailedError` if the SDK is too old for it."""
    kind = getattr(sdk, name, None)
    if kind is None:
        return CallFailedError.of
    return lambda error: cast("sdk.A2AError", kind(str(error), data=_metadata(error)))


def _metadata(error: A2AError) -> dict[str, Any] | None:
    """Return the ``data`` of the SDK's transports: the metadata of the first ErrorInfo."""
    for detail in error.details:
        if detail.get("@type") == _ERROR_INFO:
            return detail.get("metadata") or None
    return None


def _bad_response(error: A2AError) -> sdk.A2AError:
    """Return the agent's own error, or a `CallFailedError` if the reply cannot be read."""
    if error.code is None:
        return CallFailedError.of(error)
    return _answered("InvalidAgentResponseError")(error)


def _no_card(error: A2AError) -> sdk.A2AError:
    return AgentCardResolutionError(str(error), status_code=error.http_status)


def _timeout_or_failure(error: A2AError) -> sdk.A2AError:
    """Return a timeout if the reply was lost because of one, a `CallFailedError` otherwise."""
    is_timeout = isinstance(error.__cause__, TimeoutError)
    return CallTimeoutError.of(error) if is_timeout else CallFailedError.of(error)


_MAKERS: Mapping[type, Callable[[A2AError], sdk.A2AError]] = MappingProxyType(
    {
        kind: _answered(kind.__name__)
        for kind in (
            errors.TaskNotFoundError,
            errors.TaskNotCancelableError,
            errors.PushNotificationNotSupportedError,
            errors.UnsupportedOperationError,
            errors.ContentTypeNotSupportedError,
            errors.ExtendedAgentCardNotConfiguredError,
            errors.ExtensionSupportRequiredError,
            errors.VersionNotSupportedError,
            errors.InvalidRequestError,
            errors.MethodNotFoundError,
            errors.InvalidParamsError,
            errors.InternalError,
        )
    }
    | {
        errors.ParseError: _answered("JSONParseError"),
        errors.InvalidAgentResponseError: _bad_response,
        errors.AgentCardResolutionError: _no_card,
        errors.InvalidAgentCardError: _no_card,
        errors.A2ATimeoutError: CallTimeoutError.of,
        errors.DeadlineExceededError: CallTimeoutError.of,
        errors.OutcomeUnknownError: _timeout_or_failure,
        errors.ReconnectError: _timeout_or_failure,
    }
)


_ADVICE = re.compile(rf"\bpass ({'|'.join(ClientOptions.__annotations__)})=")
"""Advice to pass an option of Holdfast's client, which the SDK's client does not have."""


class SdkErrors:
    """Raises Holdfast's errors as those of the SDK's transport of a binding; others pass.

    Args:
        make: Converts one of Holdfast's errors to the SDK's.
        taker: What takes the options that a message advises to pass.
    """

    def __init__(self, make: Callable[[A2AError], Exception], taker: str = "") -> None:
        self._make = make
        self._taker = taker

    def advising(self, taker: str) -> SdkErrors:
        """Return the same conversion, whose messages name what takes the advised options."""
        return SdkErrors(self._make, taker)

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, errors.A2AError):
            raise self._make(self._advised(error)) from error
        if isinstance(error, MalformedError):  # of a parameter that cannot be encoded
            raise sdk.InvalidParamsError(str(error)) from error

    def _advised(self, error: A2AError) -> A2AError:
        """Return the error; a copy of it if its message advises to pass an option."""
        if not self._taker or not _ADVICE.search(error.message):
            return error
        advised = copy(error)
        advised.message = _ADVICE.sub(rf"give {self._taker} the option \1=", error.message)
        return advised


def _of_http_json(error: A2AError) -> Exception:
    """Return the SDK's error, which depends on the reason in the details, not on the status."""
    if error.http_status is None or any("reason" in detail for detail in error.details):
        return to_sdk_error(error)
    if error.http_status == HTTPStatus.NOT_FOUND:
        return sdk.MethodNotFoundError(str(error))
    converted = to_sdk_error(error)
    return converted if isinstance(converted, A2AClientError) else CallFailedError.of(error)


SDK_ERRORS: Mapping[str, SdkErrors] = {
    "JSONRPC": SdkErrors(to_sdk_error),
    "HTTP+JSON": SdkErrors(_of_http_json),
}
"""The conversion of errors, by binding."""
