"""Hints about errors: a short next step for the caller, preferably a command to copy."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from holdfast import errors
from holdfast._cli.agent.credentials import RequiredCredential, accepted_credentials
from holdfast._cli.options.masking import masked_reference
from holdfast._cli.options.values import shown_duration
from holdfast._cli.output.sanitizer import shortened
from holdfast._journal.agent_name import addresses_in
from holdfast._pipeline.interfaces import declared_versions
from holdfast._policy.deadline import LOST_IN_A_RESTART
from holdfast._wire.bindings import BINDINGS, PROTOCOL_VERSIONS
from holdfast._wire.challenges import bearer_challenge
from holdfast._wire.redaction import secrets_in
from holdfast._wire.security import required_alternatives

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._cli.agent.credentials import CredentialSet
    from holdfast._cli.errors import CommandState
    from holdfast._cli.options.settings import Settings
    from holdfast.errors import A2AError, JournalFailure
    from holdfast.types import OAuthFlows, Task

__all__ = [
    "JOURNAL_HINTS",
    "SAME_COMMAND",
    "check_connection",
    "check_journal",
    "check_listener",
    "check_path",
    "check_reference",
    "check_task_id",
    "choose_key",
    "choose_transport",
    "choose_version",
    "correct_card",
    "declare_extension",
    "get_permission",
    "give_credentials",
    "has_given_credentials",
    "is_about_address",
    "may_have_run",
    "name_address",
    "name_card_keys",
    "name_endpoint",
    "no_hint",
    "omit_extension",
    "resume_task",
    "retry_later",
    "retry_later_if_busy",
    "search_for_message",
    "search_in_journal",
    "show_ended_task",
    "trust_interface",
    "wait_for_rate_limit",
]

_SEARCH_TIMEOUT_S = 60.0
"""Seconds of a timeout that leave enough time to search for the task of a message."""

_SERVER_ERROR, _BUSY = 500, 503

_MAX_REQUEST_CHARACTERS = 300
"""Maximum characters of a card's requirements in a hint."""

_NOT_ACCEPTED = "check the credentials: the agent does not accept them"

_VARIABLES = {
    "--api-key": "A2ACLI_API_KEY",
    "--bearer": "A2ACLI_BEARER",
    "--svc-param": "A2ACLI_SVC_PARAM",
}
_INTERFACES = "supportedInterfaces["
_ENDPOINT = "--endpoint URL --transport BINDING in place of --agent-card"
_CALL_ANOTHER_ADDRESS = f"to call another address: {_ENDPOINT}"
_NO_SUCH_PATH = frozenset({404, 405, 410, 501})
"""HTTP statuses of an address without a service, or with one that is not an agent.

A web server for files answers 501 to POST.
"""

JOURNAL_HINTS: Mapping[JournalFailure, str] = {
    "full": "make room on the disk of the journal",
    "locked": "wait until the program that writes to the journal is done, or end it",
    "read_only": "make the journal and its directory writable",
    "damaged": "restore an earlier copy of the journal, or have the sqlite3 program recover it: "
    "another file has no record of what was sent",
    "untrusted": (
        "the journal and the files beside it must belong to you, and only you may access them"
    ),
    "unreachable": "check the address of the journal (host, port, database, role, password), and "
    "that its server runs",
    "newer": "update Holdfast, or use another journal",
    "forbidden": "grant the role of the journal's address access to the journal's schema",
    "replaced": "put the journal back where it was: another file has no record of what was sent",
}
"""The hint for a journal that cannot be used, by reason."""

SAME_COMMAND = (
    "run the same command again: it resumes the call, and does not send the message twice"
)
"""The hint about an interrupted call with a key."""

_BY_FAILURE: Mapping[str, str] = {
    "dns": "check the host name in --agent-card and in the agent's card",
    "refused": "check that the agent is running at this address",
    "unreachable": "check the address and the network",
    "tls": "check the address (does it speak http://?) and the certificate; --insecure leaves "
    "the certificate unverified, for development only",
    "proxy": "check HTTP_PROXY, HTTPS_PROXY and NO_PROXY",
}


