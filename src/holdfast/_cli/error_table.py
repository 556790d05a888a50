"""From what went wrong to what the caller is told: error code, hint and exit code.

Rules (a2a-cli 11.4, 11.6, appendix D): an error that the protocol names keeps that name; one of
the command line's own has an ``A2ACLI_ERR_`` code of the specification; what neither of them
knows has a ``HOLDFAST_ERR_`` code. The exit code says whether the command did its job, and
always agrees with the code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast import errors
from holdfast._cli import error_hints as hints
from holdfast._cli import error_messages as wording
from holdfast._cli.errors import AUTH, FAILURE, TIMEOUT, UNREACHABLE, Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast._cli.errors import CommandState
    from holdfast.errors import A2AError

__all__ = ["describe"]


def describe(error: A2AError, situation: CommandState) -> Failure:
    """Finds the code, the hint and the exit code of an error."""
    kind, before_card = _kind(error), situation.card is None
    row = next(
        row
        for row in _ROWS
        if issubclass(kind, row.kind) and row.before_card in {None, before_card}
    )
    hint = row.hint(error, situation)
    if hint is None and hints.may_have_run(error, situation):
        hint = hints.look_for_message(error, situation)
    if situation.continues and row.code is None:
        rejected = "no new task was made in its place; --debug shows the protocol's own error"
        hint = f"{hint}; {rejected}" if hint else rejected
    return Failure(
        code=_code(row, error, situation),
        message=row.message(error, situation),
        hint=hint,
        a2a_code=_transport_code(error, situation),
        exit=row.exit,
    )


def _transport_code(error: A2AError, situation: CommandState) -> int | str | None:
    """The code that the transport carried (a2a-cli, appendix B); None where nothing answered."""
    if error.grpc_status:
        return error.grpc_status
    if error.code is None or (situation.binding == "HTTP+JSON" and error.http_status):
        return error.http_status
    return error.code


def _code(row: _Row, error: A2AError, situation: CommandState) -> str:
    """A row's own code, or the protocol's name of the error."""
    if row.code is None:
        return _NAMES.get(type(error), type(error).__name__)
    if row.kind is errors.AuthenticationError and not hints.gave_what_is_asked_for(situation):
        return "A2ACLI_ERR_CREDENTIALS_MISSING"
    return row.code


_NAMES: Mapping[type[A2AError], str] = {errors.ParseError: "JSONParseError"}
"""Where the protocol's name (A2A 9.5) is not our class's."""


# ── The table ────────────────────────────────────────────────────────────────────────────────


class _Row(NamedTuple):
    """What one kind of error is told as; the first row that fits counts."""

    kind: type[A2AError]
    code: str | None = None
    exit: int = FAILURE
    hint: Callable[[A2AError, CommandState], str | None] = hints.no_hint
    message: Callable[[A2AError, CommandState], str] = wording.as_told
    before_card: bool | None = None


_ROWS = (
    _Row(
        errors.DeadlineExceededError,
        "A2ACLI_ERR_TIMEOUT",
        TIMEOUT,
        hint=hints.wait_for_task,
        message=wording.timed_out,
    ),
    _Row(
        errors.TaskAuthRequiredError,
        "A2ACLI_ERR_TIMEOUT",
        TIMEOUT,
        hint=hints.wait_for_task,
        message=wording.timed_out,
    ),
    _Row(
        errors.CancelUnconfirmedError,
        "A2ACLI_ERR_TIMEOUT",
        TIMEOUT,
        hint=hints.wait_for_task,
        message=wording.not_canceled,
    ),
    _Row(
        errors.OutcomeUnknownError,
        "HOLDFAST_ERR_OUTCOME_UNKNOWN",
        hint=hints.look_for_message,
        message=wording.reply_lost,
    ),
    _Row(errors.CallEndedError, "HOLDFAST_ERR_CALL_ENDED"),
    _Row(errors.ReconnectError, "HOLDFAST_ERR_STREAM_LOST", hint=hints.wait_for_task),
    _Row(errors.VersionNotSupportedError, hint=hints.speak_theirs),
    _Row(errors.MethodNotFoundError, hint=hints.speak_theirs, before_card=False),
    _Row(
        errors.InvalidAgentCardError,
        "A2ACLI_ERR_CARD_INVALID",
        hint=hints.correct_card,
        message=wording.without_advice,
    ),
    _Row(errors.CardSignatureError, "A2ACLI_ERR_CARD_INVALID", hint=hints.have_keys),
    _Row(
        errors.AuthenticationError,
        "A2ACLI_ERR_AUTH_FAILED",
        AUTH,
        hint=hints.give_credentials,
        message=wording.unauthorized,
    ),
    _Row(
        errors.PermissionDeniedError,
        "A2ACLI_ERR_AUTH_FAILED",
        AUTH,
        hint=hints.have_permission,
        message=wording.unauthorized,
    ),
    _Row(
        errors.A2AConnectionError, "A2ACLI_ERR_UNREACHABLE", UNREACHABLE, hint=hints.be_reachable
    ),
    _Row(errors.A2ATimeoutError, "A2ACLI_ERR_UNREACHABLE", UNREACHABLE, hint=hints.answer),
    _Row(errors.RateLimitedError, "HOLDFAST_ERR_RATE_LIMITED", hint=hints.come_back),
    _Row(
        errors.NetworkPolicyError,
        "HOLDFAST_ERR_NETWORK_POLICY",
        hint=hints.name_it,
        message=wording.inside,
    ),
    _Row(errors.LimitExceededError, "HOLDFAST_ERR_LIMIT", message=wording.over_limit),
    _Row(
        errors.A2AError,
        "A2ACLI_ERR_CARD_NOT_FOUND",
        UNREACHABLE,
        hint=hints.name_card,
        before_card=True,
    ),
    _Row(
        errors.AgentCardResolutionError,
        "HOLDFAST_ERR_NO_TRANSPORT",
        hint=hints.other_transport,
    ),
    _Row(
        errors.CredentialOriginError,
        "HOLDFAST_ERR_CREDENTIAL_ORIGIN",
        hint=hints.trust_it,
        message=wording.withheld,
    ),
    _Row(
        errors.ExtensionNotSupportedError,
        "HOLDFAST_ERR_EXTENSION",
        hint=hints.leave_it_out,
        message=wording.undeclared,
    ),
    _Row(errors.ExtensionSupportRequiredError, hint=hints.ask_for_it, message=wording.required),
    _Row(
        errors.A2AHTTPError,
        "HOLDFAST_ERR_HTTP",
        hint=hints.check_path,
        message=wording.without_check,
    ),
    _Row(errors.AgentError, "HOLDFAST_ERR_AGENT"),
    _Row(errors.TaskNotFoundError, hint=hints.find_task),
    _Row(errors.TaskNotCancelableError, message=wording.with_state),
    _Row(errors.A2AError, hint=hints.speak_theirs),
)


def _kind(error: A2AError) -> type[A2AError]:
    """The kind that an error counts as: a reply that was lost to the timeout is a timeout."""
    lost, cause = isinstance(error, errors.OutcomeUnknownError), error.__cause__
    late = isinstance(cause, errors.DeadlineExceededError) and cause.deadline != wording.SEARCH
    return errors.DeadlineExceededError if lost and late else type(error)
