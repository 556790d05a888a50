"""An examination: asks an agent one thing after the other, and has the answers judged.

Rules: what may execute something is not sent, unless the caller names a message; each question is
asked once, and nothing is tried again; the whole has a bound, after which what was found so far is
told; credentials go where a client would send them, and are in no finding.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from holdfast._aio.cancel_scope import CancelScope
from holdfast._aio.env import Env, SystemEnv
from holdfast._arguments import (
    check_able,
    check_kind,
    check_one_of,
    check_seconds,
    check_url,
    items,
)
from holdfast._auth.providers import to_provider
from holdfast._client.content import to_message
from holdfast._client.resolve import resolve_engine
from holdfast._doctor.cards import card_of_file, fetch_card
from holdfast._doctor.checks import verdicts
from holdfast._doctor.delivery import Delivery
from holdfast._doctor.facts import CardFacts, InterfaceFacts, Observed, SendingFacts
from holdfast._doctor.findings import Diagnosis
from holdfast._doctor.probes import ANSWER, Caller, Questions
from holdfast._doctor.recording_engine import RecordingEngine, Seen
from holdfast._pipeline.cards.trust import ReceivedCard
from holdfast._pipeline.endpoints import Endpoints
from holdfast._pipeline.interfaces import Route, choose_interfaces
from holdfast._policy.resilience import Resilience
from holdfast._signatures.verifier import CardVerifier, CardVerifierCallable, card_checker
from holdfast._wire.bindings import (
    HTTP_BINDINGS,
    OLDER_VERSION,
    PROTOCOL_VERSION,
    PROTOCOL_VERSIONS,
    ProtocolVersion,
    spoken_version,
)
from holdfast._wire.http import Timeouts, check_headers, presentable
from holdfast._wire.limits import Limits
from holdfast._wire.network_scope import NetworkReach, innermost, scope_of_host
from holdfast._wire.origins import origin_and_aliases
from holdfast._wire.redaction import Secrets, redact, secrets_in
from holdfast.errors import (
    A2AError,
    AuthenticationError,
    DeadlineExceededError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import aiohttp

    from holdfast._auth.providers import AuthProvider, CredentialService
    from holdfast._client.content import Content
    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig
    from holdfast._wire.tls import TlsFacts
    from holdfast.types import AgentCard, AgentInterface, Task

    LookAtTls = Callable[..., Awaitable[TlsFacts | None]]

__all__ = ["Examination", "diagnose"]

_TIMEOUT = 120.0
_MOST_INTERFACES, _MOST_LISTED = 6, 20
"""Interfaces of a card that are examined, since each is asked some ten questions, and told of."""

_LONGEST = 1000
"""Characters of a text in a finding: agents may put anything into it."""

_TIMEOUTS = Timeouts(connect=5.0, write=10.0, first_byte=ANSWER, idle=ANSWER)
_WATCHED = 0.5
"""How much of the whole time a task is watched."""


async def diagnose(
    agent: str | Path,
    *,
    send: Content | None = None,
    twice: bool = False,
    auth: str | Mapping[str, str] | AuthProvider | CredentialService | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = _TIMEOUT,
    protocol_version: ProtocolVersion | None = None,
    bindings: Sequence[str] = (),
    limits: Limits | None = None,
    engine: HttpEngine | aiohttp.ClientSession | None = None,
    env: Env | None = None,
    card_verifier: CardVerifier | CardVerifierCallable | None = None,
    tls: TlsConfig | None = None,
) -> Diagnosis:
    """Examines an agent, and says what was seen, what that means, and what to do.

    By default only what is harmless is done: the card and tasks are read, and requests are made
    that no agent executes anything for, because they name a task that there is not or cannot be
    right; some ten for each interface. Streams, and what is kept of messages, need a message.

    Args:
        agent: Where the agent is, as for `connect`.
        send: A message that may be executed; it is sent once.
        twice: Whether the same message, under the same id, is sent once more, to see what its id
            is good for. Most agents execute it a second time.
        auth: Credentials, as for `connect`.
        headers: Sent with every request to the agent's own origin.
        timeout: Seconds for all of it. Half of them are for watching the task.
        protocol_version: The version in which the message may be sent; any that is spoken there if
            left out.
        bindings: Preferred bindings for the message, best first.
        limits: How large replies may be.
        engine: What carries requests, as for `connect`. Over one of your own, which may trust
            other authorities, the server's TLS is not looked at.
        env: Wall time and ids; for tests.
        card_verifier: Who verifies the signatures of the card, as for `connect`.
        tls: Whom to trust and which certificate to show, without `engine`.

    Returns:
        What was found, also where the agent is not there at all.

    Raises:
        ValueError: An address, a header or a number that cannot be right.
        TypeError: An argument of another type.
    """
    used, owned = resolve_engine(engine, tls)
    try:
        examination = Examination(
            agent,
            engine=used,
            send=send,
            twice=twice,
            auth=to_provider(auth),
            headers=headers,
            timeout=timeout,
            protocol_version=protocol_version,
            bindings=bindings,
            limits=limits,
            env=env,
            card_verifier=card_verifier,
            look_at_tls=_look_at_tls(tls) if engine is None else None,
        )
        return await examination.run()
    finally:
        if owned is not None:
            await owned.close()


def _look_at_tls(tls: TlsConfig | None) -> LookAtTls:
    from holdfast._net.tls import look_at_tls  # heavy, and not for everybody

    return partial(look_at_tls, tls=tls)


class Examination:
    """One examination; what it has found can be asked for at any time.

    Args:
        agent: Where the agent is: an address, or the file of its card.
        engine: What carries requests; it is not closed.
        send: The message that may be sent.
        twice: Whether it may be sent once more.
        auth: Where credentials come from.
        headers: Sent with every request to the agent's own origin.
        timeout: Seconds for all of it.
        protocol_version: The version in which the message may be sent.
        bindings: Preferred bindings for the message.
        limits: How large replies may be.
        env: Wall time and ids.
        card_verifier: Who verifies the signatures of the card.
        look_at_tls: Looks at the TLS of a server; None if that is not to be done.
        found: Called with the card, before the agent is called.
        sending: Called with the message's id right before it is sent.

    Raises:
        ValueError: An address, a header or a number that cannot be right.
        TypeError: An argument of another type.
    """

    def __init__(
        self,
        agent: str | Path,
        *,
        engine: HttpEngine,
        send: Content | None = None,
        twice: bool = False,
        auth: AuthProvider | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = _TIMEOUT,
        protocol_version: ProtocolVersion | None = None,
        bindings: Sequence[str] = (),
        limits: Limits | None = None,
        env: Env | None = None,
        card_verifier: CardVerifier | CardVerifierCallable | None = None,
        look_at_tls: LookAtTls | None = None,
        found: Callable[[AgentCard], None] = lambda _: None,
        sending: Callable[[str], None] = lambda _: None,
    ) -> None:
        check_kind("agent", agent, (str, Path))
        self._agent = agent
        self._address = "" if isinstance(agent, Path) else check_url(agent, "agent URL")
        self._timeout = check_seconds("timeout", timeout)
        check_kind("twice", twice, bool)
        if twice and send is None:
            text = "twice=True is about a message: pass send="
            raise ValueError(text)
        if protocol_version is not None:
            check_one_of("protocol_version", protocol_version, PROTOCOL_VERSIONS)
        bindings = items("bindings", bindings)
        for binding in bindings:
            check_one_of("each of bindings", binding, HTTP_BINDINGS)
        self._version = protocol_version
        self._bindings = bindings
        env = SystemEnv() if env is None else env
        check_able("env", env, "wall", "random", "new_id")
        limits = Limits() if limits is None else limits
        check_kind("limits", limits, Limits)
        self._env = env
        self._message = None if send is None else to_message(send, new_id=env.new_id())
        self._twice = twice
        self._seen = Seen()
        self._secrets = Secrets()
        self._look_at_tls = look_at_tls
        if card_verifier is not None and not isinstance(card_verifier, CardVerifier):
            check_able("card_verifier", card_verifier, "__call__")
        self._verifier = card_verifier
        self._found = found
        self._sending = sending
        self._sent: list[str] = []
        self._delivery: Delivery | None = None
        self._endpoints = Endpoints()
        self._caller = Caller(
            engine=RecordingEngine(engine, env, self._seen),
            env=env,
            resilience=msgspec.structs.replace(Resilience.off(), timeouts=_TIMEOUTS),
            limits=limits,
            auth=auth,
            headers=check_headers({} if headers is None else headers),
            secrets=self._secrets,
        )
        self._observed = Observed(
            agent=presentable(self._address) if self._address else str(agent),
            scheme=urlsplit(self._address).scheme,
            scope=scope_of_host(self._address) if self._address else "public",
            has_credentials=auth is not None or bool(secrets_in(self._caller.headers)),
            is_to_send=send is not None,
            is_to_repeat=twice,
            stopped="the examination has not finished",
        )
        self._is_late = False

    @property
    def agent(self) -> str:
        """Where the agent is looked for, as it may be shown."""
        return self._observed.agent

    @property
    def task(self) -> Task | None:
        """The task that the message made, as last seen; None if there is none."""
        return None if self._delivery is None else self._delivery.task

    @property
    def card(self) -> AgentCard | None:
        """The agent's card, once it is known."""
        return None if self._observed.card is None else self._observed.card.card

    async def run(self) -> Diagnosis:
        """Asks everything there is to ask, within the time."""
        observed, ends = self._observed, asyncio.get_running_loop().time() + self._timeout
        try:
            async with CancelScope(ends) as scope:
                await self._run()
        except asyncio.CancelledError:
            observed.stopped = "the examination was interrupted"
            raise
        observed.stopped = ""
        if scope.expired:
            observed.stopped = f"the time of {self._timeout:g} s was over"
            self._is_late = True
        return self.diagnosis()

    def diagnosis(self) -> Diagnosis:
        """What is found so far, without anything secret in it."""
        observed = self._observed
        observed.skew, observed.hints = self._seen.skew, self._seen.hints
        observed.refusals = self._seen.refusals
        found = verdicts(observed, now=self._env.wall())
        secrets = self._secrets.values()
        error = observed.card_error or observed.error
        if error is not None:
            redact(error, secrets)
        elif self._is_late:
            error = DeadlineExceededError(
                f"the examination took longer than {self._timeout:g} s",
                deadline="call",
                timeout=self._timeout,
                executed=None if self._sent else False,
            )
        card = self.card
        return Diagnosis(
            agent=observed.agent,
            name="" if card is None else card.name,
            findings=found,
            message_ids=tuple(self._sent),
            stopped=observed.stopped,
            error=error,
        ).hiding(lambda text: _hidden(text, secrets))

    async def _run(self) -> None:
        await self._find_card()
        await self._see_tls()
        card = self._observed.card
        if card is None:
            return
        try:
            self._found(card.card)
        except A2AError as error:
            self._observed.error = error
        asked = await self._ask_interfaces(card)
        await self._deliver(card.card, asked)

    # ── The card ─────────────────────────────────────────────────────────────────────────────

    async def _find_card(self) -> None:
        observed = self._observed
        try:
            if isinstance(self._agent, Path):
                limits = self._caller.limits
                observed.card = await asyncio.to_thread(card_of_file, self._agent, limits)
                # Whoever brings a card along is where it leads to.
                observed.scope = scope_of_host(observed.card.card.supported_interfaces[0].url)
            else:
                observed.card, scope = await fetch_card(
                    self._caller, self._agent, self._endpoints, self._seen, timeout=self._timeout
                )
                observed.scope = innermost([scope, observed.scope])
        except A2AError as error:
            self._secrets.hide_in(error)
            error.attempts, error.retry_stopped_reason = (
                (),
                None,
            )  # there was one, and it was meant to be
            observed.card_error = error
        else:
            observed.card = await self._verified(observed.card)

    async def _verified(self, card: CardFacts) -> CardFacts:
        """The same, with what its signatures are worth."""
        checker = card_checker(self._verifier, self._caller.engine, self._env)
        if checker is None or not card.document.get("signatures"):
            return card
        try:
            checked = await checker.check(ReceivedCard(card.card, card.document))
        finally:
            await checker.close()
        return msgspec.structs.replace(card, verification=checked.verification)

    async def _see_tls(self) -> None:
        observed = self._observed
        if observed.scheme != "https":
            return
        if self._look_at_tls is None:
            observed.why_no_tls = "the engine in use does not show it"
            return
        observed.tls = await self._look_at_tls(self._address, timeout=_TIMEOUTS.connect)
        if observed.tls is None:
            observed.why_no_tls = "a proxy stands between"
        elif observed.tls.failure and observed.card is None:
            observed.tls = None  # the card's own error says so
            observed.why_no_tls = "no connection came about"

    # ── The interfaces ───────────────────────────────────────────────────────────────────────

    async def _ask_interfaces(self, card: CardFacts) -> list[Questions]:
        observed, interfaces = self._observed, card.card.supported_interfaces
        trusted = origin_and_aliases(self._address or interfaces[0].url)
        observed.interfaces = [
            InterfaceFacts.of(interface, number, self._address, trusted)
            for number, interface in enumerate(interfaces[:_MOST_LISTED], start=1)
        ]
        able = [f for f in observed.interfaces if f.is_known and f.doubt is None]
        asked = [self._questions(facts, card.card) for facts in able[:_MOST_INTERFACES]]
        for questions in asked:
            await self._ask(questions)
        reached = [questions for questions in asked if questions.facts.is_reached]
        first = next(iter(reached or asked), None)
        if first is not None and observed.error is None:
            observed.error = first.error
        return asked

    def _questions(self, facts: InterfaceFacts, card: AgentCard) -> Questions:
        version = spoken_version(facts.interface.protocol_version) or PROTOCOL_VERSION
        endpoint = self._endpoints.of(_in_version(facts.interface, version))
        reach = None if facts.is_trusted else NetworkReach(inward=self._observed.scope)
        return Questions(self._caller, facts, endpoint, card, reach=reach)

    async def _ask(self, questions: Questions) -> None:
        """Asks an interface all questions, if somebody answers the first one."""
        facts = questions.facts
        facts.is_examined = True
        await self._find_version(questions)
        task = facts.task
        if task is None or task.status is None:
            return
        if facts.unauthorized is None and self._observed.has_credentials and facts.is_trusted:
            facts.unauthorized = (await questions.about_task(bare=True)).answered
        if not facts.is_usable:
            return
        await questions.about_errors()
        await questions.about_list()
        await questions.about_subscription()

    async def _find_version(self, questions: Questions) -> None:
        """Asks in one version, then in the other, and stays with the one that is understood."""
        facts, first = questions.facts, questions.endpoint
        asked = await questions.about_task()
        facts.task, questions.error = asked.answered, asked.error
        if isinstance(asked.error, AuthenticationError) and asked.error.http_status is None:
            facts.unmet = asked.answered.in_words
            facts.task = facts.unauthorized = (await questions.about_task(bare=True)).answered
        if asked.error is not None:
            return
        other = OLDER_VERSION if first.version == PROTOCOL_VERSION else PROTOCOL_VERSION
        second = self._endpoints.of(_in_version(facts.interface, other))
        of_other = await questions.about_task(second)
        facts.versions = {first.version: asked.understood, other: of_other.understood}
        if asked.understood is False and of_other.understood:
            questions.endpoint, facts.task = second, of_other.answered
            facts.version = second.version

    # ── The message ──────────────────────────────────────────────────────────────────────────

    async def _deliver(self, card: AgentCard, asked: list[Questions]) -> None:
        if self._message is None:
            return
        observed = self._observed
        facts = observed.sending = SendingFacts(message_id=self._message.message_id)
        chosen, facts.why_not = self._chosen(card, asked)
        if chosen is None:
            return
        facts.about = chosen.facts.about
        delivery = self._delivery = Delivery(
            chosen, self._message, facts, self._seen, self._seen.skew or 0.0
        )
        await delivery.run(
            streams=bool(card.capabilities.streaming),
            watch=self._timeout * _WATCHED,
            twice=self._twice,
            sending=self._note_sending,
        )
        listing = chosen.facts.listing
        if facts.task_id and listing is not None and listing.is_empty:
            await chosen.about_list()  # there is something in it now

    def _note_sending(self) -> None:
        message_id = "" if self._message is None else self._message.message_id
        self._sent.append(message_id)
        self._sending(message_id)

    def _chosen(self, card: AgentCard, asked: list[Questions]) -> tuple[Questions | None, str]:
        """Where the message goes; None and why not if it must go nowhere."""
        able = [one for one in asked if one.facts.is_usable]
        if not able:
            return None, "no interface answers as an agent does"
        allowed = [one for one in able if self._version in {None, one.endpoint.version}]
        if not allowed:
            spoken = able[0].endpoint.version
            return None, f"the agent speaks {spoken}, and {self._version} was asked for"
        offered = msgspec.structs.replace(
            card, supported_interfaces=tuple(one.endpoint.interface for one in allowed)
        )
        first = choose_interfaces(offered, Route(bindings=self._bindings)).first
        places = [_place(interface) for interface in offered.supported_interfaces]
        return allowed[places.index(_place(first))], ""


def _place(interface: AgentInterface) -> tuple[str | None, ...]:
    return interface.url, interface.protocol_binding, interface.protocol_version


def _in_version(interface: AgentInterface, version: str) -> AgentInterface:
    return msgspec.structs.replace(
        interface,
        url=interface.url.partition("#")[0],  # a fragment is not sent (RFC 9110, 7.1)
        protocol_binding=interface.protocol_binding.upper(),
        protocol_version=version,
        tenant=None if version == OLDER_VERSION else interface.tenant,
    )


def _hidden(text: str, secrets: frozenset[str]) -> str:
    error = A2AError(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")
    redact(error, secrets)
    return error.message