def no_hint(_error: A2AError, _state: CommandState) -> str | None:
    """Return no hint."""
    return None


def resume_task(error: A2AError, state: CommandState) -> str | None:
    """Return how to resume after a timeout."""
    if isinstance(error, errors.OutcomeUnknownError):
        return search_for_message(error, state)
    if state.key is not None:
        return SAME_COMMAND
    task: Task | None = state.task or error.task
    if task is None and isinstance(error, errors.ReconnectError) and error.task_id is not None:
        return state.resume_command(error.task_id)
    if task is None:
        first = "" if state.card is not None else f"{_check_address(error, state)}, or "
        return f"{first}allow more time with --timeout"
    return state.resume_command(task.id)


def search_for_message(error: A2AError | None, state: CommandState) -> str | None:
    """Return the command that searches for a message whose outcome is unknown.

    Args:
        error: The error that reported it; None for an interruption.
        state: The progress of the command.
    """
    if state.key is None and state.journal_name is not None:
        return search_in_journal(state.journal_name)
    message_id, context_id = state.message_id, None
    if isinstance(error, errors.OutcomeUnknownError):
        if state.key is not None and _is_searched_again(error, state):
            return _search_by_same_command(state)
        message_id, context_id = error.message_id, error.context_id
    context = ["--context-id", context_id] if context_id else []
    search = state.command("task", "list", "--all", *context, "--history", "10", "-o", "json")
    again = (
        "" if state.key is None or state.on_unknown == "resend" else " with --on-unknown resend"
    )
    return (
        f"search for message {message_id} with {search}; send it again{again} only if running it "
        "twice does no harm"
    )


def search_in_journal(journal: str) -> str:
    """Return the hint to resume the pending calls of a journal."""
    command = shlex.join(["holdfast", "resume", "--journal", journal])
    return f"to search for the task or wait for it, without sending anything: {command}"


def _is_searched_again(error: errors.OutcomeUnknownError, state: CommandState) -> bool:
    """Return whether the same command with a key searches for the message once more."""
    if state.on_unknown.startswith("resend"):
        return True
    cause = error.search_error  # the call is pending in the journal because of it
    return cause is not None and (
        cause.transient or isinstance(cause, errors.DeadlineExceededError)
    )


def _search_by_same_command(state: CommandState) -> str:
    """Return the hint to run the same command with a key again."""
    is_short = state.settings.timeout < _SEARCH_TIMEOUT_S
    longer = f", with --timeout {shown_duration(_SEARCH_TIMEOUT_S)}" if is_short else ""
    if state.on_unknown.startswith("resend"):
        return (
            f"run the same command again{longer}: it searches for the task, and sends the message "
            "again if there is none"
        )
    return (
        f"run the same command again{longer}: it searches for the task, and does not send the "
        "message twice"
    )


def choose_key(error: A2AError, _state: CommandState) -> str | None:
    """Return how to send a message whose key was used for another message or agent."""
    other_agent = cast("errors.KeyConflictError", error).other_agent
    if other_agent is not None:
        agent = shlex.quote(masked_reference(addresses_in(other_agent)[0]))
        return f"pass another --key, or name the agent that the key was used for: -a {agent}"
    return "pass another --key, or the message that the key was used for"


def check_journal(error: A2AError, _state: CommandState) -> str | None:
    """Return what to do about a journal that cannot be used."""
    return JOURNAL_HINTS.get(cast("errors.JournalError", error).reason)


def may_have_run(error: A2AError, state: CommandState) -> bool:
    """Return whether an error says that the message in flight may have been executed."""
    says_so = error.transient or isinstance(
        error, errors.InvalidAgentResponseError | errors.LimitExceededError
    )
    in_flight = state.may_have_been_sent and state.message_id is not None
    return in_flight and says_so and error.executed is None


