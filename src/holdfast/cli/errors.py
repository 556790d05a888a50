"""From what went wrong to what the caller is told: error code, hint and exit code.

Rules (a2a-cli 11.4, 11.6, appendix D): an error that the protocol names keeps that name; one of
the command line's own has an ``A2ACLI_ERR_`` code of the specification; what neither of them
knows has a ``HOLDFAST_ERR_`` code. The exit code says whether the command did its job, and
always agrees with the code.
"""

from __future__ import annotations

import copy
import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from holdfast import errors
from holdfast.cli.credentials import Need, ways_in
from holdfast.cli.values import masked_reference, shown_duration
from holdfast.wire.bindings import PROTOCOL_VERSIONS
from holdfast.wire.redaction import secrets_in
from holdfast.wire.security import ADVICE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from holdfast.cli.credentials import Way
    from holdfast.cli.settings import Settings
    from holdfast.errors import A2AError
    from holdfast.model.card import AgentCard
    from holdfast.model.types import Task
    from holdfast.runtime.listeners import Reconnected, RetryScheduled

__all__ = [
    "CommandError",
    "Failure",
    "Situation",
    "away",
    "describe",
    "internal",
    "out_of_time",
    "reconnected",
    "reconnecting",
    "retrying",
    "unusable",
    "unwritable",
    "usage",
]

_FAILURE, _USAGE, _UNREACHABLE, _AUTH, _TIMEOUT = 1, 2, 3, 4, 5


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a command could not do its job.

    Attributes:
        code: The error's name in the protocol, or a code of the command line.
        message: What happened.
        hint: What to do about it; None if there is nothing useful to say.
        a2a_code: The code that the agent answered with, or the HTTP status.
        exit: The exit code.
        instead: Help that says it all, where there is room for it.
    """

    code: str
    message: str
    hint: str | None = None
    a2a_code: int | str | None = None
    exit: int = _FAILURE
    instead: str | None = None


class CommandError(Exception):
    """A command cannot do its job, for a reason of its own.

    Args:
        failure: What to report.

    Attributes:
        failure: As given.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Situation(Protocol):
    """How far a command had come."""

    @property
    def settings(self) -> Settings: ...

    @property
    def reference(self) -> str | Path: ...

    @property
    def card(self) -> AgentCard | None: ...

    @property
    def task(self) -> Task | None: ...

    @property
    def is_under_way(self) -> bool: ...

    @property
    def continues(self) -> bool: ...

    @property
    def asks_for_config(self) -> bool: ...

    def command(self, *words: str) -> str: ...

    def go_on(self, task_id: str) -> str: ...


def usage(message: str, command: str, *, instead: str | None = None) -> Failure:
    """A command line that cannot be right."""
    return Failure(
        code="A2ACLI_ERR_USAGE",
        message=message,
        hint=f"{command} --help",
        exit=_USAGE,
        instead=instead,
    )


def internal(error: BaseException) -> Failure:
    """Something that must not happen."""
    return Failure(
        code="A2ACLI_ERR_INTERNAL",
        message=f"{type(error).__name__}{f': {error}' if str(error) else ''}",
        hint="run the same command with --debug to see more",
    )


def unwritable(error: OSError, situation: Situation | None = None) -> Failure:
    """A result that cannot be shown, which undoes nothing of what led to it.

    Args:
        error: Why it cannot.
        situation: How far the command had come; None if it had not begun.
    """
    message = f"the output cannot be written: {error.strerror or error}"
    hint = None
    if situation is not None:
        done = ["the message was sent"] if situation.is_under_way else []
        task = situation.task
        if task is not None:
            done.append(f"task {task.id} was last seen {task.state}")
            look = situation.command("task", "get", task.id)
            hint = look if task.state.is_terminal else situation.go_on(task.id)
        elif done:
            hint = "sending it again would run it once more"
        message = "; ".join((message, *done))
    return Failure(code="A2ACLI_ERR_INTERNAL", message=message, hint=hint)


