"""The SDK's client over Holdfast's: faults, what comes along of a configuration, the factory."""

import asyncio
import contextlib
import json
import random
import ssl

import grpc
import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.client.client import ClientCallContext
from a2a.client.client_factory import minimal_agent_card
from a2a.client.errors import A2AClientError, A2AClientTimeoutError, AgentCardResolutionError
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    VersionNotSupportedError,
)
from google.protobuf.json_format import MessageToDict
from tests.kit.sdk_clients import (
    PATHS,
    Own,
    card_of,
    client_of,
    collected,
    now,
    said,
    tasks_made,
    text_of,
    transport_of,
)
from tests.kit.virtual_env import Dice

import holdfast
from holdfast import (
    CircuitOpenError,
    ConcurrencyPolicy,
    Resilience,
    RetryPolicy,
    Timeouts,
    connect,
)
from holdfast.extend import BaseLayer, Endpoints
from holdfast.integrations.a2a_sdk import (
    CallFailedError,
    CallTimeoutError,
    HoldfastTransport,
    RetryConfig,
    RetryTransport,
    client_factory,
)
from holdfast.integrations.httpx import Transport
from holdfast.observe import OperationFinished, RetryScheduled
from holdfast.testing import (
    Cut,
    Delay,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    Respond,
    Stall,
    asks,
    completes,
    rate_limited,
    replies,
    run,
    streams,
    unavailable,
    works_forever,
)

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
streaming_or_not = pytest.mark.parametrize("streaming", [True, False])


STORY = streams("Hello, ", "world", "!", every=1.0)


# ── The SDK's client on top ──────────────────────────────────────────────────────────────────

FAULTS = {
    "refused": Refuse(),
    "reset before it ran": Reset(),
    "reset after it ran": Reset(after_execution=True),
    "429": rate_limited(2),
    "503": unavailable(2),
    "stall before it ran": Stall(),
    "stall after it ran": Stall(after_execution=True),
    "cut": Cut(after_bytes=20),
}
NEVER_ARRIVED = (FAULTS["reset before it ran"], FAULTS["stall before it ran"])
"""Of these messages nobody can know that: they are looked for, and not sent again."""


@both_bindings
@streaming_or_not
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_one_fault_makes_no_second_task_and_loses_nothing(fault, streaming, binding):
    agent = FakeAgent(STORY)
    agent.inject(fault, on="SendStreamingMessage" if streaming else "SendMessage")
    client = client_of(agent, binding, streaming=streaming)

    if fault in NEVER_ARRIVED:
        with pytest.raises(CallFailedError) as caught:
            await collected(client.send_message(said()))
        assert (caught.value.executed, caught.value.message_id) == (None, "m-1")
        assert agent.executions == {}
    else:
        assert text_of(await collected(client.send_message(said()))) == "Hello, world!"
        assert tasks_made(agent) == {"m-1": 1}
    await client.close()


@both_bindings
@pytest.mark.parametrize("after_events", range(1, 6))
@pytest.mark.parametrize("kind", [Cut, Reset, Stall])
async def test_the_text_of_a_stream_that_is_cut_is_neither_lost_nor_repeated(
    kind, after_events, binding
):
    agent = FakeAgent(STORY)
    phase = {"phase": "idle"} if kind is Stall else {}
    agent.inject(kind(after_events=after_events, **phase), on="SendStreamingMessage")
    agent.inject(Cut(after_events=1), on="SubscribeToTask")
    client = client_of(agent, binding)

    events = await collected(client.send_message(said()))

    assert text_of(events) == "Hello, world!"
    assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED
    assert tasks_made(agent) == {"m-1": 1}


@both_bindings
@pytest.mark.parametrize("wait", [2.0, 45.0])
async def test_a_server_that_asks_for_patience_is_given_it(wait, binding):
    agent = FakeAgent()
    agent.inject(rate_limited(wait))
    client = client_of(agent, binding, streaming=False)

    await collected(client.send_message(said()))

    [sent] = agent.calls("SendMessage")
    assert wait <= sent.at <= wait + 1


@both_bindings
async def test_reads_are_tried_again(binding):
    agent = FakeAgent()
    client = client_of(agent, binding, streaming=False)
    await collected(client.send_message(said()))
    for fault in (Reset(), unavailable(), Refuse()):
        agent.inject(fault)

    task = await client.get_task(pb.GetTaskRequest(id="task-1"))

    assert task.status.state == pb.TASK_STATE_COMPLETED
    assert agent.pending_faults == ()


@both_bindings
async def test_a_task_is_subscribed_to_and_a_cut_does_not_end_it(binding):
    agent = FakeAgent(STORY)
    client = client_of(agent, binding)
    sent = await transport_of(agent, binding).send_message(
        said(configuration=pb.SendMessageConfiguration(return_immediately=True))
    )
    agent.inject(Cut(after_events=2), on="SubscribeToTask")

    events = await collected(client.subscribe(pb.SubscribeToTaskRequest(id=sent.task.id)))

    assert events[0].HasField("task")
    assert text_of(events) == "Hello, world!"


async def test_an_answer_that_is_a_message_is_one_event():
    agent = FakeAgent(replies("hi"))
    for streaming in (True, False):
        [event] = await collected(client_of(agent, streaming=streaming).send_message(said()))
        assert event.message.parts[0].text == "hi"


async def test_a_question_ends_the_stream_and_the_reply_continues_with_the_task():
    agent = FakeAgent(lambda turn: asks("Which?") if turn.task is None else completes("done"))
    client = client_of(agent)

    asked = await collected(client.send_message(said()))
    reply = said("this one")
    reply.message.message_id, reply.message.task_id = "m-2", asked[0].task.id
    answered = await collected(client.send_message(reply))

    assert asked[-1].status_update.status.state == pb.TASK_STATE_INPUT_REQUIRED
    assert text_of(answered) == "done"