def check_reference(error: A2AError, state: CommandState) -> str | None:
    """Return the forms of a reference to a card, if there is no card."""
    if (error.http_status or 0) >= _SERVER_ERROR:
        return retry_later(error, state)
    reference = masked_reference(state.settings.agent_card)
    if "HTTP/2" in error.message:
        host = urlsplit(error.agent or "").netloc
        return (
            f"for an agent that speaks gRPC alone: --endpoint {host} --transport grpc; else name "
            "the address of its card"
        )
    return f"check --agent-card {reference}: it takes a host, or the URL or file of a card"


def give_credentials(error: A2AError, state: CommandState) -> str | None:
    """Return which credentials are missing, or that the given ones are wrong."""
    settings = state.settings
    server = getattr(error, "authorization_server", None)
    if server is not None and error.transient:
        return "try again later; the credentials were not refused"
    if state.card is None and bearer_challenge(error.headers) is not None:
        has_token = state.auth is not None and (settings.bearer or not settings.credentials)
        reference = shlex.quote(masked_reference(str(state.reference)))
        if settings.is_credential_origin:
            return _NOT_ACCEPTED if has_token else _credentials_to_give(state)
        if has_token:
            return (
                "no credential is sent before the card declares a scheme for it; if you trust "
                f"this server: --credential-origin {reference}"
            )
        return (
            f"{_credentials_to_give(state)} together with --credential-origin {reference}, if you "
            "trust this server; otherwise no credential is sent before the card declares a scheme "
            "for it"
        )
    if settings.withheld and not settings.credentials:
        return "the credentials that are set belong to another agent; see the warnings above"
    if has_given_credentials(state):
        return _NOT_ACCEPTED
    return _credentials_to_give(state)


def get_permission(_error: A2AError, state: CommandState) -> str | None:
    """Return whose permission is missing."""
    if state.card is None:
        return (
            "check the address; a card that you have saved can be passed as a file with "
            "--agent-card"
        )
    if has_given_credentials(state):
        return (
            "the credentials are valid, and do not permit this: ask the agent's operator for "
            "the permission, or use other credentials"
        )
    instead = _credentials_to_give(state)
    return f"the agent does not permit this with the credentials that were sent: {instead}"


def _credentials_to_give(state: CommandState) -> str:
    """Return the missing credentials, in each sufficient alternative."""
    ways = _ways(state)
    if state.card is None:
        options = {_setting_text(RequiredCredential("--bearer"))}
    elif not ways:
        options = {_setting_text(RequiredCredential(flag)) for flag in ("--api-key", "--bearer")}
    else:
        options = {_all_of(way, state.settings) for way in ways if way.obstacle is None}
    if not options:
        requested = shortened(", or ".join(way.words for way in ways), _MAX_REQUEST_CHARACTERS)
        none = "the command line supports none of these"
        return f"the agent asks for {requested}; {ways[0].obstacle if len(ways) == 1 else none}"
    login = _login(state)
    first = "" if login is None else f"log in: {login}, or "
    return first + shortened(f"set {', or '.join(sorted(options))}", _MAX_REQUEST_CHARACTERS)


def _login(state: CommandState) -> str | None:
    """Return the command that gets a token, if the card accepts only OAuth or OpenID Connect."""
    card = state.card
    if card is None:
        return None
    names = [
        name
        for alternative in required_alternatives(card)
        if len(alternative.schemes) == 1
        for name in alternative.schemes
    ]
    for scheme in filter(None, (card.security_schemes.get(name) for name in names)):
        oauth = scheme.oauth2_security_scheme
        if oauth is None and scheme.open_id_connect_security_scheme is None:
            continue
        flow = [] if oauth is None else _flow(oauth.flows)
        return state.command("auth", "login", *flow, "--client-id", "CLIENT_ID")
    return None


def _flow(flows: OAuthFlows) -> list[str]:
    """Return the option for the flow of a card that lacks the default one."""
    if flows.device_code is None and flows.authorization_code is not None:
        return ["--flow", "authorization-code"]
    if flows.device_code is None and flows.client_credentials is not None:
        return ["--flow", "client-credentials"]
    return []


def _all_of(way: CredentialSet, settings: Settings) -> str:
    missing = sorted(_setting_text(need) for need in _missing(way, settings))
    if len(way.needs) == 1:
        return missing[0]
    also = " as well" if len(missing) < len(way.needs) else ""
    together = "both" if len(way.needs) == 2 else "all"
    return f"{' and '.join(missing)}{also}: the agent asks for {together} together"