def retrying(retry: RetryScheduled, tries: int | None) -> str:
    """What is said while there is nothing to do but wait for another try, in one line.

    Args:
        retry: The try that follows.
        tries: How many there are at most; None where others follow them.
    """
    told = copy.copy(retry.error)
    told.excerpt = None
    wait = shown_duration(math.ceil(retry.wait * 10) / 10)
    count = "" if tries is None else f" (attempt {retry.number} of {tries})"
    return f"{_bare(told)}; trying again in {wait}{count}"


def reconnected(observation: Reconnected) -> str:
    """What is said where a stream that was cut was picked up again, in one line."""
    what = "the stream was cut"
    if observation.error is not None:
        told = copy.copy(observation.error)
        told.excerpt = None
        what = f"{what}: {_bare(told)}"
    return (
        f"{what}; reconnected to task {observation.task_id}; status messages from in between "
        "may be missing"
    )


def reconnecting(error: A2AError) -> str:
    """What is said where a stream that was cut cannot be picked up yet, in one line."""
    told = copy.copy(error)
    told.excerpt = None
    return f"the stream was cut, and cannot be picked up yet: {_bare(told)}; trying again"


def away(error: A2AError) -> str:
    """Why the agent is not reached, in one line without how often it was tried."""
    told = copy.copy(error)
    told.excerpt = told.gave_up = None
    return _bare(told)


def out_of_time(seconds: float) -> Failure:
    """The time of a command that is over while no call is under way."""
    return Failure(
        code="A2ACLI_ERR_TIMEOUT",
        message=f"the timeout of {shown_duration(seconds)} is over",
        hint="allow more time with --timeout",
        exit=_TIMEOUT,
    )


def unusable(path: Path | str, problem: str, hint: str | None = None) -> CommandError:
    """A file that a command cannot do without, and cannot use."""
    return CommandError(
        Failure(code="HOLDFAST_ERR_FILE", message=f"{path} {problem}; nothing was sent", hint=hint)
    )


def describe(error: A2AError, situation: Situation) -> Failure:
    """Finds the code, the hint and the exit code of an error."""
    kind, before_card = _kind(error), situation.card is None
    row = next(
        row
        for row in _ROWS
        if issubclass(kind, row.kind) and row.before_card in {None, before_card}
    )
    hint = row.hint(error, situation)
    if situation.continues and row.code is None:
        rejected = "no new task was made in its place; --debug shows the protocol's own error"
        hint = f"{hint}; {rejected}" if hint else rejected
    return Failure(
        code=_code(row, error, situation),
        message=row.message(error, situation),
        hint=hint,
        a2a_code=error.code if error.code is not None else error.grpc_status or error.http_status,
        exit=row.exit,
    )


def _code(row: _Row, error: A2AError, situation: Situation) -> str:
    """A row's own code, or the protocol's name of the error."""
    if row.code is None:
        return _NAMES.get(type(error), type(error).__name__)
    if row.kind is errors.AuthenticationError and not _gave_what_is_asked_for(situation):
        return "A2ACLI_ERR_CREDENTIALS_MISSING"
    return row.code


def _gave_what_is_asked_for(situation: Situation) -> bool:
    """Whether what the card asks for was given, or anything at all if it says nothing."""
    settings, ways = situation.settings, _ways(situation)
    if "authorization" in settings.svc_params:
        return True
    if not ways:
        return bool(settings.credentials or secrets_in(settings.svc_params))
    return any(not _missing(way, settings) for way in ways)


def _missing(way: Way, settings: Settings) -> list[Need]:
    """What of a way is given neither by its flag nor as a service parameter."""
    return [
        need
        for need in way.needs
        if need.flag not in settings.credentials and need.header not in settings.svc_params
    ]


def _ways(situation: Situation) -> list[Way]:
    return [] if situation.card is None else ways_in(situation.card)


# ── Messages and hints ───────────────────────────────────────────────────────────────────────