def whole(*texts, state):
    artifact = {"artifactId": "a", "parts": [{"text": text} for text in texts]}
    status = {"state": f"TASK_STATE_{state}"}
    return {"task": {"id": "t", "status": status, "artifacts": [artifact] if texts else []}}


def update(text=None, **status):
    if text is None:
        return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": status}}
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    return {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact}}


def streamed(*events, task_id="t", **more):
    lines = [f"data: {json.dumps(event)}\n\n".replace('"t"', f'"{task_id}"') for event in events]
    headers = {"content-type": "text/event-stream"}
    return Respond(status=200, headers=headers, body="".join(lines).encode(), **more)


@pytest.mark.parametrize(
    ("chunks", "at_the_end", "told_again"),
    [
        ([], ["Hello"], 1),
        (["Hel"], ["Hel", "lo"], 1),
        (["Help"], ["Hello"], 1),
        (["Hello"], ["Hel", "lo"], 0),
        (["Hello"], ["Hello"], 0),
        (["Hello"], [], 0),
    ],
)
async def test_what_an_agent_tells_only_at_the_very_end_is_not_lost(
    chunks, at_the_end, told_again
):
    agent = FakeAgent()
    agent.inject(
        streamed(
            whole(state="WORKING"),
            *(update(chunk) for chunk in chunks),
            update(state="TASK_STATE_COMPLETED"),
            whole(*at_the_end, state="COMPLETED"),
        )
    )

    told = await collected(client_of(agent, "HTTP+JSON").send_message(said()))

    assert text_of(told) == "Hello"
    assert len(told) == 1 + len(chunks) + 1 + told_again


async def test_what_an_agent_holds_and_never_tells_is_not_lost():
    agent = FakeAgent("Hello")
    events = whole(state="WORKING"), update(state="TASK_STATE_COMPLETED")
    agent.inject(streamed(*events, task_id="task-1", after_execution=True))

    told = await collected(client_of(agent, "HTTP+JSON").send_message(said()))

    assert text_of(told) == "Hello"
    assert told[-1].artifact_update.last_chunk


# ── Leaving early ────────────────────────────────────────────────────────────────────────────


async def settled():
    for _ in range(10):
        await asyncio.sleep(0)


@both_bindings
@pytest.mark.parametrize("how", ["break", "aclose"])
async def test_leaving_a_stream_lets_go_of_the_connection_and_not_of_the_task(how, binding):
    agent = FakeAgent(STORY)
    client = client_of(agent, binding)

    events = client.send_message(said())
    async for _ in events:
        assert agent.open_streams == 1
        break
    if how == "aclose":
        await events.aclose()
    del events
    await settled()

    assert agent.open_streams == 0
    await asyncio.sleep(10)
    task = await client.get_task(pb.GetTaskRequest(id="task-1"))
    assert task.status.state == pb.TASK_STATE_COMPLETED
    assert agent.calls("CancelTask") == []


@both_bindings
@pytest.mark.parametrize("seed", range(5))
async def test_calls_that_are_cancelled_at_any_moment_leave_nothing_behind(seed, binding):
    dice = random.Random(seed)
    agent = FakeAgent(STORY, latency=0.3)
    resilience = Resilience(concurrency=ConcurrencyPolicy(limit=5))
    transport = transport_of(agent, binding, resilience=resilience)

    async def one(number):
        request = said()
        request.message.message_id = f"m-{number}"
        if number % 2:
            await transport.send_message(request)
        else:
            await collected(transport.send_message_streaming(request))

    calls = [asyncio.ensure_future(one(number)) for number in range(25)]
    for call in calls:
        asyncio.get_running_loop().call_later(dice.uniform(0, 8), call.cancel)
    await asyncio.gather(*calls, return_exceptions=True)

    assert agent.open_streams == 0
    assert all(times == 1 for times in tasks_made(agent).values())
    began = now()
    await asyncio.gather(
        *(transport.list_tasks(pb.ListTasksRequest()) for _ in range(5))
    )  # all five places are free
    assert now() - began == pytest.approx(0.3)
    await transport.close()


# ── The request and its context ──────────────────────────────────────────────────────────────


@both_bindings
async def test_what_the_caller_passed_stays_as_it_is(binding):
    agent = FakeAgent(STORY)
    transport = transport_of(agent, binding)
    request = said(metadata={"n": 1})
    request.message.message_id = ""
    context = ClientCallContext(service_parameters={"X-One": "1"}, state={"a": 1}, timeout=60)
    before, told = MessageToDict(request), context.model_copy(deep=True)

    await transport.send_message(request, context=context)
    await collected(transport.send_message_streaming(request, context=context))

    assert MessageToDict(request) == before
    assert context == told
    assert sorted(tasks_made(agent).values()) == [1, 1]  # each under an id of its own


@both_bindings
async def test_a_message_that_got_its_id_here_keeps_it(binding):
    agent = FakeAgent()
    agent.inject(Reset(after_execution=True))
    request = said()
    request.message.message_id = ""
    transport = transport_of(agent, binding, on_unknown="resend")

    await transport.send_message(request)

    first, second = (json.loads(call.body) for call in agent.calls("SendMessage"))
    ids = [body.get("params", body)["message"]["messageId"] for body in (first, second)]
    assert ids[0] == ids[1] != ""


