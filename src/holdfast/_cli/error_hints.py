"""What the caller can do about an error: a short next step, best a command to copy."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from holdfast import errors
from holdfast._cli.credentials import Need, ways_in
from holdfast._cli.error_messages import is_about_address
from holdfast._cli.output.sanitizer import shortened
from holdfast._cli.values import masked_reference, shown_duration
from holdfast._pipeline.interfaces import declared_versions
from holdfast._wire.bindings import BINDINGS, PROTOCOL_VERSIONS
from holdfast._wire.challenges import bearer_challenge
from holdfast._wire.redaction import secrets_in
from holdfast._wire.security import required_alternatives

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._cli.credentials import Way
    from holdfast._cli.errors import CommandState
    from holdfast._cli.settings import Settings
    from holdfast.errors import A2AError
    from holdfast.types import OAuthFlows, Task

__all__ = [
    "answer",
    "ask_for_it",
    "be_reachable",
    "check_path",
    "come_back",
    "come_back_if_busy",
    "correct_card",
    "find_task",
    "gave_what_is_asked_for",
    "give_credentials",
    "have_keys",
    "have_permission",
    "leave_it_out",
    "look_for_message",
    "may_have_run",
    "name_card",
    "name_it",
    "no_hint",
    "other_transport",
    "speak_theirs",
    "trust_it",
    "wait_for_task",
]

_SERVER_ERROR, _BUSY = 500, 503

_SHOWN = 300
"""Characters of what a card asks for that a hint shows at most."""

_NOT_ACCEPTED = "check the credentials: the agent does not accept them"

_VARIABLES = {
    "--api-key": "A2ACLI_API_KEY",
    "--bearer": "A2ACLI_BEARER",
    "--svc-param": "A2ACLI_SVC_PARAM",
}
_INTERFACES = "supportedInterfaces["
_ENDPOINT = "--endpoint URL --transport BINDING in place of --agent-card"
_CALL_PAST_CARD = f"to call another address: {_ENDPOINT}"
_NO_SUCH_PATH = frozenset({404, 405, 410})
"""HTTP statuses of servers that have nothing at an address, or something other than an agent."""

_BY_FAILURE: Mapping[str, str] = {
    "dns": "check the host's name in --agent-card and in the agent's card",
    "refused": "check that the agent is running at this address",
    "unreachable": "check the address and the network",
    "tls": "check the address (does it speak http://?) and the certificate; --insecure leaves "
    "the certificate unverified, for development only",
    "proxy": "check HTTP_PROXY, HTTPS_PROXY and NO_PROXY",
}


def no_hint(_error: A2AError, _situation: CommandState) -> str | None:
    """There is nothing useful to say."""
    return None


def wait_for_task(error: A2AError, situation: CommandState) -> str | None:
    """How to go on with what the time was too short for."""
    if isinstance(error, errors.OutcomeUnknownError):
        return look_for_message(error, situation)
    task: Task | None = situation.task or getattr(error, "task", None)
    if task is None:
        first = "" if situation.card is not None else f"{_check_address(error, situation)}, or "
        return f"{first}allow more time with --timeout"
    return situation.go_on(task.id)


def look_for_message(error: A2AError, situation: CommandState) -> str | None:
    """Name the command that searches for a message whose outcome is unknown."""
    message_id, context_id = situation.message_id, None
    if isinstance(error, errors.OutcomeUnknownError):
        message_id, context_id = error.message_id, error.context_id
    context = ["--context-id", context_id] if context_id else []
    search = situation.command("task", "list", *context, "--history", "10", "-o", "json")
    return (
        f"search for message {message_id} with {search}; send it again only if running it "
        "twice does no harm"
    )


def may_have_run(error: A2AError, situation: CommandState) -> bool:
    """Return whether an error says of the message in flight that it may have been executed."""
    says_so = error.transient or isinstance(
        error, errors.InvalidAgentResponseError | errors.LimitExceededError
    )
    in_flight = situation.may_have_left and situation.message_id is not None
    return in_flight and says_so and error.executed is None


def name_card(error: A2AError, situation: CommandState) -> str | None:
    """What a reference to a card may be, where there is no card."""
    if (error.http_status or 0) >= _SERVER_ERROR:
        return come_back(error, situation)
    reference = masked_reference(situation.settings.agent_card)
    if "HTTP/2" in error.message:
        host = urlsplit(error.agent or "").netloc
        return (
            f"for an agent that speaks gRPC alone: --endpoint {host} --transport grpc; else name "
            "the address of its card"
        )
    return f"check --agent-card {reference}: a host, a card's URL, or a card's file"


def give_credentials(error: A2AError, situation: CommandState) -> str | None:
    """The credentials that are missing, or that these are not the right ones."""
    settings = situation.settings
    if situation.card is None and bearer_challenge(error.headers) is not None:
        has_token = situation.auth is not None and (settings.bearer or not settings.credentials)
        shown = shlex.quote(masked_reference(str(situation.reference)))
        if settings.is_credential_origin:
            return _NOT_ACCEPTED if has_token else _what_to_give(situation)
        if has_token:
            return (
                "no credential is sent before the card declares a scheme for it; if you trust "
                f"this server: --credential-origin {shown}"
            )
        return (
            f"{_what_to_give(situation)} together with --credential-origin {shown}, if you trust "
            "this server; otherwise no credential is sent before the card declares a scheme for it"
        )
    if settings.withheld and not settings.credentials:
        return "the credentials that are set are for another agent; see the warnings above"
    if gave_what_is_asked_for(situation):
        return _NOT_ACCEPTED
    return _what_to_give(situation)


def have_permission(_error: A2AError, situation: CommandState) -> str | None:
    """Whose permission is missing."""
    if situation.card is None:
        return (
            "check the address; a card that was saved by other means can be named as a file with "
            "--agent-card"
        )
    if gave_what_is_asked_for(situation):
        return (
            "the credentials were understood, and do not permit this: ask the agent's owner for "
            "the permission, or use others"
        )
    instead = _what_to_give(situation)
    return f"the agent does not permit this with the credentials that it got: {instead}"


def _what_to_give(situation: CommandState) -> str:
    """The credentials that are missing, in each of the ways that are enough."""
    ways = _ways(situation)
    if situation.card is None:
        given = {_to_set(Need("--bearer"))}
    elif not ways:
        given = {_to_set(Need(flag)) for flag in ("--api-key", "--bearer")}
    else:
        given = {_all_of(way, situation.settings) for way in ways if way.hindrance is None}
    if not given:
        asked = shortened(", or ".join(way.words for way in ways), _SHOWN)
        many = "the command line can give none of these"
        return f"the agent asks for {asked}; {ways[0].hindrance if len(ways) == 1 else many}"
    login = _login(situation)
    first = "" if login is None else f"log in: {login}, or "
    return first + shortened(f"set {', or '.join(sorted(given))}", _SHOWN)


def _login(situation: CommandState) -> str | None:
    """The command that gets a token, where the card takes one of OAuth or OpenID Connect alone."""
    card = situation.card
    if card is None:
        return None
    names = [
        name
        for one in required_alternatives(card)
        if len(one.schemes) == 1
        for name in one.schemes
    ]
    for scheme in filter(None, (card.security_schemes.get(name) for name in names)):
        oauth = scheme.oauth2_security_scheme
        if oauth is None and scheme.open_id_connect_security_scheme is None:
            continue
        flow = [] if oauth is None else _flow(oauth.flows)
        return situation.command("auth", "login", *flow, "--client-id", "CLIENT_ID")
    return None


def _flow(flows: OAuthFlows) -> list[str]:
    """What names the flow of a card that does not have the default one."""
    if flows.device_code is None and flows.authorization_code is not None:
        return ["--flow", "authorization-code"]
    if flows.device_code is None and flows.client_credentials is not None:
        return ["--flow", "client-credentials"]
    return []


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


def gave_what_is_asked_for(situation: CommandState) -> bool:
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


def _ways(situation: CommandState) -> list[Way]:
    return [] if situation.card is None else ways_in(situation.card)


def be_reachable(error: A2AError, _situation: CommandState) -> str | None:
    """What to look at by how the agent could not be reached."""
    return _BY_FAILURE.get(getattr(error, "failure", ""))


def _check_address(error: A2AError, situation: CommandState) -> str:
    """A client with TLS and a server without it wait for each other until one gives up."""
    secure = (error.agent or str(situation.reference)).startswith("https://")
    return f"check the address{' (does it speak http://?)' if secure else ''}"


def answer(error: A2AError, situation: CommandState) -> str | None:
    """What to look at when somebody listens there, or seems to, and says nothing."""
    if getattr(error, "phase", "") == "connect":
        return f"{_check_address(error, situation)} and the network"
    return "check that it is the agent that listens at this address"


def come_back(error: A2AError, _situation: CommandState) -> str | None:
    """When to try again."""
    if error.retry_after is None:
        return "try again later"
    return f"try again in {shown_duration(max(error.retry_after, 1.0))}"


def come_back_if_busy(error: A2AError, situation: CommandState) -> str | None:
    """When to try again, where the agent has no time now."""
    is_busy = error.http_status == _BUSY or error.retry_after is not None
    if is_busy:
        return come_back(error, situation)
    return speak_theirs(error, situation)


def check_path(error: A2AError, situation: CommandState) -> str | None:
    """Return where an address comes from that has no agent; otherwise when to try again."""
    if error.http_status not in _NO_SUCH_PATH or situation.card is None:
        return come_back_if_busy(error, situation)
    if situation.settings.is_endpoint:
        parts = urlsplit(error.agent or situation.settings.agent_card)
        card = f"holdfast card get --agent-card {parts.scheme}://{parts.netloc}"
        return f"check the path of --endpoint; the agent's card names the right one: {card}"
    shown = situation.command("card", "get")
    return f"the address comes from the agent's card: {shown} shows it; {_CALL_PAST_CARD}"


def other_transport(error: A2AError, _situation: CommandState) -> str | None:
    """Return how to call an agent whose card names no supported binding."""
    if "pip install" in error.message:
        return None  # it says what is missing
    *others, last = BINDINGS
    return f"if the agent has an address for {', '.join(others)} or {last}: {_ENDPOINT}"


def trust_it(_error: A2AError, situation: CommandState) -> str | None:
    """How to name the interface that no credentials go to otherwise."""
    save = situation.command("card", "get", "-o", "json")
    return f"if you trust it: {save} > card.json, then --agent-card card.json"


def ask_for_it(error: A2AError, _situation: CommandState) -> str | None:
    """How to declare the extension that the agent requires."""
    uris = cast("errors.ExtensionSupportRequiredError", error).extensions
    flags = " ".join(f"--extension {shlex.quote(uri)}" for uri in uris)
    return f"if the message follows it: {flags}" if uris else None


def leave_it_out(error: A2AError, _situation: CommandState) -> str | None:
    """Which extension not to declare."""
    uris = cast("errors.ExtensionNotSupportedError", error).extensions
    return f"leave out {' '.join(f'--extension {shlex.quote(uri)}' for uri in uris)}"


def name_it(error: A2AError, situation: CommandState) -> str | None:
    """How to name the address that lies too far inside."""
    if situation.card is not None:
        return trust_it(error, situation)
    return f"if you trust it: --agent-card {error.agent}"


def correct_card(error: A2AError, situation: CommandState) -> str | None:
    """How to correct a card that cannot be right."""
    if situation.card is None and (getattr(error, "field", None) or "").startswith(_INTERFACES):
        if isinstance(situation.reference, Path):
            return f"correct the interface in {situation.reference}"
        return f"the card's author has to correct the card; {_CALL_PAST_CARD}"
    if not is_about_address(error, situation):
        return name_card(error, situation)
    save = situation.command("card", "get", "-o", "json")
    return f"correct the address: {save} > card.json, edit it, then --agent-card card.json"


def have_keys(error: A2AError, _situation: CommandState) -> str | None:
    """What helps where a card is merely not verified."""
    if getattr(error, "outcome", None) != "unverifiable" or error.transient:
        return None
    return "name its author's keys by --card-keys, or where they are by --card-key-host"


def speak_theirs(error: A2AError, situation: CommandState) -> str | None:
    """The version to ask for: one of ours, and the agent's if there is a sign of what that is."""
    if situation.settings.version not in PROTOCOL_VERSIONS:
        return f"leave out --a2a-version, or set it to {' or '.join(PROTOCOL_VERSIONS)}"
    other, card = error.other_version, situation.card
    if other is not None:
        return f"if the agent speaks {other}: --a2a-version {other}"
    if card is None or not isinstance(error, errors.VersionNotSupportedError):
        return None
    declared, spoken = ", ".join(declared_versions(card)), " and ".join(PROTOCOL_VERSIONS)
    return f"the agent's card offers {declared}; holdfast speaks {spoken}; {_CALL_PAST_CARD}"


def find_task(_error: A2AError, situation: CommandState) -> str | None:
    """What to look at where there is no such task, or configuration."""
    if situation.asks_for_config:
        return "check the ids of the task and of the configuration, and that both are this agent's"
    if situation.task is not None:
        return (
            f"the agent knew task {situation.task.id} before, and does not know it now: an agent "
            "that keeps its tasks in memory forgets them when it restarts"
        )
    return (
        "check the task's id, and that it is this agent's; an agent that was restarted may have "
        "forgotten its tasks"
    )