def _as_told(error: A2AError, _situation: Situation) -> str:
    """An error in one line, without what the reason for giving up says as well, or the hint."""
    told, reason = copy.copy(error), error.gave_up or ""
    told.other_version = None
    if f"{len(error.attempts) - 1} retries" in reason:
        told.attempts = ()
    if error.retry_after is not None and f"{error.retry_after:g} s" in reason:
        told.retry_after = None
    return str(told)


def _bare(error: A2AError) -> str:
    """An error in one line, without the tries, about which there is something else to say."""
    told = copy.copy(error)
    told.attempts, told.retry_after, told.gave_up = (), None, None
    return str(told)


def _out_of_time(error: A2AError, situation: Situation) -> str:
    seconds = situation.settings.timeout
    if isinstance(error, errors.DeadlineExceededError) and error.timeout < seconds - 1:
        seconds = error.timeout  # a cancel has a shorter one of its own
    limit = f"the timeout of {shown_duration(seconds)} is over"
    if isinstance(error, errors.DeadlineExceededError) and error.deadline == _SEARCH:
        within = shown_duration(error.timeout)
        limit = f"the reply was lost, and the search for the task did not finish within {within}"
    if isinstance(error, errors.OutcomeUnknownError):
        return (
            f"{limit}; message {error.message_id} was sent, and nobody knows whether the agent "
            "ran it; it was not sent again"
        )
    if situation.task is not None:
        seen = f"task {situation.task.id} was last seen {situation.task.state}"
        return f"{limit}; {seen}{_since_then(error)}"
    if situation.card is None:
        where = masked_reference(str(situation.reference))
        return f"{limit}; the agent's card was still awaited from {where}{_since_then(error)}"
    return limit


def _not_canceled(error: A2AError, _situation: Situation) -> str:
    return f"{error.message}{_since_then(error)}"


def _with_state(error: A2AError, situation: Situation) -> str:
    state = "" if situation.task is None else f"; the task is {situation.task.state}"
    return f"{_as_told(error, situation)}{state}"


def _since_then(error: A2AError) -> str:
    """The failure that went on until the time was over, if one did."""
    failure = error.__cause__
    while isinstance(failure, errors.DeadlineExceededError):
        failure = failure.__cause__
    if not isinstance(failure, errors.A2AError) or isinstance(failure, errors.OutcomeUnknownError):
        return ""  # a reply that was lost is what came before
    return f"; since then: {_bare(failure)}"


def _reply_lost(error: A2AError, _situation: Situation) -> str:
    message_id = cast("errors.OutcomeUnknownError", error).message_id
    cause = error.__cause__
    why = _bare(cause) if isinstance(cause, errors.A2AError) else "its reply was lost"
    return (
        f"message {message_id} was sent, and nobody knows whether the agent ran it: {why}; it "
        "was not sent again"
    )


def _withheld(error: A2AError, _situation: Situation) -> str:
    where = cast("errors.CredentialOriginError", error).origin
    return (
        f"the agent's interface is at {where}, which is not where the card came from; nothing "
        "was sent there"
    )


def _inside(error: A2AError, _situation: Situation) -> str:
    address = cast("errors.NetworkPolicyError", error).address
    return (
        f"{error.agent} leads to {address}, further inside this network than an address may that "
        "a card or a redirect names; nothing was sent there"
    )


def _required(error: A2AError, situation: Situation) -> str:
    uris = cast("errors.ExtensionSupportRequiredError", error).extensions
    if not uris:  # it is the agent who says so
        return _as_told(error, situation)
    return f"the agent requires the extension {', '.join(uris)}; nothing was sent"


def _over_limit(error: A2AError, _situation: Situation) -> str:
    told = copy.copy(error)
    which = cast("errors.LimitExceededError", error).which
    advice = f"; if that is right, raise the limit with Limits({which}=…)"  # for programs
    told.message = error.message.replace(advice, "")
    return str(told)


def _unauthorized(error: A2AError, _situation: Situation) -> str:
    told = copy.copy(error)
    told.message = error.message.partition(ADVICE)[0]  # what follows is for programs
    return str(told)


