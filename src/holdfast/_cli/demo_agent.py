"""The agent of ``demo-server``: its behaviour depends on the first word of a message, and faults.

The table of words is its help, and the skills on its card. Each new message meets the faults of
``--fault``, one after the other.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast._cli.demo_answers import answer_to
from holdfast._integrations.recognition import recognize
from holdfast._model import codec
from holdfast._model.operations import CARD_BINDING
from holdfast.testing import (
    Cut,
    Delay,
    Duplicate,
    Fail,
    FakeAgent,
    Garbage,
    Plan,
    Reset,
    Respond,
    Stall,
    Step,
    asks,
    bad_gateway,
    completes,
    crashes,
    fails,
    needs_auth,
    rate_limited,
    rejects,
    replies,
    streams,
    unavailable,
    works_forever,
)
from holdfast.types import AgentSkill, Artifact, Part, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast._server.host_check import HostRules
    from holdfast._testing.exchange import Exchange
    from holdfast._wire.http import HttpRequest
    from holdfast.testing import Fault, ReceivedMessage
    from holdfast.types import AgentCard, Message

__all__ = [
    "FAULTS",
    "SETS",
    "WORDS",
    "DemoAgent",
    "WrittenFault",
    "behaviour",
    "card_of",
    "faults_text",
    "help_text",
    "read_faults",
]

_MAX_REMEMBERED_MESSAGES = 1000
_MAX_KEPT_REQUESTS = 100


class DemoAgent(FakeAgent):
    """Behaves as the first word of a message demands.

    It keeps no tasks when it ends, and its ids differ each time: after a restart, no task has
    the id of an earlier one.

    Args:
        faults: The faults that each new message meets, one per request.
        log: Called with a line for each request.
        rules: Which hosts and origins requests may name; None for any.
    """

    def __init__(
        self,
        faults: Sequence[WrittenFault],
        *,
        log: Callable[[str], None],
        rules: HostRules | None = None,
    ) -> None:
        super().__init__(behaviour, card=card_of, id_suffix=f"-{secrets.token_hex(4)}")
        self._of_each = tuple(faults)
        self._pending_faults: deque[WrittenFault] = deque()
        self._messages: deque[str] = deque(maxlen=_MAX_REMEMBERED_MESSAGES)
        self._log = log
        self._rules = rules

    def exchange(self, request: HttpRequest) -> Exchange:
        """Handle a request."""
        if refusal := self._refusal(request):
            self._log(f"refused: {json.loads(refusal.body)['detail']}")
            exchange = super().exchange(request)
            exchange.fault = refusal
            return exchange
        recognized = recognize(request.method, request.url, request.body)
        message_id = _message_id(request.body)
        if message_id is not None and message_id not in self._messages:
            self._messages.append(message_id)
            self._pending_faults = deque(self._of_each)
        del self.received[:-_MAX_KEPT_REQUESTS]
        line = recognized.operation.name if recognized.is_known else "unknown operation"
        if self._pending_faults and recognized.binding != CARD_BINDING:
            fault = self._pending_faults.popleft()
            line = f"{line:<22} fault: {fault.name}"
            if fault.fault is not None:
                self.inject(fault.fault)
        self._log(line)
        return super().exchange(request)

    def _refusal(self, request: HttpRequest) -> Respond | None:
        """Return the refusal of a request that names another host, or comes from another page."""
        if self._rules is None:
            return None
        sources = (
            [request.headers[n]] if n in request.headers else [] for n in ("host", "origin")
        )
        refusal = self._rules.refusal(*sources)
        if refusal is None:
            return None
        status, reason = refusal
        body = json.dumps({"detail": reason}).encode()
        return Respond(status=status, headers={"content-type": "application/json"}, body=body)


def _message_id(body: bytes) -> str | None:
    """Return the id of the message of a request; None if it sends none."""
    try:
        document = codec.as_object(codec.parse(body)) if body else None
    except codec.MalformedError:
        return None
    params: Any = codec.as_object((document or {}).get("params")) or document or {}
    message = codec.as_object(params.get("message")) or {}
    message_id = message.get("messageId")
    return message_id if isinstance(message_id, str) else None


_WORD_INTERVAL_S = 0.3
"""Seconds between two words of a stream."""
_ANSWER_INTERVAL_S = 0.03
"""Seconds between two words of an answer."""

_SLOW_S = 10.0
_MAX_SLOW_S = 3600.0
_AUTHORIZED_AFTER_S = 10.0


class DemoCommand(NamedTuple):
    """A word that a message may begin with.

    Attributes:
        rest: What follows the word.
        does: What the agent does, in words.
        behaves: Does it.
    """

    rest: str
    does: str
    behaves: Callable[[str, ReceivedMessage], Plan | Message]


def _echo(text: str, turn: ReceivedMessage) -> Plan:
    """Return the text, and every file and object of the message."""
    other_parts = tuple(part for part in turn.message.parts if part.text is None)
    parts = (*((Part(text=text),) if text else ()), *other_parts)
    return completes(Artifact(artifact_id="artifact-1", parts=parts or (Part(text="nothing?"),)))


def _answer(text: str, turn: ReceivedMessage) -> Plan:
    """Answer word by word; return the files and objects of the message, if it has any."""
    if any(part.text is None for part in turn.message.parts):
        return _echo(text, turn)
    return streams(*re.findall(r"\S+\s*", answer_to(text)), every=_ANSWER_INTERVAL_S)


def _stream(text: str, _turn: ReceivedMessage) -> Plan:
    words = text.split() or ["one", "word", "after", "the", "other"]
    return streams(*(f"{word} " for word in words), every=_WORD_INTERVAL_S)


def _slow(text: str, _turn: ReceivedMessage) -> Plan:
    first, _, rest = text.partition(" ")
    try:
        seconds = float(first)
    except ValueError:
        seconds, rest = _SLOW_S, text
    if not 0 <= seconds <= _MAX_SLOW_S:
        return rejects(f"the seconds must be between 0 and {_MAX_SLOW_S:g}")
    quarters = [
        Step(state=TaskState.WORKING, after=seconds / 4 if percent else 0, says=f"{percent} %")
        for percent in (0, 25, 50, 75)
    ]
    final_step = completes(rest or f"That took {seconds:g} s.").steps[-1]
    last = msgspec.structs.replace(final_step, after=seconds / 4)
    return Plan((Step(state=TaskState.SUBMITTED), *quarters, last))


def _book(text: str, _turn: ReceivedMessage) -> Plan:
    return asks(f"When shall I book {text.rstrip('.') or 'it'}?")


def _auth(text: str, _turn: ReceivedMessage) -> Plan:
    prompt = text or f"Authorize me elsewhere; in {_AUTHORIZED_AFTER_S:g} s you will have done so."
    return needs_auth(prompt, cleared_after=_AUTHORIZED_AFTER_S)


def _file(text: str, _turn: ReceivedMessage) -> Plan:
    name = text or "hello.txt"
    part = Part(raw=f"This is {name}.\n".encode(), filename=name, media_type="text/plain")
    return completes(part)


def _data(text: str, _turn: ReceivedMessage) -> Plan:
    try:
        value = json.loads(text) if text else {"answer": 42}
    except (ValueError, RecursionError):
        return rejects("the text after the word data must be JSON")
    return completes(Part(data=value))


def _help(_text: str, _turn: ReceivedMessage) -> Plan:
    return completes(help_text())


def _forever(_text: str, _turn: ReceivedMessage) -> Plan:
    return works_forever()


def _says(
    make: Callable[[str], Plan | Message], otherwise: str
) -> Callable[[str, ReceivedMessage], Plan | Message]:
    """Return the behaviour of a word with the text after it, or else some other text."""

    def behaves(text: str, _turn: ReceivedMessage) -> Plan | Message:
        return make(text or otherwise)

    return behaves


_AS_ASKED = "as you asked"

WORDS: Mapping[str, DemoCommand] = {
    "echo": DemoCommand("TEXT", "repeats the text, and files and objects beside it", _echo),
    "stream": DemoCommand("TEXT", "repeats the text, one word every 0.3 s", _stream),
    "slow": DemoCommand("SECONDS TEXT", "takes that long, and reports its progress", _slow),
    "forever": DemoCommand("", "works until the task is cancelled", _forever),
    "ask": DemoCommand(
        "QUESTION", "asks for input (INPUT_REQUIRED)", _says(asks, "What is your name?")
    ),
    "book": DemoCommand("TEXT", "asks when to book it (INPUT_REQUIRED)", _book),
    "auth": DemoCommand(
        "", f"waits {_AUTHORIZED_AFTER_S:g} s for authorization (AUTH_REQUIRED)", _auth
    ),
    "fail": DemoCommand("REASON", "ends the task as failed", _says(fails, _AS_ASKED)),
    "reject": DemoCommand("REASON", "ends the task as rejected", _says(rejects, _AS_ASKED)),
    "crash": DemoCommand("REASON", "raises an exception in the agent", _says(crashes, _AS_ASKED)),
    "message": DemoCommand(
        "TEXT", "replies with a message, without a task", _says(replies, "Hello.")
    ),
    "file": DemoCommand("NAME", "sends a file", _file),
    "data": DemoCommand("JSON", "sends a JSON object", _data),
    "help": DemoCommand("", "lists these words", _help),
}


def behaviour(turn: ReceivedMessage) -> Plan | Message:
    """Behave as the first word of a message demands."""
    text = turn.message.text.strip()
    if turn.task is not None:  # the answer to a question of the task
        return completes(f"You said: {text}" if text else "You said nothing.")
    first, _, rest = text.partition(" ")
    word = WORDS.get(first.lower())
    return _answer(text, turn) if word is None else word.behaves(rest.strip(), turn)


def help_text() -> str:
    """Return the words, a line for each."""
    return "\n".join(f"{f'{name} {word.rest}':<20} {word.does}" for name, word in WORDS.items())


def card_of(card: AgentCard) -> AgentCard:
    """Return the demo agent's card.

    Args:
        card: The card of a fake agent, with its addresses and capabilities.
    """
    skills = tuple(
        AgentSkill(
            id=name,
            name=name.capitalize(),
            description=f"A message that begins with {name!r}: {word.does}.",
            tags=("demo",),
            examples=(f"{name} {word.rest}".strip(),),
        )
        for name, word in WORDS.items()
    )
    return msgspec.structs.replace(
        card,
        name="Holdfast demo agent",
        description="Answers a few questions, and fails on request: 'help' lists the words.",
        default_input_modes=("text/plain", "application/json", "application/octet-stream"),
        default_output_modes=("text/plain", "application/json"),
        capabilities=msgspec.structs.replace(card.capabilities, push_notifications=False),
        skills=skills,
    )


# ── Faults ───────────────────────────────────────────────────────────────────────────────────


_MAX_FAULTS = 1000
_MAX_SECONDS = 3600


class WrittenFault(NamedTuple):
    """A fault that one request meets.

    Attributes:
        name: The fault, as written.
        fault: The fault; None for none.
    """

    name: str
    fault: Fault | None


class Kind(NamedTuple):
    """A named fault.

    Attributes:
        what: A description.
        make: Makes the fault from its number.
        number: The meaning of the number, and its default; None for a fault without a number.
        lowest: The minimum of the number.
    """

    what: str
    make: Callable[[int], Fault | None]
    number: tuple[str, int] | None = None
    lowest: int = 0


def _always(fault: Fault | None) -> Callable[[int], Fault | None]:
    """Return a maker of a fault that has no number."""

    def make(_number: int) -> Fault | None:
        return fault

    return make


def _error(code: int) -> Fault:
    return Fail(code=-abs(code))  # with or without its sign


def _cut(events: int) -> Fault:
    return Cut(after_events=events)


def _end(events: int) -> Fault:
    return Cut(after_events=events, clean=True)


def _stall(events: int) -> Fault:
    return Stall(phase="idle", after_events=events)


def _twice(event: int) -> Fault:
    return Duplicate(event=event)


def _delay(seconds: int) -> Fault:
    return Delay(seconds=seconds)


_SECONDS, _EVENTS = "SECONDS", "EVENTS"
_LOST = Reset(after_execution=True)

FAULTS: Mapping[str, Kind] = {
    "ok": Kind("no fault: the request succeeds", _always(None)),
    "rate-limit": Kind("429 with Retry-After", rate_limited, (_SECONDS, 1)),
    "unavailable": Kind("503 with Retry-After", unavailable, (_SECONDS, 1)),
    "bad-gateway": Kind("502 with the page of a proxy", _always(bad_gateway())),
    "error": Kind("an error reply with this code", _error, ("-CODE", -32603), -99_999),
    "reset": Kind("connection reset before the message is executed", _always(Reset())),
    "lost": Kind("connection reset after the message is executed", _always(_LOST)),
    "cut": Kind("the stream is cut after some events", _cut, (_EVENTS, 2)),
    "end": Kind("the stream ends too early, without an error", _end, (_EVENTS, 2)),
    "stall": Kind("the stream stays open, and no more events arrive", _stall, (_EVENTS, 2)),
    "twice": Kind("an event of the stream is repeated", _twice, ("EVENT", 2), 1),
    "delay": Kind("the reply is late", _delay, (_SECONDS, 3)),
    "garbage": Kind("bytes that are not HTTP", _always(Garbage())),
}

SETS: Mapping[str, str] = {
    "bad-day": "rate-limit,cut:3,bad-gateway,reset,end:1",
    "overload": "2xrate-limit,unavailable:2",
    "bad-network": "cut:2,2xreset,delay:1",
}


def read_faults(text: str) -> tuple[WrittenFault, ...]:
    """Parse faults.

    Raises:
        ValueError: The text is invalid; the message names the wrong part and the valid faults.
    """
    faults: list[WrittenFault] = []
    for name in filter(None, (word.strip() for word in text.split(","))):
        faults += read_faults(SETS[name]) if name in SETS else _read(name)
    if len(faults) > _MAX_FAULTS:
        message = f"at most {_MAX_FAULTS} faults are allowed ({len(faults)} given)"
        raise ValueError(message)
    return tuple(faults)


_WRITTEN = re.compile(r"(?:(?P<times>\d{1,4})x)?(?P<name>[a-z-]+)(?::(?P<number>-?\d{1,9}))?")


def _read(text: str) -> list[WrittenFault]:
    match = _WRITTEN.fullmatch(text)
    kind = None if match is None else FAULTS.get(match["name"])
    if match is None or kind is None:
        names = ", ".join([*FAULTS, *SETS])
        message = f"{text!r} is not a fault; faults are {names}, as in cut:3 or 2xreset"
        raise ValueError(message)
    number = match["number"]
    if number is not None and kind.number is None:
        message = f"{match['name']} takes no number"
        raise ValueError(message)
    value = int(number) if number is not None else (kind.number or ("", 0))[1]
    if value < kind.lowest or (_SECONDS in (kind.number or ()) and value > _MAX_SECONDS):
        maximum = f" and {_MAX_SECONDS}" if _SECONDS in (kind.number or ()) else ""
        range_text = f"{'between' if maximum else 'at least'} {kind.lowest}"
        message = f"{text!r}: the number must be {range_text}{maximum}"
        raise ValueError(message)
    name = match["name"] if number is None else f"{match['name']}:{number}"
    return [WrittenFault(name, kind.make(value))] * int(match["times"] or 1)


def faults_text() -> str:
    """Return the faults and the sets, a line for each."""
    lines = [(_shown(name, kind), kind.what) for name, kind in FAULTS.items()]
    lines += SETS.items()
    return "\n".join(f"{name:<23} {description}" for name, description in lines)


def _shown(name: str, kind: Kind) -> str:
    if kind.number is None:
        return name
    meaning, otherwise = kind.number
    return f"{name}:{meaning} ({otherwise})"
