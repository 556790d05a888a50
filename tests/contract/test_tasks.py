"""Tasks and their push configurations; the contract is that of ``test_messages.py``."""

import asyncio
import uuid

import pytest
from tests.kit.contract import SOON, completed, contract, shape

from holdfast import Role, TaskNotFoundError, TaskState
from holdfast.errors import TaskCanceledError, TaskNotCancelableError, UnsupportedOperationError
from holdfast.types import TaskPushNotificationConfig

pytestmark = [pytest.mark.sdk, pytest.mark.real_time]


async def first_task(client, context):
    """Return the id of a context's first task, as soon as the agent has it."""
    while True:
        if tasks := (await client.list_tasks(context)).tasks:
            return tasks[0].id
        await asyncio.sleep(0.02)


# ── Getting and listing ──────────────────────────────────────────────────────────────────────


@contract
async def test_tasks_are_listed_by_context_page_by_page(agent):
    context = f"context {uuid.uuid4()}"
    async with agent, agent.client() as client:
        for text in ("echo one", "ask two?", "echo three"):
            await client.send_message(text, context_id=context)

        page = await client.list_tasks(context, limit=2)
        tasks = [task async for task in client.iter_tasks(context, limit=2)]
        waiting = await client.list_tasks(context, status=TaskState.INPUT_REQUIRED)
        whole = await client.list_tasks(context, limit=1, include_artifacts=True)
        short = await client.list_tasks(context, history_length=0)
        none = await client.list_tasks(f"not {context}")

    assert (len(page.tasks), page.page_size, page.total_size) == (2, 2, 3)
    assert page.next_page_token
    assert [task.history[0].text for task in tasks] == ["echo three", "ask two?", "echo one"]
    assert {task.artifacts for task in tasks} == {()}
    assert {task.context_id for task in tasks} == {context}
    assert [shape(task)["status"] for task in waiting.tasks] == [(Role.AGENT, "two?", True)]
    assert shape(whole.tasks[0]) == completed("three", "echo three")
    assert [task.history for task in short.tasks] == [(), (), ()]
    assert (none.tasks, none.total_size, none.next_page_token) == ((), 0, "")


@contract
async def test_history_has_at_most_the_requested_length(agent):
    async with agent, agent.client() as client:
        task = await client.send_message("ask what?")
        await client.get_task(task.id)  # the official server of 0.3 needs a moment after a run
        await client.send_message("this", task_id=task.id)
        last = await client.get_task(task.id, history_length=1)

    assert [message.text for message in last.history] == ["this"]


@contract
async def test_history_of_length_zero_is_empty(agent):
    async with agent, agent.client() as client:
        task = await client.send_message("ask what?", history_length=0)
        stored = await client.get_task(task.id, history_length=0)

    assert task.history == stored.history == ()


# ── Canceling ────────────────────────────────────────────────────────────────────────────────


@contract
async def test_running_task_is_canceled_once(agent):
    async with agent, agent.client() as client:
        task = await client.send_message("slow 30 never", return_immediately=True)
        canceled = await client.cancel_task(task.id, **SOON)
        with pytest.raises(TaskNotCancelableError) as caught:
            await client.cancel_task(task.id)

    assert (canceled.id, canceled.state) == (task.id, TaskState.CANCELED)
    assert (caught.value.code, len(caught.value.attempts)) == (-32002, 1)
    assert caught.value.task_id == task.id


@contract
async def test_wait_returns_a_task_that_was_canceled_meanwhile(agent):
    # Without streams: the official server of 0.3 never ends the stream of a canceled task.
    async with agent, agent.client(streaming=False) as client:
        task = await client.send_message("slow 30 never", return_immediately=True)
        waiting = asyncio.create_task(client.wait(task.id, **SOON))
        await client.cancel_task(task.id, confirm=False)
        canceled = await waiting

    assert canceled.state is TaskState.CANCELED


@contract
async def test_ask_raises_if_its_task_was_canceled_meanwhile(agent):
    context = str(uuid.uuid4())
    async with agent, agent.client() as client:
        asking = asyncio.create_task(client.ask("slow 30 never", context_id=context, **SOON))
        await client.cancel_task(await first_task(client, context), **SOON)

        with pytest.raises(TaskCanceledError):
            await asking


@contract
async def test_send_message_blocking_returns_a_task_that_was_canceled_meanwhile(agent):
    context = str(uuid.uuid4())
    async with agent, agent.client() as client:
        blocking = asyncio.create_task(client.send_message("slow 30 never", context_id=context))
        await client.cancel_task(await first_task(client, context), **SOON)

        assert (await blocking).state is TaskState.CANCELED


# ── Push configurations ──────────────────────────────────────────────────────────────────────


@contract
async def test_push_configuration_is_stored(agent):
    async with agent, agent.client() as client:
        task = await client.send_message("echo hello")
        config = TaskPushNotificationConfig(
            task_id=task.id, id="mine", url="http://127.0.0.1:1/", token="secret"
        )
        created = await client.create_task_push_notification_config(config)
        stored = await client.get_task_push_notification_config(task.id, "mine")

    assert created == stored == config


@contract
async def test_push_configurations_are_created_listed_and_deleted(agent):
    async with agent, agent.client() as client:
        task = await client.send_message("ask what?")
        before = await client.list_task_push_notification_configs(task.id)
        unnamed = await client.create_task_push_notification_config(
            TaskPushNotificationConfig(task_id=task.id, url="http://127.0.0.1:9/a")
        )
        config = TaskPushNotificationConfig(
            task_id=task.id, id="mine", url="http://127.0.0.1:9/b", token="t"
        )
        named = await client.create_task_push_notification_config(config)
        stored = await client.get_task_push_notification_config(task.id, "mine")
        both = await client.list_task_push_notification_configs(task.id)
        deleted = await client.delete_task_push_notification_config(task.id, "mine")
        after = await client.list_task_push_notification_configs(task.id)
        with pytest.raises(TaskNotFoundError):
            await client.get_task_push_notification_config(task.id, "mine")

    assert before.configs == ()
    assert (unnamed.id, unnamed.url) == (task.id, "http://127.0.0.1:9/a")
    assert named == stored == config
    assert set(both.configs) == {unnamed, named}
    assert deleted is None
    assert after.configs == (unnamed,)


@contract
async def test_operation_that_an_older_agent_lacks_is_unsupported(agent):
    async with agent, agent.client() as client:
        task = await client.send_message("echo hello")
        lacking = [client.list_tasks()]
        # The official server has an internal error in place of this list.
        if agent.is_sdk("0.3", "HTTP+JSON"):
            lacking.append(client.list_task_push_notification_configs(task.id))
        if agent.is_sdk("0.3", "GRPC"):
            lacking.append(client.delete_task_push_notification_config(task.id, "c1"))
        for call in lacking:
            with pytest.raises(UnsupportedOperationError, match=r"protocol 0\.3") as caught:
                await call
            assert caught.value.executed is False
