"""An examination: sends an agent one probe after the other, and runs the checks on the replies.

Rules: nothing that the agent may execute is sent, unless the caller passes a message; each probe
is sent once, without retries; the whole examination has a timeout, after which it reports the
findings so far; credentials go where a client would send them, and are in no finding.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from holdfast._aio.cancel_scope import CancelScope
from holdfast._arguments import (
    check_items,
    check_kind,
    check_methods,
    check_one_of,
    check_seconds,
    check_url,
)
from holdfast._client.bare_client import BareClient
from holdfast._doctor.checks import run_checks
from holdfast._doctor.facts import CardFacts, InterfaceFacts, Observations, SendingFacts
from holdfast._doctor.findings import Diagnosis
from holdfast._doctor.interface_probe import REPLY_TIMEOUT_S, InterfaceProbe
from holdfast._doctor.message_probe import MessageProbe
from holdfast._doctor.recording import RecordingEngine, ReplyLog
from holdfast._net.resolve_engine import resolve_engine
from holdfast.client import to_message
from holdfast.errors import (
    A2AError,
    AuthenticationError,
    DeadlineExceededError,
)
from holdfast.extend import Env, NetworkReach, SystemEnv, presentable
from holdfast.policies import Limits, Timeouts
from holdfast.protocol import (
    HTTP_BINDINGS,
    OLDER_VERSION,
    PROTOCOL_VERSION,
    PROTOCOL_VERSIONS,
    ProtocolVersion,
    spoken_version,
)
from holdfast.signatures import CardVerifier, CardVerifierCallable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import aiohttp

    from holdfast._doctor.facts import TlsFacts
    from holdfast.auth import AuthProvider
    from holdfast.client import Content
    from holdfast.compat import CredentialService
    from holdfast.extend import HttpEngine
    from holdfast.policies import TlsConfig
    from holdfast.types import AgentCard, AgentInterface, Task

    LookAtTls = Callable[..., Awaitable[TlsFacts | None]]

__all__ = ["Examination", "diagnose"]

_TIMEOUT_S = 120.0
_MAX_EXAMINED, _MAX_LISTED = 6, 20
"""Interfaces of a card that are examined, with some ten requests each, and that are reported."""

_MAX_TEXT_CHARS = 1000
"""Characters of a text in a finding; agents may put anything into it."""

_TIMEOUTS = Timeouts(connect=5.0, write=10.0, first_byte=REPLY_TIMEOUT_S, idle=REPLY_TIMEOUT_S)
_WATCH_SHARE = 0.5
"""Share of the timeout for which a task is observed."""


async def diagnose(
    agent: str | Path,
    *,
    send: Content | None = None,
    twice: bool = False,
    auth: str | Mapping[str, str] | AuthProvider | CredentialService | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = _TIMEOUT_S,
    protocol_version: ProtocolVersion | None = None,
    bindings: Sequence[str] = (),
    limits: Limits | None = None,
    engine: HttpEngine | aiohttp.ClientSession | None = None,
    env: Env | None = None,
    card_verifier: CardVerifier | CardVerifierCallable | None = None,
    tls: TlsConfig | None = None,
) -> Diagnosis:
    """Examine an agent, and return the findings: each with its consequence and an advice.

    By default only harmless requests are sent, some ten for each interface: they read the card and
    tasks, name a task that does not exist, or are not valid, so that no agent executes anything.
    Checks of streams, and of how messages are stored, need a message.

    Args:
        agent: The agent's address, or the ``Path`` of its card, as for `connect`.
        send: A message (`Content`, such as text) that the agent may execute; it is sent once.
            None, the default, for none.
        twice: Whether to send the same message, with the same id, once more, to check that the id
            is unique; False by default. Most agents execute it a second time.
        auth: Credentials, as for `connect`.
        headers: Headers for every request to the agent's own origin.
        timeout: Seconds for the whole examination, more than 0, 120 by default; half of them are
            for observing the task.
        protocol_version: The version in which the message may be sent, ``"1.0"`` or ``"0.3"``;
            None for any that the agent supports.
        bindings: Preferred bindings for the message, the best one first: ``"JSONRPC"``,
            ``"HTTP+JSON"``.
        limits: Bounds on the size of replies; None for the defaults.
        engine: The HTTP engine, as for `connect`. With your own engine, which may trust other
            authorities, the server's TLS is not inspected.
        env: Wall time and ids; None for the system's.
        card_verifier: Verifier of the card's signatures, such as a `CardVerifier`; none by
            default.
        tls: TLS settings, without ``engine``.

    Returns:
        The findings, also if the agent cannot be reached.

    Raises:
        ValueError: An address, a header or a number is not valid.
        TypeError: An argument has the wrong type.

    Example:
        Print the problems of an agent::

            from holdfast.doctor import diagnose

            diagnosis = await diagnose("http://localhost:9999")
            for finding in diagnosis.findings:
                if finding.level == "problem":
                    print(finding.check, finding.saw, finding.do)
    """
    used, owned = resolve_engine(engine, tls)
    try:
        examination = Examination(
            agent,
            engine=used,
            send=send,
            twice=twice,
            auth=auth,
            headers=headers,
            timeout=timeout,
            protocol_version=protocol_version,
            bindings=bindings,
            limits=limits,
            env=env,
            card_verifier=card_verifier,
            look_at_tls=_tls_inspector(tls) if engine is None else None,
        )
        return await examination.run()
    finally:
        if owned is not None:
            await owned.close()


def _tls_inspector(tls: TlsConfig | None) -> LookAtTls:
    from holdfast._doctor.tls import look_at_tls  # slow to import

    return partial(look_at_tls, tls=tls)


class Examination:
    """One examination; `diagnosis` returns its findings at any time.

    Args:
        agent: The agent's address, or the file of its card.
        engine: The HTTP engine; it is not closed.
        send: The message that may be sent; None for none.
        twice: Whether it may be sent once more.
        auth: Credentials, as for `connect`.
        headers: Headers for every request to the agent's own origin.
        timeout: Seconds for the whole examination.
        protocol_version: The version in which the message may be sent.
        bindings: Preferred bindings for the message, the best one first.
        limits: Bounds on the size of replies.
        env: Wall time and ids.
        card_verifier: Verifies the signatures of the card.
        look_at_tls: Inspects the TLS of a server; None to leave that out.
        on_card: Called with the card, before the agent is called.
        on_send: Called with the message's id right before it is sent.

    Raises:
        ValueError: An address, a header or a number is not valid.
        TypeError: An argument has the wrong type.
    """

    def __init__(
        self,
        agent: str | Path,
        *,
        engine: HttpEngine,
        send: Content | None = None,
        twice: bool = False,
        auth: str | Mapping[str, str] | AuthProvider | CredentialService | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = _TIMEOUT_S,
        protocol_version: ProtocolVersion | None = None,
        bindings: Sequence[str] = (),
        limits: Limits | None = None,
        env: Env | None = None,
        card_verifier: CardVerifier | CardVerifierCallable | None = None,
        look_at_tls: LookAtTls | None = None,
        on_card: Callable[[AgentCard], None] = lambda _: None,
        on_send: Callable[[str], None] = lambda _: None,
    ) -> None:
        check_kind("agent", agent, (str, Path))
        self._agent = agent
        self._address = "" if isinstance(agent, Path) else check_url(agent, "agent URL")
        self._timeout = check_seconds("timeout", timeout)
        check_kind("twice", twice, bool)
        if twice and send is None:
            text = "twice=True needs a message; pass send="
            raise ValueError(text)
        if protocol_version is not None:
            check_one_of("protocol_version", protocol_version, PROTOCOL_VERSIONS)
        bindings = check_items("bindings", bindings)
        for binding in bindings:
            check_one_of("each of bindings", binding, HTTP_BINDINGS)
        self._version = protocol_version
        self._bindings = bindings
        env = SystemEnv() if env is None else env
        check_methods("env", env, "wall", "random", "new_id")
        limits = Limits() if limits is None else limits
        check_kind("limits", limits, Limits)
        self._env = env
        self._message = None if send is None else to_message(send, new_id=env.new_id())
        self._twice = twice
        self._log = ReplyLog()
        self._look_at_tls = look_at_tls
        if card_verifier is not None and not isinstance(card_verifier, CardVerifier):
            check_methods("card_verifier", card_verifier, "__call__")
        self._verifier = card_verifier
        self._on_card = on_card
        self._on_send = on_send
        self._sent_ids: list[str] = []
        self._message_probe: MessageProbe | None = None
        self._client = BareClient(
            RecordingEngine(engine, env, self._log),
            env,
            timeouts=_TIMEOUTS,
            limits=limits,
            auth=auth,
            headers={} if headers is None else headers,
        )
        self._observed = Observations(
            agent=presentable(self._address) if self._address else str(agent),
            scheme=urlsplit(self._address).scheme,
            has_credentials=self._client.has_credentials,
            may_send=send is not None,
            may_repeat=twice,
            stopped="the examination has not finished",
        )
        self._is_late = False

    @property
    def agent(self) -> str:
        """The address of the agent, as it may be shown."""
        return self._observed.agent

    @property
    def task(self) -> Task | None:
        """The task that the message created, as last seen; None if there is none."""
        return None if self._message_probe is None else self._message_probe.task

    @property
    def card(self) -> AgentCard | None:
        """The agent's card; None if there is none so far."""
        return None if self._observed.card is None else self._observed.card.card

    async def run(self) -> Diagnosis:
        """Send all probes within the timeout, and return the diagnosis."""
        observed = self._observed
        try:
            async with CancelScope.within(self._timeout) as scope:
                await self._run()
        except asyncio.CancelledError:
            observed.stopped = "the examination was interrupted"
            raise
        observed.stopped = ""
        if scope.expired:
            observed.stopped = f"the time limit of {self._timeout:g} s expired"
            self._is_late = True
        return self.diagnosis()

    def diagnosis(self) -> Diagnosis:
        """Return the findings so far, without secrets."""
        observed = self._observed
        observed.skew, observed.hints = self._log.skew, self._log.hints
        observed.refusals = self._log.refusals
        findings = run_checks(observed, now=self._env.wall())
        error = observed.card_error or observed.error
        if error is not None:
            self._client.redact(error)
        elif self._is_late:
            error = DeadlineExceededError(
                f"the examination took longer than {self._timeout:g} s",
                deadline="call",
                timeout=self._timeout,
                executed=None if self._sent_ids else False,
            )
        card = self.card
        return Diagnosis(
            agent=observed.agent,
            name="" if card is None else card.name,
            findings=findings,
            message_ids=tuple(self._sent_ids),
            stopped=observed.stopped,
            error=error,
        ).hiding(lambda text: self._client.redacted(_shortened(text)))

    async def _run(self) -> None:
        await self._find_card()
        await self._inspect_tls()
        card = self._observed.card
        if card is None:
            return
        try:
            self._on_card(card.card)
        except A2AError as error:
            self._observed.error = error
        probes = await self._probe_interfaces(card)
        await self._probe_message(card.card, probes)

    # ── The card ─────────────────────────────────────────────────────────────────────────────

    async def _find_card(self) -> None:
        observed, client = self._observed, self._client
        refusals_before = self._log.unauthorized
        is_file = isinstance(self._agent, Path)
        try:
            if isinstance(self._agent, Path):
                fetched = await asyncio.to_thread(client.read_card, self._agent)
            else:
                fetched = await client.fetch_card(self._agent, timeout=self._timeout)
        except A2AError as error:
            client.redact(error)
            error.attempts, error.retry_stopped_reason = (), None  # one attempt is intended
            observed.card_error = error
            return
        observed.scope = fetched.scope
        requires_credentials = self._log.unauthorized > refusals_before
        observed.card = CardFacts(
            card=fetched.card,
            document=fetched.document,
            url=fetched.url,
            moved_to=fetched.moved_to,
            is_fetched=not is_file,
            is_at_legacy_path=fetched.is_at_legacy_path,
            headers=fetched.headers,
            is_revalidated=await client.is_unchanged(fetched),
            requires_credentials=requires_credentials,
            verification=await client.verify_card(self._verifier, fetched.card, fetched.document),
        )

    async def _inspect_tls(self) -> None:
        observed = self._observed
        if observed.scheme != "https":
            return
        if self._look_at_tls is None:
            observed.no_tls_reason = "the engine in use does not show it"
            return
        observed.tls = await self._look_at_tls(self._address, timeout=_TIMEOUTS.connect)
        if observed.tls is None:
            observed.no_tls_reason = "a proxy stands between"
        elif observed.tls.failure and observed.card is None:
            observed.tls = None  # the error of the card says the same
            observed.no_tls_reason = "no connection was established"

    # ── The interfaces ───────────────────────────────────────────────────────────────────────

    async def _probe_interfaces(self, card: CardFacts) -> list[InterfaceProbe]:
        observed, interfaces = self._observed, card.card.supported_interfaces
        is_trusted = partial(self._client.may_have_credentials, self._address or interfaces[0].url)
        observed.interfaces = [
            InterfaceFacts.of_interface(interface, number, self._address, is_trusted)
            for number, interface in enumerate(interfaces[:_MAX_LISTED], start=1)
        ]
        callable_facts = [
            facts
            for facts in observed.interfaces
            if facts.is_supported and facts.address_fault is None
        ]
        probes = [self._make_probe(facts, card.card) for facts in callable_facts[:_MAX_EXAMINED]]
        for probe in probes:
            await self._probe_interface(probe)
        reached = [probe for probe in probes if probe.facts.is_reached]
        first = next(iter(reached or probes), None)
        if first is not None and observed.error is None:
            observed.error = first.error
        return probes

    def _make_probe(self, facts: InterfaceFacts, card: AgentCard) -> InterfaceProbe:
        version = spoken_version(facts.interface.protocol_version) or PROTOCOL_VERSION
        endpoint = self._client.endpoint(_in_version(facts.interface, version))
        reach = None if facts.is_trusted else NetworkReach(inward=self._observed.scope)
        return InterfaceProbe(self._client, facts, endpoint, card, reach=reach)

    async def _probe_interface(self, probe: InterfaceProbe) -> None:
        """Send all probes to an interface, if it replies to the first one."""
        facts = probe.facts
        facts.is_examined = True
        await self._find_version(probe)
        task = facts.task
        if task is None or task.status is None:
            return
        if facts.unauthorized is None and self._observed.has_credentials and facts.is_trusted:
            facts.unauthorized = (await probe.probe_task(is_anonymous=True)).reply
        if not facts.is_usable:
            return
        await probe.probe_errors()
        await probe.probe_listing()
        await probe.probe_subscription()

    async def _find_version(self, probe: InterfaceProbe) -> None:
        """Probe one version, then the other, and keep the one that the agent speaks."""
        facts, first = probe.facts, probe.endpoint
        result = await probe.probe_task()
        facts.task, probe.error = result.reply, result.error
        if isinstance(result.error, AuthenticationError) and result.error.http_status is None:
            facts.credentials_error = result.reply.summary
            facts.task = facts.unauthorized = (await probe.probe_task(is_anonymous=True)).reply
        if result.error is not None:
            return
        other = OLDER_VERSION if first.version == PROTOCOL_VERSION else PROTOCOL_VERSION
        second = self._client.endpoint(_in_version(facts.interface, other))
        second_result = await probe.probe_task(second)
        facts.versions = {
            first.version: result.is_understood,
            other: second_result.is_understood,
        }
        if result.is_understood is False and second_result.is_understood:
            probe.endpoint, facts.task = second, second_result.reply
            facts.version = second.version

    # ── The message ──────────────────────────────────────────────────────────────────────────

    async def _probe_message(self, card: AgentCard, probes: list[InterfaceProbe]) -> None:
        if self._message is None:
            return
        observed = self._observed
        facts = observed.sending = SendingFacts(message_id=self._message.message_id)
        interface, facts.not_sent_reason = self._choose(card, probes)
        if interface is None:
            return
        facts.about = interface.facts.about
        probe = self._message_probe = MessageProbe(
            interface, self._message, facts, self._log, self._log.skew or 0.0
        )
        await probe.run(
            streams=bool(card.capabilities.streaming),
            watch=self._timeout * _WATCH_SHARE,
            twice=self._twice,
            on_send=self._record_send,
        )
        listing = interface.facts.listing
        if facts.task_id and listing is not None and listing.is_empty:
            await interface.probe_listing()  # it contains a task now

    def _record_send(self) -> None:
        message_id = "" if self._message is None else self._message.message_id
        self._sent_ids.append(message_id)
        self._on_send(message_id)

    def _choose(
        self, card: AgentCard, probes: list[InterfaceProbe]
    ) -> tuple[InterfaceProbe | None, str]:
        """Return the interface for the message; None and the reason if there is none."""
        usable = [probe for probe in probes if probe.facts.is_usable]
        if not usable:
            return None, "no interface answers as an agent does"
        allowed = [probe for probe in usable if self._version in {None, probe.endpoint.version}]
        if not allowed:
            spoken = usable[0].endpoint.version
            return None, f"the agent speaks {spoken}, but {self._version} was requested"
        offered = msgspec.structs.replace(
            card, supported_interfaces=tuple(probe.endpoint.interface for probe in allowed)
        )
        first = self._client.preferred_interface(offered, self._bindings)
        keys = [_key(interface) for interface in offered.supported_interfaces]
        return allowed[keys.index(_key(first))], ""


def _key(interface: AgentInterface) -> tuple[str | None, ...]:
    return interface.url, interface.protocol_binding, interface.protocol_version


def _in_version(interface: AgentInterface, version: str) -> AgentInterface:
    return msgspec.structs.replace(
        interface,
        url=interface.url.partition("#")[0],  # a fragment is not sent (RFC 9110, 7.1)
        protocol_binding=interface.protocol_binding.upper(),
        protocol_version=version,
        tenant=None if version == OLDER_VERSION else interface.tenant,
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT_CHARS else f"{text[: _MAX_TEXT_CHARS - 1]}…"
