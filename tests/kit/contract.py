"""The agents of the contract suite, and the cases that do not apply to some of them.

A case is a coroutine test decorated with `contract`. It gets an `agent` for each target: a kind of
agent, a protocol version and a binding. `EXCEPTIONS` says which cases do not apply to which
targets, and why; ``tests/contract/test_exceptions.py`` keeps that table true.

Every agent does what the first word of a message says, as ``tests/agents/sdk_agent.py`` does:
``fake`` is a `FakeAgent` behind a `LoopbackServer`, ``server`` is an `A2AServer`, both in the
process of the test; ``sdk`` is a process on the official SDK of that protocol version, which all
tests share.
"""

import asyncio
import contextlib
import fnmatch
import json
import zlib
from collections import defaultdict
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from tests.kit.effort import THOROUGH
from tests.kit.real_agents import LIMIT

from holdfast import AgentCard, Part, Role, connect
from holdfast.extend import AiohttpEngine, HttpRequest
from holdfast.server import A2AServer, Executor, fail, reject, requires_auth, requires_input
from holdfast.testing import (
    FakeAgent,
    LoopbackServer,
    asks,
    completes,
    crashes,
    fails,
    needs_auth,
    rejects,
    replies,
    streams,
)
from holdfast.types import AgentSkill, Artifact

__all__ = [
    "EXCEPTIONS",
    "FILE",
    "SOON",
    "TARGETS",
    "Target",
    "agent_for",
    "chosen",
    "completed",
    "contract",
    "get_json",
    "open_engine",
    "shape",
]

FILE = bytes(range(256))
FILE_TYPE = "application/octet-stream"
SOON = {"poll_interval": 0.02}


@dataclass(frozen=True)
class Target:
    """A kind of agent, in a protocol version, over a binding."""

    kind: str
    version: str
    binding: str

    def __str__(self):
        return f"{self.kind}-{self.version}-{self.binding}"


HTTP = ("JSONRPC", "HTTP+JSON")
TARGETS = [
    Target(kind, version, binding)
    for version in ("1.0", "0.3")
    for kind, bindings in (
        ("fake", HTTP),
        ("server", (*HTTP, "GRPC")),
        ("sdk", (*HTTP, "GRPC")),
    )
    for binding in bindings
]

_RAW = {
    "*-0.3-*": "it reads raw replies, in the form of 1.0",
    "*-GRPC": "it reads raw replies, which are JSON",
}
_LOSES_MESSAGES = "the server loses or refuses a message that arrives while a run of it ends"

_NO_LIST = {"*-0.3-*": "protocol 0.3 has no list of tasks"}
_IN_STREAM = (
    "the SDK's routes raise the refusal inside the stream, after its head, and the client gets an "
    "internal error"
)
_NO_PUSH_LIST = "protocol 0.3 does not ask for this list, and the server has none"
_NO_END = "the server leaves a stream that it refuses open"
_STAYS = "a task whose executor raises keeps its state on this server"

