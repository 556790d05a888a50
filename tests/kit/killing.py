"""Rounds in which a client process is killed, and another one goes on with what it left.

What must hold after each: no message id has more than one task; what a process was told is what
the agent did; every call is answered, or reported unknown, or was never begun; nothing is pending.
"""

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import sqlite3
import sys
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from tests.kit.paths import ROOT
from tests.kit.raw_server import serve

from holdfast import Task
from holdfast.testing import ConsistencyChecker, FakeAgent, LoopbackServer, completes, streams

__all__ = [
    "LIMIT",
    "WAYS",
    "Network",
    "Processes",
    "Round",
    "harmed",
    "kill_all",
    "one_round",
    "processes",
]

HERE = Path(__file__).parent

LIMIT = 120.0
"""Seconds after which a round hangs; a round takes about one."""

WAYS = ("ask", "send", "stream")

_numbers = itertools.count(1)


class Processes:
    """Client processes: see `tests.kit.killed_client`."""

    def __init__(self, parent):
        self._parent = parent
        self._numbers = itertools.count()
        self._pids = {}
        self._statuses = {}

    async def read(self):
        """Reads what is told of processes, until that ends."""
        while line := await self._parent.stdout.readline():
            told = json.loads(line)
            kind = "pid" if "pid" in told else "status"
            waiting = self._pids if kind == "pid" else self._statuses
            if not waiting[told["id"]].done():  # whoever waited has been cancelled
                waiting[told["id"]].set_result(told[kind])
        for waiting in (*self._pids.values(), *self._statuses.values()):
            waiting.cancel()  # which does nothing to those that were told

    async def start(self, **job):
        """Starts a process; gives its pid, and what its exit code will be known by."""
        loop, number = asyncio.get_running_loop(), next(self._numbers)
        self._pids[number], self._statuses[number] = loop.create_future(), loop.create_future()
        self._parent.stdin.write(json.dumps({"id": number, **job}).encode() + b"\n")
        return await self._pids[number], self._statuses[number]


@contextlib.asynccontextmanager
async def processes(program="killed_client.py"):
    """What starts client processes, as long as the context is open."""
    environment = {name: os.environ[name] for name in os.environ if "proxy" not in name.lower()}
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / program),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**environment, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
    )
    started = Processes(parent)
    reading = asyncio.create_task(started.read())
    try:
        yield started
    finally:
        parent.stdin.close()
        await parent.wait()
        await reading


def kill_all(pids):
    """Kill processes, and remove them from the list."""
    while pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids.pop(), signal.SIGKILL)