@both_bindings
async def test_the_configuration_of_a_message_goes_along_whole(binding):
    agent = FakeAgent(STORY)
    transport = transport_of(agent, binding)
    configuration = pb.SendMessageConfiguration(
        accepted_output_modes=["text/plain"], history_length=0, return_immediately=True
    )
    await transport.send_message(said(configuration=configuration))
    await collected(transport.send_message_streaming(said(configuration=configuration)))

    for operation in ("SendMessage", "SendStreamingMessage"):
        body = json.loads(agent.calls(operation)[0].body)
        assert body.get("params", body)["configuration"] == {
            "acceptedOutputModes": ["text/plain"],
            "historyLength": 0,
            "returnImmediately": True,
        }


@both_bindings
async def test_service_parameters_are_headers_and_secret(binding):
    agent = FakeAgent(token="s3cret-token")
    transport = transport_of(agent, binding)
    parameters = {
        "Authorization": "Bearer s3cret-token",
        "A2A-Extensions": "urn:one,urn:two",
        "x-more": "more",
    }

    await transport.list_tasks(
        pb.ListTasksRequest(), context=ClientCallContext(service_parameters=parameters)
    )
    await collected(
        transport.send_message_streaming(
            said(), context=ClientCallContext(service_parameters=parameters)
        )
    )

    for call in agent.received:
        assert call.headers["authorization"] == "Bearer s3cret-token"
        assert call.headers["a2a-extensions"] == "urn:one,urn:two"
        assert call.headers["x-more"] == "more"
    parameters["Authorization"] = "Bearer wr0ng-token"
    agent.inject(Respond(status=400, body=b"what is Bearer wr0ng-token?"))
    with pytest.raises(A2AClientError) as caught:
        await transport.list_tasks(
            pb.ListTasksRequest(), context=ClientCallContext(service_parameters=parameters)
        )
    assert "wr0ng-token" not in f"{caught.value!r} {caught.value.__cause__!r}"


async def test_extensions_are_asked_of_an_older_agent_by_their_older_name():
    agent = FakeAgent(versions=("0.3",))
    card = card_of(agent, "JSONRPC", version="0.3.0")
    transport = HoldfastTransport(card, f"{agent.url}/rpc", engine=FakeNetwork(agent))

    await transport.send_message(
        said(), context=ClientCallContext(service_parameters={"a2a-extensions": "urn:one"})
    )

    assert agent.received[0].headers["x-a2a-extensions"] == "urn:one"


class Store(CredentialService):
    async def get_credentials(self, security_scheme_name, context):
        return "s3cret-token"


async def test_the_interceptors_of_the_sdk_work_unchanged():
    agent = FakeAgent(token="s3cret-token")
    card = card_of(agent, "JSONRPC")
    card.security_schemes["bearer"].http_auth_security_scheme.scheme = "bearer"
    card.security_requirements.add().schemes["bearer"].SetInParent()
    client = client_of(agent, card=card, interceptors=[AuthInterceptor(Store())])

    assert text_of(await collected(client.send_message(said("hi")))) == "hi"


async def test_what_the_sdk_knows_of_a_call_is_in_holdfasts_context():
    seen = []

    class Looking(BaseLayer):
        def handle(self, call, call_next):
            seen.append(call.context.state)
            return call_next(call)

    state = {"user": "ann"}
    transport = transport_of(FakeAgent(), call_layers=[Looking])
    await transport.list_tasks(pb.ListTasksRequest(), context=ClientCallContext(state=state))

    assert seen == [state]


@both_bindings
async def test_a_timeout_is_the_deadline_of_a_call(binding):
    agent = FakeAgent()
    agent.inject(Stall(), times=9)
    transport = transport_of(agent, binding)

    with pytest.raises(A2AClientTimeoutError) as caught:
        await transport.get_task(
            pb.GetTaskRequest(id="task-1"), context=ClientCallContext(timeout=200.0)
        )

    assert now() == 200
    assert isinstance(caught.value, CallTimeoutError)
    assert isinstance(caught.value.__cause__, holdfast.DeadlineExceededError)


@both_bindings
async def test_a_timeout_beyond_that_of_an_attempt_lets_the_attempt_take_so_long(binding):
    agent = FakeAgent()
    agent.inject(Delay(seconds=300.0), on="SendMessage")

    await transport_of(agent, binding).send_message(
        said(), context=ClientCallContext(timeout=400.0)
    )

    assert now() == 300
    assert [call.operation for call in agent.received] == ["SendMessage"]


@both_bindings
async def test_the_timeout_of_a_stream_is_for_its_silence_and_not_for_the_whole(binding):
    agent = FakeAgent(streams(*"abcdef", every=4.0))
    agent.inject(Stall(phase="idle", after_events=3), on="SendStreamingMessage")
    transport = transport_of(agent, binding)

    events = await collected(
        transport.send_message_streaming(said(), context=ClientCallContext(timeout=5.0))
    )

    assert text_of(events) == "abcdef"
    cut = agent.calls("SubscribeToTask")[0]
    assert cut.at < 15  # not after the 120 s of the client's own


# ── Tenants ──────────────────────────────────────────────────────────────────────────────────


def tenant_of(call):
    if call.url.endswith("/rpc"):
        return json.loads(call.body)["params"].get("tenant", "")
    return call.url.partition("/rest")[2].rpartition("/tasks")[0].strip("/").partition("/")[0]


@both_bindings
async def test_each_request_goes_to_the_tenant_that_it_names(binding):
    agent = FakeAgent(STORY)
    transport = transport_of(agent, binding)
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")

    await collected(transport.send_message_streaming(said(tenant="ann")))
    for tenant in ("bob", "", "ann"):
        await transport.list_tasks(pb.ListTasksRequest(tenant=tenant))
        await transport.get_task(pb.GetTaskRequest(tenant=tenant, id="task-1"))

    followed = [
        tenant_of(call) for call in agent.received if call.operation in {"GetTask", "ListTasks"}
    ]
    assert followed[-6:] == ["bob", "bob", "", "", "ann", "ann"]
    assert set(followed[:-6]) == {"ann"}
    [again] = agent.calls("SubscribeToTask")
    assert "ann" in (tenant_of(again), again.url.partition("/rest/")[2].partition("/")[0])


