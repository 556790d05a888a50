"""The table of errors: code, message, hint and exit code of each kind.

Rules (a2a-cli 11.4, 11.6, appendix D): an error that the protocol names keeps that name; one of
the command line's own has an ``A2ACLI_ERR_`` code of the specification; what neither of them
knows has a ``HOLDFAST_ERR_`` code. The exit code says whether the command did its job, and
always agrees with the code. Each failure is described by the first row of its kind.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple, cast

from holdfast import errors
from holdfast._cli import error_hints as hints
from holdfast._cli.errors import (
    AUTH,
    FAILURE,
    KEY_CONFLICT,
    TIMEOUT,
    UNREACHABLE,
    Failure,
    one_line,
)
from holdfast._cli.options.masking import masked_reference
from holdfast._cli.options.values import shown_duration
from holdfast._pipeline.interfaces import CHECK_ADDRESS
from holdfast._policy.deadline import LOST_IN_A_RESTART
from holdfast._wire.security import ADVICE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast._cli.errors import CommandState
    from holdfast.errors import A2AError

__all__ = ["describe"]

_SEARCH = "reconcile"
"""The name of the deadline of the search for a lost reply, which the caller did not set."""


def describe(error: A2AError, state: CommandState) -> Failure:
    """Return how an error is described, with what the command knows."""
    kind, before_card = _kind(error), state.card is None
    row = next(
        row
        for row in _ROWS
        if issubclass(kind, row.kind) and row.before_card in {None, before_card}
    )
    hint = row.hint(error, state)
    if hint is None and hints.may_have_run(error, state):
        hint = hints.search_for_message(error, state)
    if state.continues and row.code is None:
        rejected = (
            "no new task was created instead; for a new task, leave out --task-id, and pass "
            "--context-id ID to stay in the conversation; --debug shows the protocol's own error"
        )
        hint = f"{hint}; {rejected}" if hint else rejected
    return Failure(
        code=_code(row, error, state),
        message=row.message(error, state),
        hint=hint,
        a2a_code=_transport_code(error, state),
        exit=row.exit,
        ids=_ids(error, state),
    )


def _ids(error: A2AError, state: CommandState) -> dict[str, str]:
    """Return the known ids of the task, the context and the message that an error is about."""
    task = state.task or error.task
    ids = {
        "taskId": error.task_id if task is None else task.id,
        "contextId": getattr(error, "context_id", None) if task is None else task.context_id,
        "messageId": getattr(error, "message_id", None),
    }
    if state.may_have_been_sent and error.executed is not False:
        ids["messageId"] = ids["messageId"] or state.message_id
    return {name: value for name, value in ids.items() if value}


def _transport_code(error: A2AError, state: CommandState) -> int | str | None:
    """Return the code of the transport (a2a-cli, appendix B); None without an answer."""
    if error.grpc_status:
        return error.grpc_status
    if error.code is None or (state.binding == "HTTP+JSON" and error.http_status):
        return error.http_status
    return error.code


def _code(row: _Row, error: A2AError, state: CommandState) -> str:
    """Return a row's own code, or the protocol's name of the error."""
    if row.code is None:
        return _NAMES.get(type(error), type(error).__name__)
    if row.kind is errors.AuthenticationError and not hints.has_given_credentials(state):
        return "A2ACLI_ERR_CREDENTIALS_MISSING"
    return row.code


_NAMES: Mapping[type[A2AError], str] = {errors.ParseError: "JSONParseError"}
"""The protocol's names (A2A 9.5) that differ from the names of our classes."""


def _kind(error: A2AError) -> type[A2AError]:
    """Return the class that an error counts as: a reply lost to the timeout is a timeout."""
    lost, cause = isinstance(error, errors.OutcomeUnknownError), error.__cause__
    late = isinstance(cause, errors.DeadlineExceededError) and cause.deadline != _SEARCH
    return errors.DeadlineExceededError if lost and late else type(error)


# ── Messages: what happened, in one line, without advice for programs ────────────────────────


