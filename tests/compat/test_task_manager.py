"""The task manager: events in, one task out, as the official SDK's users know it."""

import pytest

from holdfast import Artifact, Limits, Message, Part, Role, Task, TaskState
from holdfast.compat import ClientTaskManager
from holdfast.errors import InvalidAgentResponseError, LimitExceededError
from holdfast.types import TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent

WORKING, COMPLETED = TaskState.WORKING, TaskState.COMPLETED


def says(text, message_id="m-1", **members):
    return Message(message_id=message_id, role=Role.AGENT, parts=(Part(text=text),), **members)


def task(state=WORKING, **members):
    return Task(**{"id": "t-1", "context_id": "c-1", **members}, status=TaskStatus(state=state))


def status(state, message=None, **members):
    members = {"task_id": "t-1", "context_id": "c-1", **members}
    return TaskStatusUpdateEvent(status=TaskStatus(state=state, message=message), **members)


def chunk(text, **members):
    artifact = Artifact(artifact_id="a-1", parts=(Part(text=text),))
    return TaskArtifactUpdateEvent(task_id="t-1", artifact=artifact, append=True, **members)


async def managing(*events):
    manager = ClientTaskManager()
    for event in events:
        assert await manager.process(event) is event
    return manager


async def test_before_the_first_event_there_is_no_task():
    manager = ClientTaskManager()

    assert manager.get_task() is None
    with pytest.raises(InvalidAgentResponseError, match="no task event was received"):
        manager.get_task_or_raise()


async def test_events_become_one_task():
    manager = await managing(task(), chunk("to the "), chunk("moon"), status(COMPLETED))

    assert manager.get_task_or_raise() is manager.get_task()
    assert manager.get_task().text == "to the moon"
    assert manager.get_task().state is COMPLETED


async def test_an_update_may_come_before_any_task():
    manager = await managing(status(WORKING))

    assert manager.get_task() == task()


async def test_a_saved_event_gives_the_task_as_it_is_then():
    manager = ClientTaskManager()

    assert await manager.save_task_event(task()) == task()
    assert (await manager.save_task_event(chunk("moon"))).text == "moon"


async def test_a_message_is_of_no_task():
    manager = await managing(says("hello"), task(), says("more"))

    assert manager.get_task() == task()


async def test_a_newer_picture_of_the_task_takes_the_place_of_the_older():
    manager = await managing(task(), chunk("moon"), task(COMPLETED))

    assert manager.get_task() == task(COMPLETED)


@pytest.mark.parametrize(
    "event",
    [
        task(id="t-2"),
        status(COMPLETED, task_id="t-2"),
        task(COMPLETED, context_id="c-2"),
        status(COMPLETED, context_id="c-2"),
        chunk("moon", context_id="c-2"),
    ],
)
async def test_an_event_of_another_task_or_context_is_an_error_and_changes_nothing(event):
    manager = await managing(task())

    with pytest.raises(InvalidAgentResponseError, match=r"t-2|c-2"):
        await manager.process(event)
    assert manager.get_task() == task()


async def test_an_event_that_makes_the_task_too_large_is_an_error_and_changes_nothing():
    manager = ClientTaskManager(limits=Limits(artifacts=1))
    await manager.process(chunk("moon"))
    another = Artifact(artifact_id="a-2")

    with pytest.raises(LimitExceededError):
        await manager.process(TaskArtifactUpdateEvent(task_id="t-1", artifact=another))
    assert manager.get_task().text == "moon"


async def test_a_message_goes_behind_what_the_status_said():
    asked = says("how far?", "m-1")
    manager = await managing(status(TaskState.INPUT_REQUIRED, asked))
    before = manager.get_task()
    answered = says("very", "m-2")

    after = manager.update_with_message(answered, before)

    assert after.history == (asked, answered)
    assert after.status.message is None
    assert after.state is TaskState.INPUT_REQUIRED
    assert manager.get_task() is after
    assert before.history == ()
    assert before.status.message is asked


async def test_the_task_of_a_message_becomes_the_one_that_is_kept():
    manager = ClientTaskManager()

    manager.update_with_message(says("hello"), task())

    assert manager.get_task().history == (says("hello"),)


@pytest.mark.parametrize(
    ("message", "other"),
    [
        (says("x"), task(id="t-2")),
        (says("x"), task(context_id="c-2")),
        (says("x", task_id="t-2"), task()),
    ],
)
async def test_a_message_of_another_task_is_an_error_and_changes_nothing(message, other):
    manager = await managing(task())

    with pytest.raises(InvalidAgentResponseError, match=r"t-2|c-2"):
        manager.update_with_message(message, other)
    assert manager.get_task() == task()
