"""The errors that users of the official SDK catch, for type checkers: never run."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import assert_type

from a2a.client.errors import A2AClientError, A2AClientTimeoutError
from a2a.utils.errors import A2AError as SdkError

from holdfast import A2AError
from holdfast._integrations.a2a_sdk.errors import to_sdk_error
from holdfast.errors import Attempt
from holdfast.integrations.a2a_sdk import CallFailedError, CallTimeoutError


def failed(error: CallFailedError, late: CallTimeoutError, cause: A2AError) -> None:
    assert_type(error.executed, bool | None)
    assert_type(error.transient, bool)
    assert_type(late.retry_after, float | None)
    assert_type(late.attempts, tuple[Attempt, ...])
    assert_type(error.http_status, int | None)
    assert_type(error.message_id, str | None)
    assert_type(to_sdk_error(cause), SdkError)


def caught(error: Exception) -> None:
    if isinstance(error, A2AClientTimeoutError) and not isinstance(error, CallTimeoutError):
        return
    if isinstance(error, A2AClientError) and isinstance(error, CallFailedError):
        assert_type(error.executed, bool | None)