async def test_the_tenant_of_the_interface_comes_from_the_sdk():
    agent = FakeAgent()
    client = client_of(agent, card=card_of(agent, "JSONRPC", tenant="acme"))

    await client.list_tasks(pb.ListTasksRequest())
    await client.list_tasks(pb.ListTasksRequest(tenant="other"))

    assert [tenant_of(call) for call in agent.received] == ["acme", "other"]


async def test_an_agent_of_an_older_protocol_is_not_asked_for_a_tenant():
    agent = FakeAgent(versions=("0.3",))
    card = card_of(agent, "JSONRPC", version="0.3.0")
    transport = HoldfastTransport(card, f"{agent.url}/rpc", engine=FakeNetwork(agent))

    with pytest.raises(VersionNotSupportedError, match="has no tenants"):
        await transport.get_task(pb.GetTaskRequest(id="task-1", tenant="ann"))


@both_bindings
@streaming_or_not
async def test_the_tenant_that_a_card_names_for_the_older_protocol_is_left_out(streaming, binding):
    agent = FakeAgent(STORY, versions=("0.3",))
    card = card_of(agent, binding, version="0.3.0", tenant="acme")
    client = client_of(agent, binding, card=card, streaming=streaming)

    assert text_of(await collected(client.send_message(said()))) == "Hello, world!"
    await client.get_task(pb.GetTaskRequest(id="task-1"))

    assert "acme" not in str([(call.url, call.body) for call in agent.received])


# ── Errors ───────────────────────────────────────────────────────────────────────────────────


@both_bindings
@streaming_or_not
async def test_an_unknown_outcome_names_the_message(streaming, binding):
    agent = FakeAgent(lists_tasks=False, records_messages=False)
    agent.inject(Reset(after_execution=True))
    client = client_of(agent, binding, streaming=streaming)

    with pytest.raises(CallFailedError) as caught:
        await collected(client.send_message(said()))

    assert (caught.value.message_id, caught.value.executed) == ("m-1", None)
    assert isinstance(caught.value.__cause__, holdfast.OutcomeUnknownError)
    assert tasks_made(agent) == {"m-1": 1}


@both_bindings
async def test_wrong_input_is_an_error_of_the_sdk(binding):
    transport = transport_of(FakeAgent(), binding)
    with pytest.raises(InvalidParamsError):
        await transport.cancel_task(pb.CancelTaskRequest())
    with pytest.raises(InvalidParamsError):
        await collected(transport.subscribe(pb.SubscribeToTaskRequest()))
    with pytest.raises(InvalidParamsError):
        await transport.send_message(said(metadata={"n": float("nan")}))
    bad = ClientCallContext(service_parameters={"x": "a\nb"})
    with pytest.raises(A2AClientError, match="line break"):
        await transport.list_tasks(pb.ListTasksRequest(), context=bad)
    with pytest.raises(A2AClientError, match="timeout"):
        await transport.list_tasks(pb.ListTasksRequest(), context=ClientCallContext(timeout=-1.0))
    with pytest.raises(TaskNotFoundError):
        await transport.get_task(pb.GetTaskRequest(id="nope"))


@both_bindings
async def test_a_cancel_that_was_lost_and_tried_again_counts(binding):
    agent = FakeAgent(works_forever())
    transport = transport_of(agent, binding)
    at_once = pb.SendMessageConfiguration(return_immediately=True)
    task = (await transport.send_message(said(configuration=at_once))).task
    agent.inject(Reset(after_execution=True), on="CancelTask")

    canceled = await transport.cancel_task(pb.CancelTaskRequest(id=task.id))

    assert canceled.status.state == pb.TASK_STATE_CANCELED
    with pytest.raises(TaskNotCancelableError):
        await transport.cancel_task(pb.CancelTaskRequest(id=task.id))


@both_bindings
async def test_a_configuration_is_made_found_and_deleted(binding):
    agent = FakeAgent(works_forever())
    transport = transport_of(agent, binding)
    at_once = pb.SendMessageConfiguration(return_immediately=True)
    task = (await transport.send_message(said(configuration=at_once))).task
    wanted = pb.TaskPushNotificationConfig(task_id=task.id, url="https://me.test/push", token="t")

    made = await transport.create_task_push_notification_config(wanted)
    named = {"task_id": task.id, "id": made.id}
    one = pb.GetTaskPushNotificationConfigRequest(**named)
    assert await transport.get_task_push_notification_config(one) == made
    of_task = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
    listed = await transport.list_task_push_notification_configs(of_task)
    assert list(listed.configs) == [made]
    agent.inject(Reset(after_execution=True), on="DeleteTaskPushNotificationConfig")
    gone = pb.DeleteTaskPushNotificationConfigRequest(**named)
    assert await transport.delete_task_push_notification_config(gone) is None
    assert not (await transport.list_task_push_notification_configs(of_task)).configs


@both_bindings
async def test_the_extended_card_is_fetched_where_the_card_speaks_of_one(binding):
    agent = FakeAgent()
    request = pb.GetExtendedAgentCardRequest()
    plain = card_of(agent)
    plain.capabilities.extended_agent_card = False
    url = agent.url + PATHS[binding]
    without = HoldfastTransport(plain, url, engine=FakeNetwork(agent))

    assert await without.get_extended_agent_card(request) == plain
    assert agent.received == []
    extended = await transport_of(agent, binding).get_extended_agent_card(request)
    assert extended.name == "Fake agent, extended"