def _no_hint(_error: A2AError, _situation: Situation) -> str | None:
    return None


def _wait_for_task(error: A2AError, situation: Situation) -> str | None:
    if isinstance(error, errors.OutcomeUnknownError):
        return _look_for_message(error, situation)
    task: Task | None = situation.task or getattr(error, "task", None)
    if task is None:
        first = "" if situation.card is not None else f"{_check_address(error, situation)}, or "
        return f"{first}allow more time with --timeout"
    return situation.go_on(task.id)


def _look_for_message(error: A2AError, _situation: Situation) -> str | None:
    message_id = cast("errors.OutcomeUnknownError", error).message_id
    return (
        f"look for message {message_id} among the agent's tasks; send it again only if running "
        "it twice does no harm"
    )


def _name_card(error: A2AError, situation: Situation) -> str | None:
    if (error.http_status or 0) >= _SERVER_ERROR:
        return _come_back(error, situation)
    reference = masked_reference(situation.settings.agent_card)
    return f"check --agent-card {reference}: a host, a card's URL, or a card's file"


def _give_credentials(_error: A2AError, situation: Situation) -> str | None:
    if _gave_what_is_asked_for(situation):
        return "check the credentials: the agent does not take them"
    return _what_to_give(situation)


def _have_permission(_error: A2AError, situation: Situation) -> str | None:
    if situation.card is None:
        return (
            "check the address; a card that was saved by other means can be named as a file with "
            "--agent-card"
        )
    if _gave_what_is_asked_for(situation):
        return (
            "the credentials were understood, and do not permit this: ask the agent's owner for "
            "the permission, or use others"
        )
    instead = _what_to_give(situation)
    return f"the agent does not permit this with the credentials that it got: {instead}"


def _what_to_give(situation: Situation) -> str:
    """The credentials that are missing, in each of the ways that are enough."""
    ways = _ways(situation)
    if situation.card is None:
        wanted = {_to_set(Need("--bearer"))}
    elif not ways:
        wanted = {_to_set(Need(flag)) for flag in ("--api-key", "--bearer")}
    else:
        wanted = {_all_of(way, situation.settings) for way in ways if way.hindrance is None}
    if not wanted:
        asked = _cut(", or ".join(way.words for way in ways))
        many = "the command line can give none of these"
        return f"the agent asks for {asked}; {ways[0].hindrance if len(ways) == 1 else many}"
    return _cut(f"set {', or '.join(sorted(wanted))}")


def _all_of(way: Way, settings: Settings) -> str:
    missing = sorted(_to_set(need) for need in _missing(way, settings))
    if len(way.needs) == 1:
        return missing[0]
    also = " as well" if len(missing) < len(way.needs) else ""
    together = "both" if len(way.needs) == 2 else "all"
    return f"{' and '.join(missing)}{also}: the agent asks for {together} together"


def _to_set(need: Need) -> str:
    flag = need.flag or ""
    what = f" to {shlex.quote(need.param)}" if need.param else ""
    return f"{_VARIABLES[flag]} (or {flag}){what}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _be_reachable(error: A2AError, _situation: Situation) -> str | None:
    return _BY_FAILURE.get(getattr(error, "failure", ""))


def _check_address(error: A2AError, situation: Situation) -> str:
    """A client with TLS and a server without it wait for each other until one gives up."""
    secure = (error.agent or str(situation.reference)).startswith("https://")
    return f"check the address{' (does it speak http://?)' if secure else ''}"


def _answer(error: A2AError, situation: Situation) -> str | None:
    """What to look at when somebody listens there, or seems to, and says nothing."""
    if getattr(error, "phase", "") == "connect":
        return f"{_check_address(error, situation)} and the network"
    return "check that it is the agent that listens at this address"


def _come_back(error: A2AError, _situation: Situation) -> str | None:
    if error.retry_after is None:
        return "try again later"
    return f"try again in {shown_duration(max(error.retry_after, 1.0))}"