def _plain_message(error: A2AError, _state: CommandState) -> str:
    """Return an error in one line, without the hint, and without facts that its reason repeats."""
    copied, reason = copy.copy(error), error.retry_stopped_reason or ""
    copied.other_version = None
    if error.retry_after is not None and f"{error.retry_after:g} s" in reason:
        copied.retry_after = None
    return str(copied)


def _lost_stream_message(error: A2AError, state: CommandState) -> str:
    """Return the error of a stream without names of Python; the hint says how to resume it."""
    copied, task_id = copy.copy(error), error.task_id
    copied.message = error.message.replace(
        f"; resume later with subscribe_to_task({task_id!r})", ""
    ).replace(" (ReconnectPolicy.max_outage)", "")
    return _plain_message(copied, state)


def _lost_task_message(error: A2AError, state: CommandState) -> str:
    """Return the error of a missing task without the usual reason, which the hint states."""
    copied = copy.copy(error)
    copied.message = error.message.replace(f"; {LOST_IN_A_RESTART}", "")
    return _plain_message(copied, state)


def _timed_out_message(error: A2AError, state: CommandState) -> str:
    """Say which timeout expired, and what was known by then."""
    seconds = state.settings.timeout
    if isinstance(error, errors.DeadlineExceededError) and error.timeout < seconds - 1:
        seconds = error.timeout  # a cancel has a shorter one
    limit = f"the timeout of {shown_duration(seconds)} expired"
    if isinstance(error, errors.DeadlineExceededError) and error.deadline == _SEARCH:
        within = shown_duration(error.timeout)
        limit = f"the reply was lost, and the search for the task did not finish within {within}"
    if isinstance(error, errors.OutcomeUnknownError):
        return f"{limit}; the outcome of message {error.message_id} is unknown{_not_resent(state)}"
    if state.task is not None:
        last_state = f"task {state.task.id} was last seen {state.task.state}"
        return f"{limit}; {last_state}{_since_then(error)}"
    if state.card is None:
        reference = masked_reference(str(state.reference))
        return f"{limit}; the agent card of {reference} had not arrived{_since_then(error)}"
    if state.key is not None and not state.may_have_been_sent:
        return (
            f"{limit}; the earlier call of the key {state.key!r} has not ended, and another "
            "process may hold it"
        )
    return limit


def _not_canceled_message(error: A2AError, _state: CommandState) -> str:
    """Say that a cancellation was not confirmed."""
    return f"{error.message}{_since_then(error)}"


def _state_message(error: A2AError, state: CommandState) -> str:
    """Return an error in one line, with the state of the task."""
    suffix = "" if state.task is None else f"; the task is {state.task.state}"
    return f"{_plain_message(error, state)}{suffix}"


def _since_then(error: A2AError) -> str:
    """Return the failure that lasted until the timeout expired; empty if there was none."""
    failure = error.__cause__
    while isinstance(failure, errors.DeadlineExceededError):
        failure = failure.__cause__
    if not isinstance(failure, errors.A2AError) or isinstance(failure, errors.OutcomeUnknownError):
        return ""  # the reply was lost before the timeout, not because of it
    return f"; since then: {one_line(failure)}"


def _reply_lost_message(error: A2AError, state: CommandState) -> str:
    """Say that the outcome of a message is unknown, and whether it was sent again."""
    unknown = cast("errors.OutcomeUnknownError", error)
    message_id, cause = unknown.message_id, error.__cause__
    if isinstance(cause, errors.A2AError):
        reason = one_line(cause)
    elif error.attempts:
        reason = "its reply was lost"
    elif state.key is not None and not state.may_have_been_sent:
        reason = (
            f"an earlier command with the key {state.key!r} may have sent it, and the journal has "
            "no answer to it"
        )
    else:  # of another process, known from a journal
        reason = "it may have been sent, and the journal has no reply to it"
    return f"the outcome of message {message_id} is unknown: {reason}{_not_resent(state)}"


def _not_resent(state: CommandState) -> str:
    """Say that a message was not sent again; empty if the options allow that it was."""
    return "" if state.on_unknown.startswith("resend") else "; it was not sent again"