EXCEPTIONS = {
    "test_reply_to_a_question_never_returns_the_question": {"sdk-0.3-*": _LOSES_MESSAGES},
    "test_reply_to_an_authorization_request_continues_its_task": {"sdk-0.3-*": _LOSES_MESSAGES},
    "test_s16_wait_notices_an_authorization_that_was_given_meanwhile": {
        "sdk-0.3-*": _LOSES_MESSAGES
    },
    "test_status_of_a_task_names_its_time": {
        "sdk-0.3-HTTP+JSON": "the server leaves the time out",
        "sdk-0.3-GRPC": "the server leaves the time out",
    },
    "test_stream_sends_the_same_raw_events": _RAW,
    "test_events_of_a_stream_fold_to_the_agents_own_task": _RAW,
    "test_subscription_to_a_finished_or_unknown_task_is_refused": _RAW,
    "test_subscription_begins_with_the_task_in_its_current_state": _RAW,
    "test_s03_stream_that_is_cut_is_resumed": {
        "*-GRPC": "the proxy cuts chunked HTTP; e2e/test_grpc.py cuts gRPC",
    },
    "test_s04_subscription_to_a_finished_task_yields_the_whole_task": {
        "server-0.3-HTTP+JSON": _IN_STREAM,
    },
    "test_an_error_that_refuses_a_stream_names_the_task": {"server-0.3-HTTP+JSON": _IN_STREAM},
    "test_operation_that_an_older_agent_lacks_is_unsupported": {
        "*-1.0-*": "it is not older",
        "server-0.3-HTTP+JSON": "the SDK has the path in 1.0 only, and refuses the version",
    },
    "test_tasks_are_listed_by_context_page_by_page": _NO_LIST,
    "test_history_of_length_zero_is_empty": {
        "*-0.3-*": "a length of 0 means no limit to servers of 0.3",
    },
    "test_card_names_the_interfaces_in_order": {
        "server-*": "its addresses are the program's choice; server/test_cards.py covers them",
        "*-HTTP+JSON": "the card is the same for every binding",
        "*-GRPC": "the card is the same for every binding",
    },
    "test_extended_card_replaces_the_public_one": {
        "sdk-0.3-GRPC": "the server returns the public card",
    },
    "test_client_factory_follows_its_configuration": {
        "*-GRPC": "its interfaces are compared with an HTTP card",
        "*-0.3-*": "the factory of the SDK speaks 1.0",
    },
    "test_s05_lost_reply_leaves_one_execution_which_is_found": {
        "*-GRPC": "the proxy loses HTTP replies; e2e/test_grpc.py loses those of gRPC",
        "*-0.3-*": "protocol 0.3 has no list of tasks, so that a lost reply cannot be found",
    },
    "test_push_configurations_are_created_listed_and_deleted": {
        "server-0.3-HTTP+JSON": "the SDK has the path in 1.0 only, and refuses the version",
        "sdk-0.3-JSONRPC": "the server returns the configuration after it was deleted",
        "sdk-0.3-HTTP+JSON": _NO_PUSH_LIST,
        "sdk-0.3-GRPC": _NO_PUSH_LIST,
    },
    "test_push_configurations_of_an_unknown_task_are_not_found": {
        "fake-0.3-HTTP+JSON": "HTTP 404 may as well mean that there is no such list in 0.3",
        "server-0.3-HTTP+JSON": "HTTP 404 may as well mean that there is no such list in 0.3",
        "sdk-0.3-HTTP+JSON": _NO_PUSH_LIST,
        "sdk-0.3-GRPC": _NO_PUSH_LIST,
    },
    "test_task_id_with_a_slash_is_unknown_where_the_router_keeps_it": {
        "*-0.3-GRPC": "names of 0.3 are paths, in which an id has no slash",
    },
    "test_ask_raises_if_its_task_was_canceled_meanwhile": _NO_LIST,
    "test_send_message_blocking_returns_a_task_that_was_canceled_meanwhile": _NO_LIST,
    "test_message_to_a_finished_task_is_an_unsupported_operation": {
        "sdk-0.3-JSONRPC": "the server answers with invalid params",
        "sdk-0.3-HTTP+JSON": _NO_END,
        "sdk-0.3-GRPC": "the server answers with invalid params",
        "server-0.3-HTTP+JSON": _IN_STREAM,
    },
    "test_ask_about_an_unknown_task_is_not_found": {
        "sdk-0.3-HTTP+JSON": _NO_END,
        "server-0.3-HTTP+JSON": _IN_STREAM,
    },
    "test_task_of_a_crashing_agent_is_stored_as_failed": {"sdk-0.3-*": _STAYS},
    "test_ask_of_a_crashing_agent_fails_after_one_execution": {"sdk-0.3-*": _STAYS},
    "test_unsupported_version_is_refused_before_anything_runs": {
        "*-GRPC": "it changes an HTTP header",
        "*-0.3-*": "it speaks the version of the agent",
    },
    "test_send_message_to_a_crashing_agent_is_an_internal_error_after_one_execution": {
        "server-*": "`A2AServer` ends the task as FAILED, and returns it",
    },
}
"""For each case: patterns of the targets to which it does not apply, and the reason."""


def contract(case):
    """Run a case against the targets to which it applies."""
    return pytest.mark.parametrize("agent", chosen(case.__name__), ids=str, indirect=True)(case)


def chosen(case):
    """Return the targets of a case: all to which it applies, where there is time.

    Else each kind of agent over each of its bindings, in one version: the cases take turns.
    """
    excluded = EXCEPTIONS.get(case, {})
    versions = defaultdict(list)
    for target in TARGETS:
        if not any(fnmatch.fnmatchcase(str(target), pattern) for pattern in excluded):
            versions[target.kind, target.binding].append(target)
    if THOROUGH:
        return [target for targets in versions.values() for target in targets]
    turn = zlib.crc32(case.encode())
    return [
        targets[(turn + place) % len(targets)] for place, targets in enumerate(versions.values())
    ]


