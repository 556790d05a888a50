"""A receiver to which anything happens at any time."""

import asyncio
import contextlib

from hypothesis import strategies as st
from tests.kit.asgi_client import post
from tests.kit.strategies import given

from holdfast import A2AConnectionError, Artifact, DeadlineExceededError, Part, Task, TaskState
from holdfast.errors import QueueFullError
from holdfast.push import PushReceiver
from holdfast.testing import run
from holdfast.types import TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent

TASKS = ("t-1", "t-2", "t-3")
STATES = (TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED)
ENDS = A2AConnectionError | DeadlineExceededError | asyncio.CancelledError | ValueError


def whole(task_id, state, text=""):
    artifacts = (Artifact(artifact_id="a-1", parts=(Part(text=text),)),) if text else ()
    return Task(id=task_id, status=TaskStatus(state=state), artifacts=artifacts)


def chunk(task_id, text):
    artifact = Artifact(artifact_id="a-1", parts=(Part(text=text),))
    return TaskArtifactUpdateEvent(task_id=task_id, artifact=artifact, append=True)


def status(task_id, state):
    return TaskStatusUpdateEvent(task_id=task_id, status=TaskStatus(state=state))


class World:
    """A receiver, who waits for its tasks, and an agent that answers when it is told to."""

    def __init__(self):
        self.receiver = PushReceiver("https://me.example/push", max_tasks=4, max_bytes=2500)
        self.configs = [self.receiver.config(task_id) for task_id in ("t-1", "t-2", None)]
        self.waits = []
        self.asked = []

    async def deliver(self, number, event):
        reply = await post(self.receiver, event, self.configs[number % len(self.configs)])
        assert reply.status in {200, 401, 404, 503}

    async def config(self, task_id):
        self.configs.append(self.receiver.config(task_id))

    async def expect(self, number, task_id):
        config = self.configs[number % len(self.configs)]
        self.receiver.expect(whole(task_id, TaskState.WORKING), config)

    async def forget(self, task_id):
        self.receiver.forget(task_id)

    async def begin(self, task_id, asks):
        client = {"client": self, "poll_interval": 10} if asks else {}
        wait = self.receiver.wait(task_id, timeout=100, **client)
        self.waits.append((task_id, asyncio.ensure_future(wait)))

    async def leave(self, number):
        if self.waits:
            self.waits[number % len(self.waits)][1].cancel()

    async def answer(self, state):
        if self.asked:
            task_id, question = self.asked.pop(0)
            if not question.done():
                question.set_result(whole(task_id, state))

    async def pause(self, seconds):
        await asyncio.sleep(seconds)

    # As a client:

    async def get_task(self, task_id, *, timeout):
        question = asyncio.get_running_loop().create_future()
        self.asked.append((task_id, question))
        return await question

    async def wait(self, task_id, *, until, timeout):
        while not until(found := await self.get_task(task_id, timeout=timeout)):
            pass
        return found


def calls(method, *arguments):
    return st.tuples(st.just(method), *arguments)


task_ids, numbers = st.sampled_from(TASKS), st.integers(0, 5)
texts = st.sampled_from(["x", "x" * 700])
events = st.one_of(
    st.builds(whole, task_ids, st.sampled_from(STATES), texts),
    st.builds(chunk, task_ids, texts),
    st.builds(status, task_ids, st.sampled_from(STATES)),
)
happenings = st.lists(
    st.one_of(
        calls(World.deliver, numbers, events),
        calls(World.config, st.none() | task_ids),
        calls(World.expect, numbers, task_ids),
        calls(World.forget, task_ids),
        calls(World.begin, task_ids, st.booleans()),
        calls(World.leave, numbers),
        calls(World.answer, st.sampled_from(STATES)),
        calls(World.pause, st.sampled_from([0, 1, 40])),
    ),
    max_size=30,
)


async def after(happenings):
    """What has become of the world, and what time it is."""
    world = World()
    for happen, *arguments in happenings:
        with contextlib.suppress(ValueError, QueueFullError):  # as it may be
            await happen(world, *arguments)
        await asyncio.sleep(0)
    return world, asyncio.get_running_loop().time()


async def all_have_ended(world, began):
    ends = await asyncio.gather(*(wait for _, wait in world.waits), return_exceptions=True)
    assert asyncio.get_running_loop().time() == began
    for (task_id, _), end in zip(world.waits, ends, strict=True):
        if isinstance(end, Task):
            assert (end.id, end.state.is_settled) == (task_id, True)
        else:
            assert isinstance(end, ENDS)


@given(happenings=happenings, max_examples=100)
def test_whatever_happened_every_wait_ends_with_the_receiver(happenings):
    async def main():
        world, began = await after(happenings)
        await world.receiver.close()
        await all_have_ended(world, began)

    run(main())


@given(happenings=happenings, max_examples=100)
def test_whatever_happened_what_is_forgotten_takes_no_room(happenings):
    async def main():
        world, began = await after(happenings)
        for task_id in TASKS:
            world.receiver.forget(task_id)
        await all_have_ended(world, began)
        config = world.receiver.config("t-4")  # for which those without a task make room
        event = whole("t-4", TaskState.WORKING, "x" * 2200)
        assert (await post(world.receiver, event, config)).status == 200

    run(main())
