"""The pages for users of other libraries, docs/howto/from-*.md and scripts.md, and what runs them.

A page is cut at its headings. A `Guide` has some of these parts, and a check for each block and
each row in them; a test file owns one guide. `tests/docs/test_coming_from.py` checks that the
guides leave out nothing of the pages.

A row is run by what its second column says: every piece of code there, from left to right.
"""

import ast
import asyncio
import functools
import inspect
import logging
import re
from typing import NamedTuple

import aiohttp
import httpx
import pytest
from tests.kit.pages import Page, execute

import holdfast
import holdfast.integrations.httpx as holdfast_httpx
import holdfast.sync
from holdfast.integrations import a2a_sdk
from holdfast.server import ProtocolErrors
from holdfast.testing import (
    Fail,
    FakeAgent,
    FakeNetwork,
    Garbage,
    Refuse,
    bad_gateway,
    works_forever,
)

__all__ = [
    "ASYNC_CLIENT",
    "CARRYING",
    "HERE",
    "OFF",
    "REAL",
    "WORKING",
    "Counting",
    "Guide",
    "Pages",
    "Row",
    "Written",
    "a_client_has_a_timeout",
    "a_client_is_closed",
    "a_client_is_made_of_an_address",
    "called",
    "card_of",
    "failing",
    "one_error_is_above_all",
    "parts_of",
]

HERE = "http://localhost:9999"

WORKING = holdfast.types.TaskStatus(state=holdfast.TaskState.WORKING)
OFF = holdfast.Resilience.off()


# ── What is on a page ────────────────────────────────────────────────────────────────────────


def parts_of(page):
    """What stands below each heading of a page, up to the next one."""
    sections = re.split(r"^#+ ", page.text, flags=re.MULTILINE)[1:]
    return {
        heading: body for heading, _, body in (section.partition("\n") for section in sections)
    }


class Row(NamedTuple):
    """One row of a table: what was written, and what is now."""

    wrote: str
    now: str

    @property
    def code(self):
        """Everything in the second column that is code."""
        return re.findall(r"`([^`]+)`", self.now)


def _rows_in(text):
    """The rows of all tables."""
    for line in re.findall(r"^\|(.*)\|$", text, flags=re.MULTILINE):
        if not set(line) <= set("|- "):
            wrote, now = (cell.strip() for cell in line.split(" | "))
            if wrote != "you wrote":
                yield Row(wrote, now)


class Guide:
    """Sections of a page that belong together, and what checks them.

    Args:
        name: The page's file below docs/howto/, without its suffix.
        headings: The headings of the sections; default: all headings of the page.

    Attributes:
        parts: The text below each of the headings.
        rows: The rows of its tables.
        blocks: Its blocks of code.
    """

    def __init__(self, name, *headings):
        self.page = Page(f"docs/howto/{name}.md")
        every = parts_of(self.page)
        self.parts = {heading: every[heading] for heading in headings or every}
        self.rows = [row for body in self.parts.values() for row in _rows_in(body)]
        self.blocks = [
            code
            for body in self.parts.values()
            for code in re.findall(r"```python\n(.*?)```", body, flags=re.DOTALL)
        ]
        self._row_checks, self._block_checks, self._row_marks = {}, {}, {}

    def row(self, *wrote, marks=()):
        """Says which rows a function checks."""

        def register(check):
            for each in wrote:
                assert each not in self._row_checks, each
                self._row_checks[each] = check
                self._row_marks[each] = marks
            return check

        return register

    def block(self, text, *, marks=()):
        """Says which block a function checks: the one that has a text in it."""

        def register(check):
            assert text not in self._block_checks, text
            self._block_checks[text] = check, marks
            return check

        return register

    @property
    def each_row(self):
        """Has a test run for each row."""
        params = [
            pytest.param(row, id=row.wrote, marks=self._row_marks.get(row.wrote, ()))
            for row in self.rows
        ]
        return pytest.mark.parametrize("row", params)

    @property
    def each_block(self):
        """Has a test run for each block, by what tells it from the others."""
        params = [
            pytest.param(text, marks=marks) for text, (_, marks) in self._block_checks.items()
        ]
        return pytest.mark.parametrize("text", params)

    async def run_row(self, row, monkeypatch):
        """Runs all that a row says."""
        written = Written(row)
        await self._row_checks[row.wrote](written, World(monkeypatch))
        assert written.left == []

    async def run_block(self, text, monkeypatch):
        """Runs a block as it stands."""
        (code,) = (each for each in self.blocks if text in each)
        world, runs = World(monkeypatch), []

        async def written(**names):
            runs.append(code)
            return await execute(code, print=world.print, **names)

        def elsewhere():
            """The block, for a check that runs it in another process."""
            runs.append(code)
            return code

        written.elsewhere = elsewhere
        check, _ = self._block_checks[text]
        await check(written, world)
        assert runs

    def check_complete(self):
        """Every row and every block has a check, and every check has one of them."""
        named = [row.wrote for row in self.rows]
        assert len(named) == len(set(named))
        assert set(named) == set(self._row_checks)
        assert all(row.code for row in self.rows)
        assert len(self.blocks) == len(self._block_checks)
        for code in self.blocks:
            assert len([text for text in self._block_checks if text in code]) == 1, code


# ── What runs it ─────────────────────────────────────────────────────────────────────────────


class _Entered(FakeNetwork):
    """A network that can be entered, as an engine can, and counts how often it is closed."""

    closed = 0

    async def close(self):
        self.closed += 1

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()


