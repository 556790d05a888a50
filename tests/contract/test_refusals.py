"""Refused calls and failed agents, and what their errors say.

The contract is that of ``test_messages.py``.
"""

import contextlib

import pytest
from tests.kit.contract import SOON, contract, open_engine
from tests.kit.messages import message_of

from holdfast import A2AError, A2AHTTPError, TaskFailedError, TaskNotFoundError, TaskState
from holdfast.errors import (
    InternalError,
    TaskNotCancelableError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from holdfast.extend import AiohttpEngine
from holdfast.types import TaskPushNotificationConfig

pytestmark = [pytest.mark.sdk, pytest.mark.real_time]


@contract
async def test_finished_task_cannot_be_canceled(agent):
    async with agent, agent.client() as client:
        task = await client.send_message("echo hello")
        with pytest.raises(TaskNotCancelableError) as caught:
            await client.cancel_task(task.id)

    assert (caught.value.code, caught.value.task_id) == (-32002, task.id)


@contract
async def test_finished_task_takes_no_message(agent):
    message = message_of("more")
    async with agent, agent.client() as client:
        task = await client.send_message("echo hello")
        with pytest.raises(A2AError, match="terminal") as caught:
            await client.send_message(message, task_id=task.id)
        executions = await agent.executions()

    assert caught.value.executed is None
    assert len(caught.value.attempts) == 1
    assert message.message_id not in executions


@contract
async def test_message_to_a_finished_task_is_an_unsupported_operation(agent):
    async with agent, agent.client() as client:
        task = await client.send_message("echo hello")
        with pytest.raises(UnsupportedOperationError, match="terminal state") as caught:
            await client.ask("more", task_id=task.id)

    assert (caught.value.code, caught.value.executed) == (-32004, None)


@contract
async def test_unknown_task_is_not_found(agent):
    async with agent, agent.client() as client:
        for call in (client.get_task, client.wait, client.cancel_task):
            with pytest.raises(TaskNotFoundError) as caught:
                await call("nope")
            assert (caught.value.task_id, caught.value.code) == ("nope", -32001)


@contract
async def test_ask_about_an_unknown_task_is_not_found(agent):
    async with agent, agent.client() as client:
        with pytest.raises(TaskNotFoundError) as caught:
            await client.ask("hello", task_id="nope")

    assert caught.value.code == -32001


@contract
async def test_push_configurations_of_an_unknown_task_are_not_found(agent):
    async with agent, agent.client() as client:
        config = TaskPushNotificationConfig(task_id="nope", url="http://127.0.0.1:9/")
        for call, arguments in (
            (client.list_task_push_notification_configs, ("nope",)),
            (client.get_task_push_notification_config, ("nope", "c")),
            (client.delete_task_push_notification_config, ("nope", "c")),
            (client.create_task_push_notification_config, (config,)),
        ):
            with pytest.raises(TaskNotFoundError) as caught:
                await call(*arguments)
            assert caught.value.code == -32001


@contract
async def test_task_id_with_reserved_characters_is_only_unknown(agent):
    async with agent, agent.client() as client:
        for task_id in ("a b", "é", "a:b", "a%b", "a?b", ".."):
            with pytest.raises(TaskNotFoundError) as caught:
                await client.get_task(task_id)
            assert caught.value.code == -32001


@contract
async def test_task_id_with_a_slash_is_unknown_where_the_router_keeps_it(agent):
    async with agent, agent.client() as client:
        with pytest.raises((TaskNotFoundError, A2AHTTPError)) as caught:
            await client.get_task("a/b")

    # The router of the SDK takes an encoded slash for a real one, and has no such path.
    if agent.binding == "HTTP+JSON" and agent.kind != "fake":
        assert (type(caught.value), caught.value.http_status) == (A2AHTTPError, 404)
    else:
        assert (type(caught.value), caught.value.code) == (TaskNotFoundError, -32001)
    if agent.is_sdk("1.0", "HTTP+JSON"):
        assert caught.value.excerpt == "Not Found"


class _OldEngine(AiohttpEngine):
    """Says that its client speaks another version of the protocol."""

    async def request(self, request):
        request.headers["a2a-version"] = "0.3"
        return await super().request(request)


@contract
async def test_unsupported_version_is_refused_before_anything_runs(agent):
    message = message_of("echo hello")
    async with agent, open_engine(_OldEngine) as engine:
        client = agent.client(engine=engine)
        for call in (client.get_task("x"), client.send_message(message)):
            with pytest.raises(VersionNotSupportedError) as caught:
                await call
            assert (caught.value.code, caught.value.executed) == (-32009, False)
        executions = await agent.executions()

    assert message.message_id not in executions


# ── Agents that crash ────────────────────────────────────────────────────────────────────────


@contract
async def test_send_message_to_a_crashing_agent_is_an_internal_error_after_one_execution(agent):
    message = message_of("crash")
    async with agent, agent.client() as client:
        with pytest.raises(InternalError) as caught:
            await client.send_message(message)
        executions = (await agent.executions())[message.message_id]

    assert (caught.value.code, caught.value.executed) == (-32603, None)
    assert len(caught.value.attempts) == 1
    assert len(executions) == 1


@contract
async def test_task_of_a_crashing_agent_is_stored_as_failed(agent):
    message = message_of("crash")
    async with agent, agent.client() as client:
        with contextlib.suppress(InternalError):
            await client.send_message(message)
        (task_id,) = (await agent.executions())[message.message_id]
        stored = await client.get_task(task_id)

    assert stored.state is TaskState.FAILED


@contract
async def test_ask_of_a_crashing_agent_fails_after_one_execution(agent):
    message = message_of("crash")
    async with agent, agent.client() as client:
        with pytest.raises(TaskFailedError):
            await client.ask(message, **SOON)
        executions = (await agent.executions())[message.message_id]

    assert len(executions) == 1