def _key_conflict_message(error: A2AError, _state: CommandState) -> str:
    """Say what the key was used for, without what a program would do about it."""
    return error.message.rpartition(": ")[0]


def _without_credentials_message(error: A2AError, _state: CommandState) -> str:
    """Say that an interface gets no credentials."""
    origin = cast("errors.CredentialOriginError", error).origin
    return (
        f"the agent's interface is at {origin}, which is not where the card came from; nothing "
        "was sent there"
    )


def _private_network_message(error: A2AError, _state: CommandState) -> str:
    """Say that an address is in a network that is too private."""
    address = cast("errors.NetworkPolicyError", error).address
    return (
        f"{error.agent} resolves to {address}, which a card, a catalog or a redirect must not "
        "name (SSRF protection); nothing was sent there"
    )


def _extension_required_message(error: A2AError, state: CommandState) -> str:
    """Say which extensions the agent requires."""
    uris = cast("errors.ExtensionSupportRequiredError", error).extensions
    if not uris:  # the agent itself reported it
        return _plain_message(error, state)
    return f"the agent requires the extension {', '.join(uris)}; nothing was sent"


def _extension_undeclared_message(error: A2AError, _state: CommandState) -> str:
    """Say which extensions the agent does not declare."""
    uris = cast("errors.ExtensionNotSupportedError", error).extensions
    return f"the agent's card does not declare the extension {', '.join(uris)}; nothing was sent"


def _over_limit_message(error: A2AError, _state: CommandState) -> str:
    """Say which limit was exceeded, without how a program raises it."""
    copied = copy.copy(error)
    which = cast("errors.LimitExceededError", error).which
    advice = f"; if that is right, raise the limit with Limits({which}=…)"  # for programs
    copied.message = error.message.replace(advice, "")
    return str(copied)


def _http_message(error: A2AError, state: CommandState) -> str:
    """Return an HTTP error in one line, without the advice for programs: the hint replaces it."""
    copied = copy.copy(error)
    fact, advice, _ = error.message.partition(CHECK_ADDRESS)
    copied.message = f"{fact}{advice.partition(':')[0]}"
    return _plain_message(copied, state)


def _unauthorized_message(error: A2AError, _state: CommandState) -> str:
    """Say which credentials the agent needs, without how a program passes them."""
    copied = copy.copy(error)
    copied.message = error.message.partition(ADVICE)[0]  # what follows is for programs
    return str(copied)


def _card_message(error: A2AError, state: CommandState) -> str:
    """Say what is wrong with a card, without what a program would do about it."""
    message = _plain_message(error, state)
    return message.partition(". ")[0] if hints.is_about_address(error, state) else message


# ── The table ────────────────────────────────────────────────────────────────────────────────


class _Row(NamedTuple):
    """How one kind of error is described.

    Attributes:
        kind: The class, including its subclasses.
        code: The code; None for the protocol's name of the error.
        exit: The exit code.
        hint: Returns what the caller can do; None if there is nothing useful to say.
        message: Returns what happened.
        before_card: Whether the row is for errors before the card is known; None for all.
    """

    kind: type[A2AError]
    code: str | None = None
    exit: int = FAILURE
    hint: Callable[[A2AError, CommandState], str | None] = hints.no_hint
    message: Callable[[A2AError, CommandState], str] = _plain_message
    before_card: bool | None = None