class World:
    """Lets what a page calls be fake agents.

    Attributes:
        printed: What was printed, a tuple for each time.
    """

    def __init__(self, monkeypatch):
        self._patch = monkeypatch
        self.printed = []

    def reach(self, *agents):
        """Makes agents reachable, and nobody else."""
        network = _Entered(*agents)
        create = CREATE
        for owner, name in HOMES:
            made = functools.partial(REAL[name], engine=network)
            self._patch.setattr(owner, name, made)

        def created(factory, agent, *arguments, **options):
            return create(factory, agent, *arguments, **{"engine": network, **options})

        self._patch.setattr(holdfast.compat.ClientFactory, "create", created)
        self._patch.setattr(holdfast, "AiohttpEngine", lambda: network)
        factory = functools.partial(CLIENT_FACTORY, engine=network)
        self._patch.setattr(a2a_sdk, "client_factory", factory)
        carrying = functools.partial(CARRYING, engine=network)
        self._patch.setattr(holdfast_httpx, "Transport", carrying)
        for name in ("connect", "ask", "Coordinator"):
            made = functools.partial(BLOCKING[name], engine=network)
            self._patch.setattr(holdfast.sync, name, made)
        bare = functools.partial(carrying, resilience=holdfast.Resilience.off())

        class InProcess(ASYNC_CLIENT):
            """Stands for the clients that open sockets."""

            def __init__(self, *, transport=None, **options):
                super().__init__(transport=transport or bare(), **options)

        self._patch.setattr(httpx, "AsyncClient", InProcess)
        return network

    def put(self, module, **values):
        """Puts values in the place of names of a module."""
        for name, value in values.items():
            self._patch.setattr(module, name, value)

    async def usual(self, behaviour="384,400 km", **options):
        """A client and its agent, and what else the page gives a name."""
        fake = FakeAgent(behaviour, url=HERE, **options)
        engine = self.reach(fake)
        agent = holdfast.connect(HERE)
        task = await agent.send_message("hello", return_immediately=True)
        card = await agent.agent_card()
        fake.received.clear()
        return fake, {"agent": agent, "task": task, "card": card, "engine": engine}

    def print(self, *words):
        """Stands for the built-in."""
        self.printed.append(words)


HOMES = (
    (holdfast, "connect"),
    (holdfast, "Coordinator"),
    (holdfast.compat, "A2ACardResolver"),
)
REAL = {name: getattr(owner, name) for owner, name in HOMES}
BLOCKING = {name: getattr(holdfast.sync, name) for name in ("connect", "ask", "Coordinator")}
CREATE = holdfast.compat.ClientFactory.create
CLIENT_FACTORY = a2a_sdk.client_factory
CARRYING = holdfast_httpx.Transport
ASYNC_CLIENT = httpx.AsyncClient


class Written:
    """What a row says is written now: each call runs the next piece of it."""

    def __init__(self, row):
        self.wrote, self.left = row.wrote, row.code

    async def __call__(self, **names):
        known = {
            "holdfast": holdfast,
            "aiohttp": aiohttp,
            "logging": logging,
            "ProtocolErrors": ProtocolErrors,
            "httpx": httpx,
            **{name: getattr(a2a_sdk, name) for name in a2a_sdk.__all__},
            **names,
        }
        code = compile(self.left.pop(0), "<row>", "eval", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        value = eval(code, known)
        return await value if inspect.iscoroutine(value) else value


async def failing(fault, world, *, resilience=OFF, **options):
    """What a read raises that fails in this way."""
    fake = FakeAgent(url=HERE)
    world.reach(fake)
    client = holdfast.connect(HERE, resilience=resilience)
    await client.agent_card()
    fake.inject(fault, times=9)
    with pytest.raises(holdfast.A2AError) as caught:
        await client.get_task("task-1", **options)
    return caught.value


def called(fake):
    """The operations that reached an agent, but for its card."""
    return [each.operation for each in fake.received if each.operation != "GetAgentCard"]


class Pages(FakeNetwork):
    """A network of pages."""

    def __init__(self, pages):
        super().__init__()
        self.pages, self.requests = pages, []
        self.takes = 0

    async def request(self, request):
        """A page; 404 where there is none."""
        self.requests.append(request)
        await asyncio.sleep(self.takes)
        body = self.pages.get(request.url)
        return holdfast.extend.HttpReply(status=404 if body is None else 200, body=body or b"")


def card_of(name):
    """A card with one interface."""
    interface = holdfast.types.AgentInterface(
        url=f"{HERE}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
    )
    return holdfast.AgentCard(name=name, supported_interfaces=(interface,))


class Counting(holdfast.extend.Interceptor):
    """Counts what it is asked about."""

    def __init__(self):
        self.seen = []

    async def after(self, call, outcome):
        """What came of a call."""
        self.seen.append((call.operation.name, outcome))
        return outcome


# ── What several guides say ──────────────────────────────────────────────────────────────────


async def one_error_is_above_all(written, world):
    above = await written()
    for fault in (Refuse(), bad_gateway(), Garbage(), Fail(code=-32001), Fail(code=-32050)):
        assert isinstance(await failing(fault, world), above)


async def a_client_is_closed(written, world):
    _, names = await world.usual()
    await written(**names)
    with pytest.raises(RuntimeError, match="closed"):
        await names["agent"].ask("hello")


async def a_client_is_made_of_an_address(written, world):
    await world.usual()
    client = await written()
    assert (await client.ask("hello")).text == "384,400 km"
    if written.left:
        with pytest.raises(await written()):
            holdfast.connect("agent.example.com")


async def a_client_has_a_timeout(written, world):
    seconds = "60" if "60" in written.left[0] else "30"
    await world.usual(works_forever())
    with pytest.raises(holdfast.DeadlineExceededError, match=f"{seconds} s"):
        await (await written()).ask("hello")