class Network:
    """What lies between: passes requests on, or loses, delays and answers them.

    A request that is under way arrives, even if whoever sent it is gone.

    Args:
        origins: The agents behind this address, each of which may get a request.
        dice: Draws what happens to each request; None for nothing but passing on.
        on_message: ``on_message()``, called when a message has come, before it is passed on.

    Attributes:
        messages: How many came.
    """

    FATES = ("pass",) * 5 + ("lose", "late", "reply lost", "reply late", "limited", "unavailable")

    def __init__(self, origins, dice=None, on_message=lambda: None):
        self._origins = origins
        self._lots = random.Random(1)
        self._dice = dice
        self._on_message = on_message
        self._in_flight = set()
        self.messages = 0

    async def __call__(self, connection):
        request = await connection.request()
        if request is None:
            return
        fate = "pass" if self._dice is None else self._dice.choice(self.FATES)
        if b"SendMessage" in request or b"SendStreamingMessage" in request:
            self.messages += 1
            self._on_message()
        delivery = asyncio.ensure_future(self._deliver(connection, request, fate))
        self._in_flight.add(delivery)
        delivery.add_done_callback(self._in_flight.discard)
        await asyncio.wait({delivery})
        delivery.result()

    async def settle(self):
        """Waits until nothing is under way."""
        while self._in_flight:
            await asyncio.wait(self._in_flight)

    async def _deliver(self, connection, request, fate):
        match fate:
            case "lose":
                connection.reset()
                return
            case "limited":
                await connection.send(_refusal("429 Too Many Requests", "Retry-After: 0"))
                return
            case "unavailable":
                await connection.send(_refusal("503 Service Unavailable"))
                return
            case "late":
                await asyncio.sleep(self._dice.uniform(0, 0.4))
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", urlsplit(self._lots.choice(self._origins)).port
        )
        writer.write(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        try:
            if fate == "reply lost":
                await reader.read()
                connection.reset()
                return
            if fate == "reply late":
                await asyncio.sleep(self._dice.uniform(0, 0.4))
            while piece := await reader.read(65536):
                await connection.send(piece)
        finally:
            writer.transport.abort()


def _refusal(status, *headers):
    lines = (f"HTTP/1.1 {status}", "Content-Length: 0", "Connection: close", *headers)
    return "\r\n".join([*lines, "", ""]).encode()


def behave(turn):
    """Echoes, a little later."""
    name = turn.message.text
    return (
        streams(name[:2], name[2:], every=0.01)
        if "stream" in name
        else completes(name, after=0.03)
    )


class Round:
    """A killed process and its successor, against one agent.

    Args:
        path: A directory of its own.
        started: What starts processes.
        url: The address to call.
        calls: Each a way and the id of its message.
        server: The server of the journal; None for a journal in a file.

    Attributes:
        told: What both processes have reported, in order.
    """

    def __init__(self, path, started, url, calls, server=None):
        path.mkdir()
        self.journal, self._report = path / "calls.db", path / "report"
        self._server, self._schema = server, f"round_{next(_numbers)}"
        if server is not None:
            self.journal = f"{server.dsn}&schema={self._schema}"
        self._started = started
        self._url = url
        self._calls = calls
        self.told = []
        self.pid = None

    async def start(self, do="call", **job):
        """Starts a process; gives what its exit code will be known by."""
        self.pid, ended = await self._started.start(
            url=self._url,
            journal=str(self.journal),
            report=str(self._report),
            calls=self._calls,
            do=do,
            **job,
        )
        return ended

    def kill(self, number=signal.SIGKILL):
        """Sends the process a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def stop(self):
        """Lets the process stand still, at a moment at which it does not write."""
        while True:
            self.kill(signal.SIGSTOP)
            with contextlib.closing(sqlite3.connect(self.journal, timeout=0.1)) as connection:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError:
                    self.kill(signal.SIGCONT)
                    await asyncio.sleep(0.01)
                else:
                    connection.rollback()
                    return

    async def go_on(self, do, **job):
        """Lets new processes go on with what was left, by `do` and then with what is pending."""
        for work in ("resume",) if do == "call" else (do, "resume"):
            status = await (await self.start(work, **job))
            assert status == 0

    async def problems(self, executions, tasks=None):
        """What does not hold, one line each.

        Args:
            executions: The agent's tasks by message id.
            tasks: Its tasks by id; None where they are not known.
        """
        ends, noted = self.ends(), self.noted()
        found = [f"{name} has {len(made)} tasks" for name, made in executions.items() if made[1:]]
        found.extend(f"{name} is pending" for name, outcome in noted.items() if outcome is None)
        for name in executions:
            if name not in noted:
                found.append(f"{name} was executed, and is not written down")
            elif name not in ends and noted[name] in {"unknown", None}:
                found.append(f"{name} was executed, and nobody was told")
        for name, said in ends.items():
            if all("failed" in one and one["executed"] is not False for one in said):
                found.append(f"{name} has no end: {said}")
            found.extend(_wrong(name, said, executions, tasks))
        return found

    def noted(self):
        """The outcomes of what is written down."""
        if self._server is not None:
            return self._noted_by_server()
        if not self.journal.exists():
            return {}
        with contextlib.closing(sqlite3.connect(self.journal)) as connection:
            return dict(connection.execute("SELECT message_id, outcome FROM calls"))

    def _noted_by_server(self):
        tables = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'calls'"
        if not self._server.execute(tables, self._schema):
            return {}
        return dict(self._server.execute(f"SELECT message_id, outcome FROM {self._schema}.calls"))

    def generation(self, name):
        """How often a call was held by somebody."""
        with contextlib.closing(sqlite3.connect(self.journal)) as connection:
            asked = "SELECT generation FROM calls WHERE message_id = ?"
            return connection.execute(asked, [name]).fetchone()[0]

    def ends(self):
        """What was reported of each message, but that it began."""
        lines = self._report.read_text().splitlines() if self._report.exists() else ()
        self.told = [json.loads(line) for line in lines]
        ends = {}
        for line in self.told:
            kind = next(iter(line))
            if kind != "began":
                ends.setdefault(line[kind], []).append(line)
        return ends

    def counted(self, executions, killed):
        """How many of what there were."""
        outcomes = list(self.noted().values())
        unknown, lost = outcomes.count("unknown"), outcomes.count(None)
        unsent = outcomes.count("not_sent")
        return {
            "killed": int(killed),
            "messages": len(self._calls),
            "executed": len(executions),
            "twice": sum(len(made) > 1 for made in executions.values()),
            "answered": len(outcomes) - unknown - lost - unsent,
            "unknown": unknown,
            "not sent": len(self._calls) - len(outcomes) + unsent,
            "lost": lost,
        }

    def count(self, kind):
        """Of how many messages that was reported."""
        return sum(any(kind in line for line in said) for said in self.ends().values())


def _wrong(name, said, executions, tasks):
    """What is wrong with what was told of a message."""
    last = said[-1]  # what was not sent is sent after all when its run is begun again
    if "failed" in last and last["executed"] is False and name in executions:
        yield f"{name} was said not to be executed: {last['error']}"
    for line in said:
        if "answered" not in line:
            continue
        if line["text"] != name:
            yield f"{name} was answered with {line['text']!r}"
        if name not in executions:
            yield f"{name} was answered, and not executed"
        elif line["task"] is not None:
            seen = msgspec.json.decode(line["task"], type=Task)
            if [seen.id] != executions[name]:
                yield f"{name} was answered by task {seen.id}, not by {executions[name]}"
            elif tasks is not None and not tasks[seen.id].state.is_terminal:
                yield f"{name} was answered, and is {tasks[seen.id].state.name}"


@contextlib.asynccontextmanager
async def agent_behind(network_of, agents=1, behaviour=behave):
    """Agents behind one unreliable address; gives them, the network and the address."""
    async with contextlib.AsyncExitStack() as stack:
        made = [FakeAgent(behaviour) for _ in range(agents)]
        servers = [await stack.enter_async_context(LoopbackServer(one)) for one in made]
        network = network_of([server.url for server in servers])
        front = await stack.enter_async_context(serve(network))
        yield made, network, front.url


@contextlib.asynccontextmanager
async def harmed(server, seed, crashes=0.15):
    """End connections of journals at random moments, and sometimes crash the server.

    Args:
        server: The server.
        seed: Draws the moments.
        crashes: Share of the crashes.
    """
    dice, is_over = random.Random(seed), asyncio.Event()

    async def harm():
        while not is_over.is_set():
            if dice.random() < crashes:
                await asyncio.to_thread(server.crash)
            else:
                await asyncio.to_thread(server.end_some, dice.random())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(is_over.wait(), dice.uniform(0, 0.4))

    harming = asyncio.create_task(harm())
    try:
        yield
    finally:
        is_over.set()
        await harming


async def one_round(seed, path, started, server=None):
    """A round as the seed decides; gives what was counted, and what does not hold."""
    dice = random.Random(seed)
    calls = [(dice.choice(WAYS), f"{number}-{seed}") for number in range(8)]
    calls = [(way, f"{way}-{name}") for way, name in calls]
    do = dice.choice(["call", "call", "run"])
    at_message = dice.choice([None, *range(1, 9)])
    after = dice.uniform(0, 0.5)
    at_journal = dice.choice([None, None, dice.randint(1, 24)])

    def on_message():
        if network.messages == at_message and not ended.done():
            one.kill()

    def between(origins):
        return Network(origins, random.Random(seed + 1), on_message)

    async with asyncio.timeout(LIMIT), agent_behind(between) as ((agent,), network, url):
        one = Round(path, started, url, calls, server)
        job = {"at_once": dice.randint(1, 8), "seed": seed}
        if at_journal is not None:
            job["dies"] = [at_journal, dice.choice(["before", "after"])]
        ended = await one.start(do, **job)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(after if at_message is None else 2.0):
                await asyncio.shield(ended)
        one.kill()
        killed = await ended == -signal.SIGKILL
        await one.go_on(do, seed=seed)
        await network.settle()
        checker = ConsistencyChecker(agent)
        problems = await one.problems(agent.executions, agent.tasks)
        for line in one.told:
            if line.get("task"):
                checker.record_task(msgspec.json.decode(line["task"], type=Task))
        return one.counted(agent.executions, killed), [*problems, *checker.problems()]