# ── Agents ───────────────────────────────────────────────────────────────────────────────────


class Agent:
    """An agent under test; it is served inside ``async with``.

    Attributes:
        kind: ``fake``, ``server`` or ``sdk``.
        version: The protocol version.
        binding: The binding over which `client` calls it.
        url: Its address.
    """

    def __init__(self, target):
        self.kind, self.version, self.binding = target.kind, target.version, target.binding
        self.token = None
        self.url = ""

    async def __aenter__(self):
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(asyncio.timeout(LIMIT))
            await self._serve(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *failure):
        return await self._stack.__aexit__(*failure)

    def client(self, **options):
        """Return a client that calls the agent over its binding."""
        return connect(self.url, bindings=[self.binding], **options)

    @property
    def origin(self):
        """Its address without a path."""
        return "http://" + urlsplit(self.url).netloc

    def is_sdk(self, version, binding):
        """Return whether it is an agent of the official SDK with this version and binding."""
        return (self.kind, self.version, self.binding) == ("sdk", version, binding)

    async def path(self):
        """Return the path of its interface, without a slash at the end."""
        async with self.client() as client:
            card = await client.agent_card()
        (interface,) = [i for i in card.supported_interfaces if i.protocol_binding == self.binding]
        return urlsplit(interface.url).path.rstrip("/")


class _Fake(Agent):
    async def _serve(self, stack):
        self._fake = FakeAgent(_plan, versions=(self.version,), token=self.token)
        self.url = (await stack.enter_async_context(LoopbackServer(self._fake))).url

    async def executions(self):
        """Return the tasks or replies that each message created."""
        return self._fake.executions

    async def requests(self):
        """Return path and ``A2A-Version`` of every request."""
        return [
            (urlsplit(received.url).path, received.headers.get("a2a-version"))
            for received in self._fake.received
        ]

    async def permit(self, name, count):
        """Let a ``paced`` answer go on by so many chunks; the fake agent has its own pace."""


class _Served(Agent):
    async def _serve(self, stack):
        self._executions = defaultdict(list)
        self._permits = defaultdict(lambda: asyncio.Semaphore(0))
        self._requests = []
        card = AgentCard(name="Served agent", skills=(_skill("script"),))
        extended = AgentCard(
            name="Served agent, extended", skills=(_skill("script"), _skill("secret"))
        )
        server = A2AServer(
            _Script(self._executions, self._permits),
            card=card,
            extended_card=extended,
            push=True,
            push_url_validator=_allow,
            versions=(self.version,),
            authenticate=self._authenticate,
            middleware=[self._recording],
        )
        bindings = ("GRPC",) if self.binding == "GRPC" else HTTP
        self.url = (await stack.enter_async_context(server.serving(bindings=bindings))).url

    async def _authenticate(self, headers):
        if self.binding == "GRPC":
            self._requests.append((None, headers.get("a2a-version")))
        accepted = self.token is None or headers.get("authorization") == f"Bearer {self.token}"
        return "somebody" if accepted else None

    def _recording(self, app):
        async def recording(scope, receive, send):
            if scope["type"] == "http":
                version = dict(scope["headers"]).get(b"a2a-version")
                self._requests.append((scope["path"], version and version.decode()))
            await app(scope, receive, send)

        return recording

    async def executions(self):
        return dict(self._executions)

    async def requests(self):
        return list(self._requests)

    async def permit(self, name, count):
        for _ in range(count):
            self._permits[name].release()


class _Sdk(Agent):
    def __init__(self, target, urls):
        super().__init__(target)
        self._urls = urls

    async def _serve(self, stack):
        self.url = self._urls(self.token)

    async def executions(self):
        return await get_json(f"{self.url}/executions")

    async def requests(self):
        seen = await get_json(f"{self.url}/requests")
        return [(request["path"], request["a2a-version"]) for request in seen]

    async def permit(self, name, count):
        await get_json(f"{self.url}/permits?name={name}&count={count}")


@contextlib.asynccontextmanager
async def open_engine(kind=AiohttpEngine, **options):
    """Give an engine, and close it."""
    engine = kind(proxies=False, **options)
    try:
        yield engine
    finally:
        await engine.close()