def _come_back_if_busy(error: A2AError, situation: Situation) -> str | None:
    is_busy = error.http_status == _BUSY or error.retry_after is not None
    if is_busy:
        return _come_back(error, situation)
    return _speak_theirs(error, situation)


def _trust_it(_error: A2AError, situation: Situation) -> str | None:
    save = situation.command("card", "get", "-o", "json")
    return f"if you trust it: {save} > card.json, then --agent-card card.json"


def _ask_for_it(error: A2AError, _situation: Situation) -> str | None:
    uris = cast("errors.ExtensionSupportRequiredError", error).extensions
    param = shlex.quote(f"a2a-extensions:{','.join(uris)}")
    return f"if the message follows it: --svc-param {param}" if uris else None


def _name_it(error: A2AError, situation: Situation) -> str | None:
    if situation.card is not None:
        return _trust_it(error, situation)
    return f"if you trust it: --agent-card {error.agent}"


def _have_keys(error: A2AError, _situation: Situation) -> str | None:
    """What helps where a card is merely not verified."""
    if getattr(error, "outcome", None) != "unverifiable" or error.transient:
        return None
    return "name its author's keys by --card-keys, or where they are by --card-key-host"


def _correct_card(error: A2AError, situation: Situation) -> str | None:
    if not _is_about_address(error, situation):
        return _name_card(error, situation)
    save = situation.command("card", "get", "-o", "json")
    return f"correct the address: {save} > card.json, edit it, then --agent-card card.json"


def _without_advice(error: A2AError, situation: Situation) -> str:
    """A card's fault without what a program would do about it."""
    told = _as_told(error, situation)
    return told.partition(". ")[0] if _is_about_address(error, situation) else told


def _is_about_address(error: A2AError, situation: Situation) -> bool:
    """Whether a card that can be read names an address that cannot be meant."""
    return situation.card is not None and (getattr(error, "field", None) or "").endswith(".url")


def _speak_theirs(error: A2AError, situation: Situation) -> str | None:
    """The version to ask for: one of ours, and the agent's if there is a sign of what that is."""
    if situation.settings.version not in PROTOCOL_VERSIONS:
        return f"leave out --a2a-version, or set it to {' or '.join(PROTOCOL_VERSIONS)}"
    other = error.other_version
    return None if other is None else f"if the agent speaks {other}: --a2a-version {other}"


def _find_task(_error: A2AError, situation: Situation) -> str | None:
    if situation.asks_for_config:
        return "check the ids of the task and of the configuration, and that both are this agent's"
    return "check the task's id, and that it is this agent's"


_SERVER_ERROR, _BUSY = 500, 503
_SEARCH = "reconcile"
"""The deadline that is not the caller's: the time that a message is looked for."""

_SHOWN = 300
"""Characters of what a card asks for that a hint shows at most."""

_VARIABLES = {
    "--api-key": "A2ACLI_API_KEY",
    "--bearer": "A2ACLI_BEARER",
    "--svc-param": "A2ACLI_SVC_PARAM",
}
_BY_FAILURE: Mapping[str, str] = {
    "dns": "check the host's name in --agent-card and in the agent's card",
    "refused": "check that the agent is running at this address",
    "unreachable": "check the address and the network",
    "tls": "check the address (does it speak http://?) and the certificate; --insecure leaves "
    "the certificate unverified, for development only",
    "proxy": "check HTTP_PROXY, HTTPS_PROXY and NO_PROXY",
}
_NAMES: Mapping[type[A2AError], str] = {errors.ParseError: "JSONParseError"}
"""Where the protocol's name (A2A 9.5) is not our class's."""


# ── The table ────────────────────────────────────────────────────────────────────────────────


class _Row(NamedTuple):
    """What one kind of error is told as; the first row that fits counts."""

    kind: type[A2AError]
    code: str | None = None
    exit: int = _FAILURE
    hint: Callable[[A2AError, Situation], str | None] = _no_hint
    message: Callable[[A2AError, Situation], str] = _as_told
    before_card: bool | None = None