def _setting_text(need: RequiredCredential) -> str:
    flag = need.flag or ""
    target = f" to {shlex.quote(need.param)}" if need.param else ""
    return f"{_VARIABLES[flag]} (or {flag}){target}"


def has_given_credentials(state: CommandState) -> bool:
    """Return whether required credentials were given, or any if the card requires none."""
    settings, ways = state.settings, _ways(state)
    if "authorization" in settings.svc_params:
        return True
    if not ways:
        return bool(settings.credentials or secrets_in(settings.svc_params))
    return any(not _missing(way, settings) for way in ways)


def _missing(way: CredentialSet, settings: Settings) -> list[RequiredCredential]:
    """Return the parts of an alternative that neither a flag nor a service parameter supplies."""
    return [
        need
        for need in way.needs
        if need.flag not in settings.credentials and need.header not in settings.svc_params
    ]


def _ways(state: CommandState) -> list[CredentialSet]:
    return [] if state.card is None else accepted_credentials(state.card)


def check_connection(error: A2AError, _state: CommandState) -> str | None:
    """Return what to check, by the way in which the agent was unreachable."""
    return _BY_FAILURE.get(getattr(error, "failure", ""))


def _check_address(error: A2AError, state: CommandState) -> str:
    """Return what to check if TLS is missing: client and server then wait for each other."""
    secure = (error.agent or str(state.reference)).startswith("https://")
    return f"check the address{' (does it speak http://?)' if secure else ''}"


def check_listener(error: A2AError, state: CommandState) -> str | None:
    """Return what to check if a server listens there, or seems to, and does not answer."""
    if getattr(error, "phase", "") == "connect":
        return f"{_check_address(error, state)} and the network"
    return "check that it is the agent that listens at this address"


def retry_later(error: A2AError, _state: CommandState) -> str | None:
    """Return when to try again."""
    if error.retry_after is None:
        return "try again later"
    return f"try again in {shown_duration(max(error.retry_after, 1.0))}"


def wait_for_rate_limit(error: A2AError, state: CommandState) -> str | None:
    """Return when to try again, whether the message was executed, and how to wait for it."""
    hint = retry_later(error, state)
    if "deadline" in (error.retry_stopped_reason or ""):
        hint = f"{hint}, or pass a longer --timeout: the command then waits and tries again"
    return f"nothing was executed; {hint}" if error.executed is False else hint


def choose_transport(error: A2AError, state: CommandState) -> str | None:
    """Return the transport of an endpoint that answers HTTP+JSON with an error of JSON-RPC."""
    if state.settings.is_endpoint and state.binding == "HTTP+JSON":
        return "the address seems to be that of a JSON-RPC interface: --transport jsonrpc"
    return choose_version(error, state)


def retry_later_if_busy(error: A2AError, state: CommandState) -> str | None:
    """Return when to try again, if the agent is busy."""
    is_busy = error.http_status == _BUSY or error.retry_after is not None
    if is_busy:
        return retry_later(error, state)
    return choose_version(error, state)


def check_path(error: A2AError, state: CommandState) -> str | None:
    """Return the source of an address that has no agent; otherwise when to try again."""
    if error.http_status not in _NO_SUCH_PATH or state.card is None:
        return retry_later_if_busy(error, state)
    if state.settings.is_endpoint:
        parts = urlsplit(error.agent or state.settings.agent_card)
        card = f"holdfast card get --agent-card {parts.scheme}://{parts.netloc}"
        return f"check the path of --endpoint; the agent's card names the right one: {card}"
    command = state.command("card", "get")
    return f"the address comes from the agent's card: {command} shows it; {_CALL_ANOTHER_ADDRESS}"


def name_endpoint(error: A2AError, _state: CommandState) -> str | None:
    """Return how to call an agent whose card names no supported binding."""
    if "pip install" in error.message:
        return None  # its text says what is missing
    *others, last = BINDINGS
    return f"if the agent has an address for {', '.join(others)} or {last}: {_ENDPOINT}"