def agent_for(target, fixture):
    """Return the agent of a target, which is not served yet.

    Args:
        target: The target.
        fixture: Returns a fixture by its name.
    """
    match target.kind:
        case "fake":
            return _Fake(target)
        case "server":
            return _Served(target)
    name = "sdk_url" if target.version == "1.0" else "sdk03_url"
    return _Sdk(target, lambda token: fixture(name if token is None else f"guarded_{name}"))


async def get_json(url):
    """Return the document at an address that is no part of A2A."""
    async with open_engine() as engine:
        reply = await engine.request(HttpRequest(method="GET", url=url))
    return json.loads(reply.body)


def _skill(name):
    return AgentSkill(id=name, name=name, description=name, tags=("test",))


async def _allow(_url):
    return True


# ── What the agents of this process do ───────────────────────────────────────────────────────


def _chunks(count, **options):
    return streams(*(f"chunk {number}\n" for number in range(1, count + 1)), **options)


_PLANS = {
    "echo": completes,
    "message": replies,
    "fail": fails,
    "reject": rejects,
    "ask": asks,
    "auth": needs_auth,
    "slow": lambda rest: completes(rest.partition(" ")[2], after=_seconds(rest), works=0),
    "data": lambda rest: completes(Part(data=json.loads(rest))),
    "file": lambda rest: completes(Part(raw=FILE, filename=rest, media_type=FILE_TYPE)),
    "chunks": lambda rest: _chunks(int(rest)),
    "paced": lambda rest: _chunks(int(rest.split()[1]), every=0.02),
    "crash": lambda _rest: crashes("crashed as asked"),
}


def _seconds(rest):
    return float(rest.partition(" ")[0])


def _plan(turn):
    """Plan the fake agent's answer to a message."""
    text = turn.message.text
    word, _, rest = text.partition(" ")
    if turn.task is None and word == "back":
        return completes(Artifact(artifact_id="back", parts=turn.message.parts[1:]))
    if turn.task is not None or word not in _PLANS:
        return completes(text)
    return _PLANS[word](rest)


class _Script(Executor):
    """Answers as the agents on the official SDK do."""

    def __init__(self, executions, permits):
        self._executions, self._permits = executions, permits

    async def execute(self, turn):
        self._executions[turn.message.message_id].append(turn.task_id)
        text = turn.text
        word, _, rest = text.partition(" ")
        if turn.task is not None:
            word, rest = "echo", text
        match word:
            case "message":
                await turn.reply(rest)
                return
            case "reject":
                raise reject(rest)
        await turn.working()
        match word:
            case "fail":
                raise fail(rest)
            case "ask":
                raise requires_input(rest)
            case "auth":
                raise requires_auth(rest)
            case "crash":
                raise RuntimeError("crashed as asked")
            case "chunks" | "paced":
                await self._stream(turn, word, rest)
            case _:
                await turn.artifact(await self._result(turn, word, rest, text))
        await turn.complete()

    async def _result(self, turn, word, rest, text):
        match word:
            case "slow":
                await asyncio.sleep(_seconds(rest))
                return rest.partition(" ")[2]
            case "data":
                return Part(data=json.loads(rest))
            case "file":
                return Part(raw=FILE, filename=rest, media_type=FILE_TYPE)
            case "back":
                return turn.message.parts[1:]
            case "echo":
                return rest
        return text

    async def _stream(self, turn, word, rest):
        name, _, count = rest.rpartition(" ")
        for number in range(1, int(count) + 1):
            if word == "paced":
                await self._permits[name].acquire()
            await turn.artifact(
                Artifact(artifact_id="chunked", parts=(Part(text=f"chunk {number}\n"),)),
                append=number > 1,
                last_chunk=number == int(count),
            )


# ── What a case expects ──────────────────────────────────────────────────────────────────────


def shape(task):
    """Return what a task says, without its ids and times."""
    status = task.status.message
    return {
        "ids": bool(task.id and task.context_id),
        "state": task.state.name,
        "status": None
        if status is None
        else (status.role, status.text, status.task_id == task.id),
        "artifacts": [
            [(part.text, part.raw, part.filename or None) for part in artifact.parts]
            for artifact in task.artifacts
        ],
        "history": [
            (message.role, message.text, message.task_id == task.id, bool(message.message_id))
            for message in task.history
        ],
    }


def completed(text, *sent):
    """Return the shape of a completed task with one artifact of text."""
    return {
        "ids": True,
        "state": "COMPLETED",
        "status": None,
        "artifacts": [[(text, None, None)]],
        "history": [(Role.USER, words, True, True) for words in sent],
    }