# ── The life of a transport ──────────────────────────────────────────────────────────────────


async def test_a_closed_transport_says_so_and_can_be_closed_again():
    agent = FakeAgent(STORY)
    async with transport_of(agent) as transport:
        events = transport.send_message_streaming(said())
        await anext(events)
    await transport.close()

    with pytest.raises(A2AClientError, match="closed"):
        await collected(events)
    with pytest.raises(A2AClientError, match="closed"):
        await transport.get_task(pb.GetTaskRequest(id="task-1"))
    with pytest.raises(A2AClientError, match="closed"):
        await collected(transport.send_message_streaming(said()))
    assert agent.open_streams == 0


async def test_failed_close_is_an_error_of_the_sdk():
    class Stubborn(BaseLayer):
        async def close(self):
            raise OSError("stuck")

    with pytest.raises(A2AClientError, match="stuck"):
        await transport_of(FakeAgent(), call_layers=[Stubborn]).close()


def test_a_transport_continues_in_a_second_event_loop():
    agent = FakeAgent()
    transport = transport_of(agent)

    async def once(number):
        request = said()
        request.message.message_id = f"m-{number}"
        await collected(transport.send_message_streaming(request))

    for number in range(2):
        run(once(number))

    assert tasks_made(agent) == {"m-0": 1, "m-1": 1}


async def test_holdfasts_client_is_there_for_what_the_sdk_has_no_word_for():
    transport = transport_of(FakeAgent())
    await transport.send_message(said())

    assert transport.client.circuit.state == "closed"


@streaming_or_not
async def test_messages_are_in_the_journal_until_their_answer_is_known(streaming, tmp_path):
    agent = FakeAgent(completes("done", after=5))
    transport = transport_of(agent, journal=tmp_path / "calls.db")

    async def sent(request):
        if streaming:
            await collected(transport.send_message_streaming(request))
        else:
            await transport.send_message(request)

    await sent(said())
    assert await transport.client.pending() == []
    left = said()
    left.message.message_id = "m-2"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(sent(left), 1)
    [pending] = await transport.client.pending()
    assert pending.message_id == "m-2"
    await transport.close()


# ── The address and the card ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("binding", ["GRPC", "nonsense", 7])
def test_a_binding_that_is_none_of_holdfasts_is_an_error(binding):
    with pytest.raises((TypeError, ValueError), match="protocol_binding"):
        HoldfastTransport(card_of(FakeAgent()), "http://a.test", protocol_binding=binding)


@pytest.mark.parametrize("binding", [*PATHS, None])
async def test_the_address_that_the_sdk_chose_is_the_one_that_counts(binding):
    agent, other = FakeAgent(url="http://one.test"), FakeAgent(url="http://two.test")
    card = card_of(other, *PATHS)
    network = FakeNetwork(agent, other)
    url = agent.url + PATHS[binding or "JSONRPC"]
    transport = HoldfastTransport(card, url, protocol_binding=binding, engine=network)

    await transport.send_message(said())
    await transport.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
    await transport.send_message(said())

    assert {call.url.partition("/r")[0] for call in agent.received} == {agent.url}
    assert other.received == []


async def test_the_address_that_the_sdk_chose_counts_as_the_callers_and_reach_bounds_it():
    agent = FakeAgent(url="http://inside.test")

    def inside():
        return FakeNetwork(agent, addresses={"inside.test": "10.0.0.1"})

    await transport_of(agent, engine=inside()).send_message(said())
    with pytest.raises(A2AClientError) as caught:
        await transport_of(agent, engine=inside(), reach="public").send_message(said("more"))

    assert isinstance(caught.value.__cause__, holdfast.errors.NetworkPolicyError)
    assert len(agent.executions) == 1


@pytest.mark.parametrize("url", ["", "ftp://a.test/", "http://ann:s3cret@a.test/rpc"])
def test_an_address_that_cannot_be_right_is_the_sdks_own_error(url):
    card = card_of(FakeAgent(), "JSONRPC")
    card.supported_interfaces[0].url = url

    with pytest.raises(AgentCardResolutionError, match=r"supportedInterfaces\[0\]\.url") as caught:
        client_factory().create(card)
    assert isinstance(caught.value.__cause__, holdfast.errors.InvalidAgentCardError)
    assert "s3cret" not in f"{caught.value!r} {caught.value.__cause__!r}"


@both_bindings
async def test_a_minimal_card_is_enough(binding):
    agent = FakeAgent(STORY)
    config = ClientConfig(supported_protocol_bindings=[binding])
    factory = client_factory(config, engine=FakeNetwork(agent))
    client = factory.create(minimal_agent_card(agent.url + PATHS[binding], [binding]))

    card = await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
    events = await collected(client.send_message(said()))

    assert card.name == "Fake agent, extended"
    assert text_of(events) == "Hello, world!"
    assert len(agent.calls("SendStreamingMessage")) == 1  # the public card declared no streams


async def test_an_agent_of_the_older_protocol_is_spoken_to_as_it_declares():
    agent = FakeAgent(STORY, versions=("0.3",))
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    client = client_of(agent, card=card_of(agent, "JSONRPC", version="0.3.0"))

    assert text_of(await collected(client.send_message(said()))) == "Hello, world!"


# ── A lent httpx client ──────────────────────────────────────────────────────────────────────


def lending(client, **more):
    return ClientConfig(httpx_client=client, **more)


