"""Holdfast's errors as the SDK's, for programs that catch those.

Rules: what the agent answered is the SDK's class of the same name, with the ``data`` that the
SDK's own transports give it; a wait that was over is a `CallTimeoutError`; a card that was not
found or is none is the SDK's `AgentCardResolutionError`; all else is a `CallFailedError`. The
message is Holdfast's line, and Holdfast's error, with all its facts, is the ``__cause__``: whoever
raises one says ``raise to_sdk_error(error) from error``.
"""

from __future__ import annotations

from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from a2a.client.errors import A2AClientError, A2AClientTimeoutError, AgentCardResolutionError
from a2a.utils import errors as sdk

from holdfast import errors
from holdfast._model.codec import MalformedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from holdfast.errors import A2AError, Attempt

__all__ = ["SDK_ERRORS", "CallFailedError", "CallTimeoutError", "SdkErrors", "to_sdk_error"]


class CallFailedError(A2AClientError):
    """A call failed otherwise than by an error of the protocol.

    Attributes:
        executed: Whether the agent ran the operation: True, False, or None where nobody can know.
        transient: Whether the same call may succeed later.
        retry_after: Seconds to wait before another try, where the agent said so, or its circuit
            breaker did.
        attempts: Every attempt that was made, in order.
        http_status: Status of the HTTP reply, if there was one.
        message_id: The message that it is about, where the outcome of sending it is not known, or
            known to be wrong.
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
        """The error for one of Holdfast's, with its line and its facts."""
        failed = cls(str(error))
        failed.executed = error.executed
        failed.transient = error.transient
        failed.retry_after = error.retry_after
        failed.attempts = error.attempts
        failed.http_status = error.http_status
        failed.message_id = getattr(error, "message_id", None)
        return failed


class CallTimeoutError(CallFailedError, A2AClientTimeoutError):
    """A call took longer than it may; its attributes are those of `CallFailedError`."""


def to_sdk_error(error: A2AError) -> sdk.A2AError:
    """The SDK's error for one of Holdfast's.

    Args:
        error: The error; it is to be the ``__cause__`` of the result.

    Returns:
        Of the SDK's class of that name, or one of `CallFailedError` and `CallTimeoutError`.
    """
    for kind in type(error).__mro__:
        make = _MAKERS.get(kind)
        if make is not None:
            return make(error)
    return CallFailedError.of(error)


_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


def _answered(name: str) -> Callable[[A2AError], sdk.A2AError]:
    """What makes an error of the protocol; a `CallFailedError` where the SDK is too old for it."""
    kind = getattr(sdk, name, None)
    if kind is None:
        return CallFailedError.of
    return lambda error: cast("sdk.A2AError", kind(str(error), data=_metadata(error)))


def _metadata(error: A2AError) -> dict[str, Any] | None:
    """What the SDK's transports give as ``data``: the metadata of the first ErrorInfo."""
    for detail in error.details:
        if detail.get("@type") == _ERROR_INFO:
            return detail.get("metadata") or None
    return None


def _bad_response(error: A2AError) -> sdk.A2AError:
    """The agent's own word, or the client's: that the reply cannot be read is no answer."""
    if error.code is None:
        return CallFailedError.of(error)
    return _answered("InvalidAgentResponseError")(error)


def _no_card(error: A2AError) -> sdk.A2AError:
    return AgentCardResolutionError(str(error), status_code=error.http_status)


def _by_what_broke(error: A2AError) -> sdk.A2AError:
    """A reply that was lost since it took too long is a timeout, for the SDK's users too."""
    late = isinstance(error.__cause__, TimeoutError)
    return CallTimeoutError.of(error) if late else CallFailedError.of(error)


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
        errors.OutcomeUnknownError: _by_what_broke,
        errors.ReconnectError: _by_what_broke,
    }
)


class SdkErrors:
    """Raises what goes wrong as the SDK's transport of that binding does; all else passes.

    Args:
        make: Makes the SDK's error of one of Holdfast's.
    """

    def __init__(self, make: Callable[[A2AError], Exception]) -> None:
        self._make = make

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, errors.A2AError):
            raise self._make(error) from error
        if isinstance(error, MalformedError):  # of a parameter that cannot be sent
            raise sdk.InvalidParamsError(str(error)) from error


def _of_http_json(error: A2AError) -> Exception:
    """The SDK's error: what an agent means it has to say by a reason, and not by a status."""
    if error.http_status is None or any("reason" in detail for detail in error.details):
        return to_sdk_error(error)
    if error.http_status == HTTPStatus.NOT_FOUND:
        return sdk.MethodNotFoundError(str(error))
    told = to_sdk_error(error)
    return told if isinstance(told, A2AClientError) else CallFailedError.of(error)


SDK_ERRORS: Mapping[str, SdkErrors] = {
    "JSONRPC": SdkErrors(to_sdk_error),
    "HTTP+JSON": SdkErrors(_of_http_json),
}
"""By binding."""
