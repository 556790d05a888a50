"""Real replicas on the official SDK over one store: killed, restarted, and cut off.

One `Cluster` serves all tests of this file: each test has the replicas that it needs started again
where an earlier one has ended them.
"""

import asyncio
import contextlib
import json
import uuid

import pytest
from tests.kit.messages import message_of
from tests.kit.ports import reserve_port
from tests.kit.real_agents import LIMIT, ClusterReplica
from tests.kit.virtual_env import FixedDraws

from holdfast import ReconnectPolicy, Resilience, RetryPolicy, TaskState, connect
from holdfast._testing.listening import Listener
from holdfast.errors import TaskCanceledError
from holdfast.extend import AiohttpEngine, HttpRequest

pytestmark = [pytest.mark.sdk, pytest.mark.real_time]

PIECE = 65536

BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")

QUICK = Resilience(
    retry=RetryPolicy(base_delay=0.05),
    reconnect=ReconnectPolicy(backoff=0.02, max_backoff=0.1),
)


class Line:
    """A connection to a port, which can be cut: nothing passes from then on."""

    def __init__(self, port):
        self.port = port
        self._listener = Listener(self._pass_on, host="127.0.0.1", port=port, largest_head=PIECE)

    async def open(self, target):
        self._target = target
        await self._listener.__aenter__()

    async def cut(self):
        await self._listener.__aexit__(None, None, None)

    async def _pass_on(self, reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await asyncio.gather(_pass(reader, back), _pass(there, writer))
        finally:
            back.transport.abort()


async def _pass(reader, writer):
    while data := await reader.read(PIECE):
        writer.write(data)
        await writer.drain()
    writer.close()


class Cluster:
    """Three replicas over one store; the last one is behind lines, which only its card names.

    Attributes:
        home: A replica.
        other: A replica.
        behind: The replica behind lines.
        ports: Those of the lines, of HTTP and gRPC.
    """

    def __init__(self, directory):
        self._store = directory / "tasks.db"
        errors = directory / "errors"
        self.ports = reserve_port(), reserve_port()
        self.home, self.other = (ClusterReplica(self._store, errors) for _ in range(2))
        self.behind = ClusterReplica(self._store, errors, shown=self.ports)

    def run(self, *replicas):
        """Starts replicas that do not run."""
        started = [replica for replica in replicas if not replica.is_running]
        for replica in started:
            replica.start()
        for replica in started:
            replica.wait_until_ready()

    def kill(self):
        for replica in (self.home, self.other, self.behind):
            if replica.is_running:
                replica.kill()

    def executions(self):
        """The ids of all messages, as often as they were executed."""
        lines = self._store.with_suffix(".executions").read_text().splitlines()
        return [line.partition(" ")[0] for line in lines]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.run(cluster.home, cluster.other, cluster.behind)
        yield cluster
    finally:
        cluster.kill()


def client_of(replicas, binding, **options):
    return connect(
        [replica if isinstance(replica, str) else replica.url for replica in replicas],
        supported_protocol_bindings=[binding],
        resilience=QUICK,
        env=FixedDraws(),
        timeout=LIMIT,
        **options,
    )


async def permit(replica, name, count):
    """Lets tasks of this name at a replica go on by so many chunks."""
    engine = AiohttpEngine(proxies=False)
    url = f"{replica.url}/permits?name={name}&count={count}"
    reply = await engine.request(HttpRequest(method="GET", url=url))
    assert json.loads(reply.body) == count
    await engine.close()


def chunks(count):
    return "".join(f"chunk {number}\n" for number in range(1, count + 1))


async def begun(events, replica, name, count):
    """Reads as many chunks of a task as it may send; gives their text."""
    await permit(replica, name, count)
    text = ""
    async for delta in events.text_deltas():
        text += delta
        if text == chunks(count):
            return text
    raise AssertionError(text)


async def test_what_a_killed_replica_made_is_served_by_another_over_every_binding(cluster):
    cluster.run(cluster.home, cluster.other)
    killed = asyncio.Event()
    ready = asyncio.Barrier(len(BINDINGS) + 1)

    async def served(binding):
        name = str(uuid.uuid4())
        async with client_of([cluster.home, cluster.other], binding) as client:
            waits = await client.send_message(f"paced {name} 2", return_immediately=True)
            async with client.stream_message(f"paced {name}-2 5") as events:
                seen = await begun(events, cluster.home, f"{name}-2", 3)
                await ready.wait()
                await killed.wait()

                assert (await client.get_task(waits.id)).id == waits.id
                assert (await client.cancel_task(waits.id)).state is TaskState.CANCELED
                async with client.subscribe_to_task(events.task.id) as again:
                    assert (await anext(again)).id == events.task.id
                assert (await client.cancel_task(events.task.id)).state is TaskState.CANCELED
                with pytest.raises(TaskCanceledError) as caught:
                    await events.result()
                assert seen == chunks(3)
                assert caught.value.task.artifacts[0].text == chunks(3)

    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        for binding in BINDINGS:
            group.create_task(served(binding))
        await ready.wait()
        cluster.home.kill()
        killed.set()


@pytest.mark.rule("D03")
async def test_a_stream_that_is_cut_resumes_at_another_replica_with_exact_text(cluster):
    cluster.run(cluster.other, cluster.behind)
    lines = [Line(port) for port in cluster.ports]
    for line, target in zip(lines, cluster.behind.ports, strict=True):
        await line.open(target)
    ready, cut = asyncio.Barrier(len(BINDINGS) + 1), asyncio.Event()

    async def resumed(binding):
        name = str(uuid.uuid4())
        replicas = [f"http://127.0.0.1:{cluster.ports[0]}", cluster.other]
        async with (
            client_of(replicas, binding) as client,
            client.stream_message(f"paced {name} 8") as events,
        ):
            text = await begun(events, cluster.behind, name, 3)
            await ready.wait()
            await cut.wait()
            await permit(cluster.behind, name, 2)
            async for delta in events.text_deltas():
                text += delta
                if text == chunks(5):
                    await permit(cluster.behind, name, 3)
            assert text == chunks(8)
            assert (await events.result()).text == chunks(8)
            assert events.reconnects

    try:
        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
            for binding in BINDINGS:
                group.create_task(resumed(binding))
            await ready.wait()
            for line in lines:
                await line.cut()
            cut.set()
    finally:
        for line in lines:
            await line.cut()


@pytest.mark.rule("D01")
async def test_a_rolling_restart_under_load_costs_no_call_and_runs_no_message_twice(cluster):
    cluster.run(cluster.home, cluster.other)
    over, sent = asyncio.Event(), []
    # A gRPC server that stops answers CANCELLED to calls that it has received and not begun, just
    # as to calls that it has begun: only a search shows whether the message may be sent again.
    options = {"on_unknown": "resend_if_absent"}

    async def load(binding):
        async with client_of([cluster.home, cluster.other], binding, **options) as client:
            while not over.is_set():
                message = message_of("chunks 3")
                sent.append(message.message_id)
                answer = await client.ask(message)
                assert answer.text == chunks(3)
                # Its state is not compared: a replica may stream an event before it stores it.
                assert (await client.get_task(answer.task.id)).id == answer.task.id
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), 0.1)

    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        for binding in BINDINGS:
            group.create_task(load(binding))
        for replica in (cluster.home, cluster.other):
            await asyncio.to_thread(replica.stop)
            await asyncio.to_thread(cluster.run, replica)
        over.set()

    executed = cluster.executions()
    assert [executed.count(message_id) for message_id in sent] == [1] * len(sent)