def trust_interface(_error: A2AError, state: CommandState) -> str | None:
    """Return how to name the interface that gets no credentials otherwise."""
    save = state.command("card", "get", "-o", "json")
    return f"if you trust it: {save} > card.json, then --agent-card card.json"


def declare_extension(error: A2AError, _state: CommandState) -> str | None:
    """Return how to declare the extension that the agent requires."""
    uris = cast("errors.ExtensionSupportRequiredError", error).extensions
    flags = " ".join(f"--extension {shlex.quote(uri)}" for uri in uris)
    return f"if the message follows it: {flags}" if uris else None


def omit_extension(error: A2AError, _state: CommandState) -> str | None:
    """Return which extension not to declare."""
    uris = cast("errors.ExtensionNotSupportedError", error).extensions
    return f"leave out {' '.join(f'--extension {shlex.quote(uri)}' for uri in uris)}"


def name_address(error: A2AError, state: CommandState) -> str | None:
    """Return how to name an address in a network that is too private."""
    if state.card is not None:
        return trust_interface(error, state)
    return f"if you trust it: --agent-card {error.agent}"


def correct_card(error: A2AError, state: CommandState) -> str | None:
    """Return how to correct an invalid card."""
    if state.card is None and (getattr(error, "field", None) or "").startswith(_INTERFACES):
        if isinstance(state.reference, Path):
            return f"correct the interface in {state.reference}"
        return f"the card's author has to correct the card; {_CALL_ANOTHER_ADDRESS}"
    if not is_about_address(error, state):
        return check_reference(error, state)
    if state.settings.is_endpoint:
        return "correct --endpoint"
    save = state.command("card", "get", "-o", "json")
    return f"correct the address: {save} > card.json, edit it, then --agent-card card.json"


def name_card_keys(error: A2AError, _state: CommandState) -> str | None:
    """Return what to do about a card that is merely not verified."""
    if getattr(error, "outcome", None) != "unverifiable" or error.transient:
        return None
    return (
        "pass its author's keys with --card-keys, or trust the host of its key set with "
        "--card-key-host"
    )


def choose_version(error: A2AError, state: CommandState) -> str | None:
    """Return the version to request: a supported one, and the agent's if there is a sign of it."""
    if state.settings.version not in PROTOCOL_VERSIONS:
        return f"leave out --a2a-version, or set it to {' or '.join(PROTOCOL_VERSIONS)}"
    agent_version, card = error.other_version, state.card
    if agent_version is not None:
        return f"if the agent speaks {agent_version}: --a2a-version {agent_version}"
    if card is None or not isinstance(error, errors.VersionNotSupportedError):
        return None
    declared, supported = ", ".join(declared_versions(card)), " and ".join(PROTOCOL_VERSIONS)
    return (
        f"the agent's card offers {declared}; holdfast speaks {supported}; {_CALL_ANOTHER_ADDRESS}"
    )


def check_task_id(_error: A2AError, state: CommandState) -> str | None:
    """Return what to check if there is no such task or configuration."""
    if state.key is not None:
        return "if executing the message twice does no harm, send it with another --key"
    if state.asks_for_config:
        return "check the ids of the task and of the configuration, and that both are this agent's"
    if state.task is not None:
        return f"the agent no longer knows task {state.task.id}: {LOST_IN_A_RESTART}"
    return (
        "check the task's id, and that the task is this agent's; an agent may lose its tasks "
        "when it restarts"
    )


def show_ended_task(_error: A2AError, state: CommandState) -> str | None:
    """Return the command that shows a task that has ended, and so cannot be canceled."""
    task = state.task
    if task is None or not task.state.is_terminal:
        return None
    return f"the task has ended; its result: {state.command('task', 'get', task.id)}"


def is_about_address(error: A2AError, state: CommandState) -> bool:
    """Return whether a readable card names an address that cannot be called."""
    field = getattr(error, "field", None) or ""
    return state.card is not None and (field == "url" or field.endswith(".url"))