@both_bindings
async def test_headers_cookies_and_a_password_of_a_borrowed_client_come_along(binding):
    agent = FakeAgent()
    lent = httpx.AsyncClient(
        headers={"x-key": "one", "user-agent": "mine"},
        cookies={"sid": "cookie"},
        auth=("ann", "pass"),
    )
    transport = transport_of(agent, binding, config=lending(lent))
    await transport.list_tasks(pb.ListTasksRequest())
    lent.headers["x-key"] = "two"  # as those do who renew their tokens
    await transport.list_tasks(
        pb.ListTasksRequest(),
        context=ClientCallContext(service_parameters={"Cookie": "sid=of-the-call"}),
    )
    await lent.aclose()

    first, second = (call.headers for call in agent.received)
    assert (first["x-key"], second["x-key"]) == ("one", "two")
    assert first["authorization"] == httpx.BasicAuth("ann", "pass")._auth_header
    assert (first["cookie"], second["cookie"]) == ("sid=cookie", "sid=of-the-call")
    assert first["a2a-version"] == "1.0"
    assert "python-httpx" not in str(first)


async def test_a_cookie_of_another_host_does_not_come_along():
    agent = FakeAgent()
    lent = httpx.AsyncClient()
    lent.cookies.set("sid", "s3cret", domain="elsewhere.test")
    await transport_of(agent, config=lending(lent)).list_tasks(pb.ListTasksRequest())
    await lent.aclose()

    assert "cookie" not in agent.received[0].headers


@both_bindings
@pytest.mark.parametrize(
    ("timeout", "seconds"), [(7.0, 7), (None, 900), (5.0, 120), (httpx.Timeout(5, read=9), 9)]
)
async def test_timeouts_of_a_borrowed_client_are_those_of_an_attempt(timeout, seconds, binding):
    agent = FakeAgent()
    agent.inject(Stall())
    lent = httpx.AsyncClient(timeout=timeout)
    config = RetryConfig(max_retries=0)
    transport = transport_of(agent, binding, config=lending(lent), retry_config=config)

    with pytest.raises(A2AClientTimeoutError):
        await transport.list_tasks(pb.ListTasksRequest())
    await lent.aclose()

    assert now() == seconds


async def test_what_a_caller_says_of_limits_counts_before_those_of_a_borrowed_client():
    agent = FakeAgent()
    agent.inject(Stall())
    resilience = Resilience(timeouts=Timeouts(first_byte=3), retry=RetryPolicy(max_retries=0))
    async with httpx.AsyncClient(timeout=7) as lent:
        transport = transport_of(agent, config=lending(lent), resilience=resilience)
        with pytest.raises(A2AClientTimeoutError):
            await transport.list_tasks(pb.ListTasksRequest())

    assert now() == 3


async def hook(_request):
    """Does nothing."""