_ROWS = (
    _Row(
        errors.DeadlineExceededError,
        "A2ACLI_ERR_TIMEOUT",
        _TIMEOUT,
        hint=_wait_for_task,
        message=_out_of_time,
    ),
    _Row(
        errors.CancelUnconfirmedError,
        "A2ACLI_ERR_TIMEOUT",
        _TIMEOUT,
        hint=_wait_for_task,
        message=_not_canceled,
    ),
    _Row(
        errors.OutcomeUnknownError,
        "HOLDFAST_ERR_OUTCOME_UNKNOWN",
        hint=_look_for_message,
        message=_reply_lost,
    ),
    _Row(errors.CallEndedError, "HOLDFAST_ERR_CALL_ENDED"),
    _Row(errors.ReconnectError, "HOLDFAST_ERR_STREAM_LOST", hint=_wait_for_task),
    _Row(errors.VersionNotSupportedError, hint=_speak_theirs),
    _Row(errors.MethodNotFoundError, hint=_speak_theirs, before_card=False),
    _Row(
        errors.InvalidAgentCardError,
        "A2ACLI_ERR_CARD_INVALID",
        hint=_correct_card,
        message=_without_advice,
    ),
    _Row(errors.CardSignatureError, "A2ACLI_ERR_CARD_INVALID", hint=_have_keys),
    _Row(
        errors.AuthenticationError,
        "A2ACLI_ERR_AUTH_FAILED",
        _AUTH,
        hint=_give_credentials,
        message=_unauthorized,
    ),
    _Row(
        errors.PermissionDeniedError,
        "A2ACLI_ERR_AUTH_FAILED",
        _AUTH,
        hint=_have_permission,
        message=_unauthorized,
    ),
    _Row(errors.A2AConnectionError, "A2ACLI_ERR_UNREACHABLE", _UNREACHABLE, hint=_be_reachable),
    _Row(errors.A2ATimeoutError, "A2ACLI_ERR_UNREACHABLE", _UNREACHABLE, hint=_answer),
    _Row(errors.RateLimitedError, "HOLDFAST_ERR_RATE_LIMITED", hint=_come_back),
    _Row(
        errors.NetworkPolicyError,
        "HOLDFAST_ERR_NETWORK_POLICY",
        hint=_name_it,
        message=_inside,
    ),
    _Row(errors.LimitExceededError, "HOLDFAST_ERR_LIMIT", message=_over_limit),
    _Row(
        errors.A2AError,
        "A2ACLI_ERR_CARD_NOT_FOUND",
        _UNREACHABLE,
        hint=_name_card,
        before_card=True,
    ),
    _Row(errors.AgentCardResolutionError, "HOLDFAST_ERR_NO_TRANSPORT"),
    _Row(
        errors.CredentialOriginError,
        "HOLDFAST_ERR_CREDENTIAL_ORIGIN",
        hint=_trust_it,
        message=_withheld,
    ),
    _Row(errors.ExtensionSupportRequiredError, hint=_ask_for_it, message=_required),
    _Row(
        errors.A2AHTTPError,
        "HOLDFAST_ERR_HTTP",
        hint=_come_back_if_busy,
    ),
    _Row(errors.AgentError, "HOLDFAST_ERR_AGENT"),
    _Row(errors.TaskNotFoundError, hint=_find_task),
    _Row(errors.TaskNotCancelableError, message=_with_state),
    _Row(errors.A2AError, hint=_speak_theirs),
)


def _kind(error: A2AError) -> type[A2AError]:
    """The kind that an error counts as: a reply that was lost to the timeout is a timeout."""
    lost, cause = isinstance(error, errors.OutcomeUnknownError), error.__cause__
    late = isinstance(cause, errors.DeadlineExceededError) and cause.deadline != _SEARCH
    return errors.DeadlineExceededError if lost and late else type(error)