_ROWS = (
    _Row(
        errors.DeadlineExceededError,
        "A2ACLI_ERR_TIMEOUT",
        TIMEOUT,
        hint=hints.resume_task,
        message=_timed_out_message,
    ),
    _Row(
        errors.TaskAuthRequiredError,
        "A2ACLI_ERR_TIMEOUT",
        TIMEOUT,
        hint=hints.resume_task,
        message=_timed_out_message,
    ),
    _Row(
        errors.CancelUnconfirmedError,
        "A2ACLI_ERR_TIMEOUT",
        TIMEOUT,
        hint=hints.resume_task,
        message=_not_canceled_message,
    ),
    _Row(
        errors.OutcomeUnknownError,
        "HOLDFAST_ERR_OUTCOME_UNKNOWN",
        hint=hints.search_for_message,
        message=_reply_lost_message,
    ),
    _Row(errors.CallEndedError, "HOLDFAST_ERR_CALL_ENDED"),
    _Row(
        errors.KeyConflictError,
        "HOLDFAST_ERR_KEY_CONFLICT",
        KEY_CONFLICT,
        hint=hints.choose_key,
        message=_key_conflict_message,
    ),
    _Row(errors.JournalError, "HOLDFAST_ERR_JOURNAL", hint=hints.check_journal),
    _Row(
        errors.ReconnectError,
        "HOLDFAST_ERR_STREAM_LOST",
        message=_lost_stream_message,
        hint=hints.resume_task,
    ),
    _Row(errors.VersionNotSupportedError, hint=hints.choose_version),
    _Row(errors.MethodNotFoundError, hint=hints.choose_transport, before_card=False),
    _Row(errors.InvalidRequestError, hint=hints.choose_transport, before_card=False),
    _Row(errors.ParseError, hint=hints.choose_transport, before_card=False),
    _Row(
        errors.InvalidAgentCardError,
        "A2ACLI_ERR_CARD_INVALID",
        hint=hints.correct_card,
        message=_card_message,
    ),
    _Row(errors.CardSignatureError, "A2ACLI_ERR_CARD_INVALID", hint=hints.name_card_keys),
    _Row(
        errors.AuthenticationError,
        "A2ACLI_ERR_AUTH_FAILED",
        AUTH,
        hint=hints.give_credentials,
        message=_unauthorized_message,
    ),
    _Row(
        errors.PermissionDeniedError,
        "A2ACLI_ERR_AUTH_FAILED",
        AUTH,
        hint=hints.get_permission,
        message=_unauthorized_message,
    ),
    _Row(
        errors.A2AConnectionError,
        "A2ACLI_ERR_UNREACHABLE",
        UNREACHABLE,
        hint=hints.check_connection,
    ),
    _Row(errors.A2ATimeoutError, "A2ACLI_ERR_UNREACHABLE", UNREACHABLE, hint=hints.check_listener),
    _Row(errors.RateLimitedError, "HOLDFAST_ERR_RATE_LIMITED", hint=hints.wait_for_rate_limit),
    _Row(
        errors.NetworkPolicyError,
        "HOLDFAST_ERR_NETWORK_POLICY",
        hint=hints.name_address,
        message=_private_network_message,
    ),
    _Row(errors.LimitExceededError, "HOLDFAST_ERR_LIMIT", message=_over_limit_message),
    _Row(
        errors.A2AError,
        "A2ACLI_ERR_CARD_NOT_FOUND",
        UNREACHABLE,
        hint=hints.check_reference,
        before_card=True,
    ),
    _Row(
        errors.AgentCardResolutionError,
        "HOLDFAST_ERR_NO_TRANSPORT",
        hint=hints.name_endpoint,
    ),
    _Row(
        errors.CredentialOriginError,
        "HOLDFAST_ERR_CREDENTIAL_ORIGIN",
        hint=hints.trust_interface,
        message=_without_credentials_message,
    ),
    _Row(
        errors.ExtensionNotSupportedError,
        "HOLDFAST_ERR_EXTENSION",
        hint=hints.omit_extension,
        message=_extension_undeclared_message,
    ),
    _Row(
        errors.ExtensionSupportRequiredError,
        hint=hints.declare_extension,
        message=_extension_required_message,
    ),
    _Row(
        errors.A2AHTTPError,
        "HOLDFAST_ERR_HTTP",
        hint=hints.check_path,
        message=_http_message,
    ),
    _Row(errors.AgentError, "HOLDFAST_ERR_AGENT"),
    _Row(errors.TaskNotFoundError, hint=hints.check_task_id, message=_lost_task_message),
    _Row(errors.TaskNotCancelableError, hint=hints.show_ended_task, message=_state_message),
    _Row(errors.A2AError, hint=hints.choose_version),
)