CANNOT_COME = {
    "auth": ({"auth": httpx.DigestAuth("ann", "pass")}, {"auth": "Bearer t"}),
    "params": ({"params": {"key": "1"}}, {"auth": "Bearer t"}),
    "event_hooks": ({"event_hooks": {"request": [hook]}}, {"observers": [print]}),
    "transport": ({"transport": httpx.MockTransport(hook)}, {"engine": FakeNetwork()}),
    "proxy": ({"proxy": "http://proxy.test:8080"}, {"engine": FakeNetwork()}),
    "mounts": ({"mounts": {"http://": httpx.MockTransport(hook)}}, {"engine": FakeNetwork()}),
    "proxy below": (
        {"transport": httpx.AsyncHTTPTransport(proxy="http://proxy.test:8080")},
        {"engine": FakeNetwork()},
    ),
    "local address": (
        {"transport": httpx.AsyncHTTPTransport(local_address="127.0.0.1")},
        {"engine": FakeNetwork()},
    ),
    "retries": (
        {"transport": httpx.AsyncHTTPTransport(retries=3)},
        {"resilience": Resilience()},
    ),
    "no verification": ({"verify": False}, {"engine": FakeNetwork()}),
    "a context": ({"verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)}, {"engine": FakeNetwork()}),
    "socket": ({"transport": httpx.AsyncHTTPTransport(uds="/a/b")}, {"engine": FakeNetwork()}),
}


@pytest.mark.parametrize(("settings", "instead"), CANNOT_COME.values(), ids=CANNOT_COME)
async def test_what_cannot_come_along_is_said_and_what_to_pass_instead(settings, instead):
    agent = FakeAgent()
    async with httpx.AsyncClient(**settings) as lent:
        factory = client_factory(lending(lent))
        with pytest.raises(ValueError, match="httpx_client of the configuration has") as caught:
            factory.create(card_of(agent))
        assert f"pass {next(iter(instead))}=" in str(caught.value)
        assert "to client_factory instead" in str(caught.value)
        assert "HoldfastTransport" not in str(caught.value)
        with pytest.raises(ValueError, match="httpx_client of the configuration has"):
            client_factory(lending(lent), **dict.fromkeys(instead)).create(card_of(agent))
        client_factory(lending(lent), **instead).create(card_of(agent))


async def test_a_proxy_of_the_programs_own_is_not_taken_for_one_of_the_environment(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.test:8080")
    async with httpx.AsyncClient(proxy="http://other.test:8080") as lent:
        with pytest.raises(ValueError, match="has a proxy"):
            client_factory(lending(lent)).create(card_of(FakeAgent()))


@both_bindings
async def test_a_borrowed_client_may_be_one_that_holdfast_carries_already(binding):
    agent = FakeAgent(STORY)
    agent.inject(Cut(after_events=2), on="SendStreamingMessage")
    network, headers = FakeNetwork(agent), {"x-key": "one"}
    config = ClientConfig(supported_protocol_bindings=[binding])
    async with httpx.AsyncClient(transport=Transport(), headers=headers) as lent:
        config.httpx_client = lent
        client = client_factory(config, engine=network).create(card_of(agent, binding))
        assert text_of(await collected(client.send_message(said()))) == "Hello, world!"
        client_factory(config).create(card_of(agent, binding))
    async with httpx.AsyncClient(transport=Transport(engine=network)) as lent:
        config.httpx_client = lent
        with pytest.raises(ValueError, match=r"transport=Transport\(engine=…\).*pass engine="):
            client_factory(config).create(card_of(agent, binding))

    assert {call.headers["x-key"] for call in agent.received} == {"one"}
    assert tasks_made(agent) == {"m-1": 1}


@pytest.mark.parametrize(("trusts", "is_right"), [(True, True), (False, False)])
async def test_a_client_that_is_to_take_no_proxy_of_the_environment(trusts, is_right, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.test:8080")
    told = contextlib.nullcontext() if is_right else pytest.raises(ValueError, match="trust_env")
    async with httpx.AsyncClient(trust_env=trusts) as lent:
        with told:
            client_factory(lending(lent)).create(card_of(FakeAgent()))


@pytest.mark.parametrize(
    "given", [{"auth": "Bearer mine"}, {"headers": {"authorization": "Bearer mine"}}]
)
async def test_credentials_passed_by_name_count_before_those_of_a_borrowed_client(given):
    agent = FakeAgent(token="mine")
    async with httpx.AsyncClient(headers={"Authorization": "Bearer lent"}) as lent:
        transport = transport_of(agent, config=lending(lent), **given)
        await transport.list_tasks(pb.ListTasksRequest())


# ── How to try again ─────────────────────────────────────────────────────────────────────────


@both_bindings
async def test_a_retry_config_says_how_to_try_again_in_the_sdks_terms(binding):
    agent = FakeAgent()
    agent.inject(unavailable(), times=9)
    asked, told = [], []

    async def on_retry(attempt, error, delay):
        told.append((attempt, type(error), delay <= 8))
        raise RuntimeError("the retry continues")

    config = RetryConfig(
        max_retries=2,
        base_delay=4.0,
        max_delay=8.0,
        retry_predicate=lambda error: asked.append(error) or True,
        on_retry=on_retry,
    )
    with pytest.raises(CallFailedError) as caught:
        await transport_of(agent, binding, retry_config=config).get_task(pb.GetTaskRequest(id="t"))

    assert told == [(1, CallFailedError, True), (2, CallFailedError, True)]
    assert all(isinstance(error.__cause__, holdfast.A2AError) for error in asked)
    assert (caught.value.http_status, len(caught.value.attempts)) == (503, 3)


async def test_a_predicate_that_says_no_is_believed():
    agent = FakeAgent()
    agent.inject(unavailable(), times=9)
    config = RetryConfig(retry_predicate=lambda _error: False)

    with pytest.raises(CallFailedError) as caught:
        await transport_of(agent, retry_config=config).get_task(pb.GetTaskRequest(id="t"))

    assert len(caught.value.attempts) == 1


@pytest.mark.parametrize(("resends", "times"), [(True, 2), (False, 1)])
async def test_a_message_whose_reply_was_lost_is_sent_again_only_where_the_caller_says_so(
    resends, times
):
    agent = FakeAgent(lists_tasks=False, records_messages=False)
    agent.inject(Reset(after_execution=True), on="SendMessage")
    config = RetryConfig(resend_ambiguous=resends)
    transport = transport_of(agent, retry_config=config)

    if resends:
        await transport.send_message(said())
    else:
        with pytest.raises(CallFailedError):
            await transport.send_message(said())

    assert tasks_made(agent) == {"m-1": times}


async def test_the_time_of_a_retry_config_is_that_of_a_call():
    agent = FakeAgent()
    agent.inject(Stall(), times=9)
    transport = transport_of(agent, retry_config=RetryConfig(timeout=7.0))

    with pytest.raises(A2AClientTimeoutError):
        await transport.get_task(pb.GetTaskRequest(id="t"))

    assert now() == 7


@pytest.mark.parametrize(
    "make", [client_factory, lambda **given: transport_of(FakeAgent(), **given)]
)
def test_to_say_it_twice_is_an_error(make):
    with pytest.raises(ValueError, match="pass only one of them"):
        make(retry_config=RetryConfig(), resilience=Resilience())


@pytest.mark.parametrize(
    "given", [{"retry_config": {"max_retries": 3}}, {"resilience": 3}, {"nonsense": 1}]
)
def test_what_is_of_another_kind_is_an_error_at_once(given):
    with pytest.raises(TypeError):
        client_factory(**given).create(card_of(FakeAgent()))


# ── The factory ──────────────────────────────────────────────────────────────────────────────


async def program(factory, card):
    """A program as its author wrote it for the SDK's own factory."""
    async with factory.create(card) as client:
        return text_of(await collected(client.send_message(said())))


async def test_a_program_holds_fast_by_the_one_line_that_changes():
    agent = FakeAgent(STORY)
    agent.inject(unavailable(1), on="SendStreamingMessage")
    agent.inject(Cut(after_events=4, clean=True), on="SendStreamingMessage")

    config = ClientConfig()
    factory = client_factory(config, engine=FakeNetwork(agent))  # was: ClientFactory(config)

    assert isinstance(factory, ClientFactory)
    assert await program(factory, card_of(agent)) == "Hello, world!"
    assert tasks_made(agent) == {"m-1": 1}


@pytest.mark.parametrize("label", ["JSONRPC", "HTTP+JSON", "GRPC", "OWN"])
async def test_a_producer_of_the_callers_wins_and_is_tried_again(label):
    made = []
    config = ClientConfig(supported_protocol_bindings=[label])
    factory = client_factory(config, retry_config=RetryConfig(base_delay=0.5), env=Dice())
    factory.register(label, lambda *given: made.append(Own(*given)) or made[-1])
    card = pb.AgentCard(
        name="a", supported_interfaces=[pb.AgentInterface(url="own://a", protocol_binding=label)]
    )

    client = factory.create(card)
    task = await client.get_task(pb.GetTaskRequest(id="t"))
    await client.close()

    [own] = made
    assert (task.id, own.asked, own.is_closed) == ("t", 3, True)
    assert own.given == (card, "own://a", config)


@pytest.mark.parametrize("kind", [HoldfastTransport, RetryTransport])
async def test_what_tries_again_by_itself_is_left_as_it_is(kind):
    agent = FakeAgent()
    factory = client_factory(engine=FakeNetwork(agent))
    made = []

    def produce(card, url, config):
        transport = HoldfastTransport(card, url, config, engine=FakeNetwork(agent))
        made.append(transport if kind is HoldfastTransport else RetryTransport(transport))
        return made[-1]

    factory.register("JSONRPC", produce)

    assert factory.create(card_of(agent))._transport is made[0]


@pytest.mark.parametrize(
    ("supported", "expected"),
    [([], "/rpc"), (["HTTP+JSON", "JSONRPC"], "/rpc"), (["HTTP+JSON"], "/rest")],
)
async def test_the_sdk_chooses_the_interface_as_before(supported, expected):
    agent = FakeAgent()
    config = ClientConfig(supported_protocol_bindings=supported)
    client = client_factory(config, engine=FakeNetwork(agent)).create(card_of(agent))

    await client.list_tasks(pb.ListTasksRequest())

    assert expected in agent.received[0].url


@pytest.mark.real_time
async def test_grpc_is_made_as_before_and_tried_again():
    opened = []

    def channel(url):
        opened.append(grpc.aio.insecure_channel(url))
        return opened[-1]

    config = ClientConfig(supported_protocol_bindings=["GRPC"], grpc_channel_factory=channel)
    interface = pb.AgentInterface(url="127.0.0.1:1", protocol_binding="GRPC")
    card = pb.AgentCard(name="a", supported_interfaces=[interface])
    told = []
    retry_config = RetryConfig(
        base_delay=0, max_retries=2, on_retry=lambda attempt, *_: told.append(attempt)
    )

    async with client_factory(config, retry_config=retry_config).create(card) as client:
        with pytest.raises(A2AClientError):
            await client.get_task(pb.GetTaskRequest(id="t"))

    assert (len(opened), told) == (1, [1, 2])
    assert opened[0].get_state() is grpc.ChannelConnectivity.SHUTDOWN


async def test_clients_of_a_factory_share_what_is_known_of_an_agent():
    agent = FakeAgent()
    agent.inject(Refuse(), times=5)
    factory = client_factory(retry_config=RetryConfig(max_retries=0), engine=FakeNetwork(agent))
    for _ in range(5):
        with pytest.raises(A2AClientError):
            await factory.create(card_of(agent)).get_task(pb.GetTaskRequest(id="t"))

    with pytest.raises(CallFailedError, match="circuit"):
        await factory.create(card_of(agent)).get_task(pb.GetTaskRequest(id="t"))


async def test_what_others_know_of_agents_is_shared_from_before_anybody_has_called_one():
    agent, shared = FakeAgent(), Endpoints()
    agent.inject(Refuse(), times=5)
    network, once = FakeNetwork(agent), RetryConfig(max_retries=0)
    factory = client_factory(retry_config=once, engine=network, shared=shared)
    client = factory.create(card_of(agent))
    async with connect(agent.url, engine=network, shared=shared) as other:
        for _ in range(5):
            with pytest.raises(A2AClientError):
                await client.get_task(pb.GetTaskRequest(id="t"))
        with pytest.raises(CircuitOpenError):
            await other.get_task("t")


async def test_observers_see_what_the_sdks_client_does():
    seen = []
    agent = FakeAgent()
    agent.inject(unavailable(1))
    observers = [lambda told: seen.append(type(told))]
    client = client_of(agent, observers=observers, streaming=False)

    await collected(client.send_message(said()))

    assert RetryScheduled in seen
    assert OperationFinished in seen


def card_server(agent, faults):
    """A lent client for which cards are there after some failures."""
    asked = []

    async def answer(request):
        asked.append(request)
        if len(asked) <= len(faults):
            fault = faults[len(asked) - 1]
            if isinstance(fault, Exception):
                raise fault
            return fault
        return httpx.Response(200, json=MessageToDict(card_of(agent)))

    return httpx.AsyncClient(transport=httpx.MockTransport(answer)), asked


async def test_the_card_behind_an_address_is_fetched_as_often_as_it_takes():
    agent = FakeAgent()
    faults = [httpx.ConnectError("away"), httpx.Response(503, headers={"retry-after": "2"})]
    lent, asked = card_server(agent, faults)
    factory = client_factory(lending(lent), engine=FakeNetwork(agent), env=Dice())

    client = await factory.create_from_url(agent.url)
    await collected(client.send_message(said()))
    await lent.aclose()

    assert [str(request.url) for request in asked] == [
        f"{agent.url}/.well-known/agent-card.json"
    ] * 3
    assert now() >= 2
    assert tasks_made(agent) == {"m-1": 1}


@pytest.mark.parametrize(("status", "times"), [(404, 1), (503, 4)])
async def test_a_card_that_is_not_there_is_the_sdks_own_error(status, times):
    lent, asked = card_server(FakeAgent(), [httpx.Response(status)] * 9)
    factory = client_factory(lending(lent), engine=FakeNetwork(), env=Dice())

    with pytest.raises(AgentCardResolutionError) as caught:
        await factory.create_from_url("http://agent.test")
    await lent.aclose()

    assert caught.value.status_code == status
    assert len(asked) == times
