"""Objects of the official SDK in Holdfast's own client: refused, with advice that works."""

import json
import re
import subprocess

import httpx
import pytest
from a2a.client import AuthInterceptor as SdkAuthInterceptor
from a2a.client import (
    ClientCallContext,
    ClientCallInterceptor,
    ClientConfig,
    InMemoryContextCredentialStore,
)
from a2a.client.transports import JsonRpcTransport
from a2a.types import Role as SdkRole
from a2a.types import TaskState as SdkTaskState
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict
from tests.kit.real_agents import LIMIT, PACKAGE, sdk_python
from tests.kit.sdk_clients import card_of

import holdfast
from holdfast import Role, TaskState, compat, connect, types
from holdfast.client import Answer
from holdfast.extend import Interceptor
from holdfast.integrations.a2a_sdk import (
    HoldfastTransport,
    RetryConfig,
    RetryTransport,
    client_factory,
    to_proto,
    to_value,
)
from holdfast.integrations.httpx import Transport
from holdfast.protocol import OPERATIONS
from holdfast.server import A2AServer
from holdfast.testing import FakeAgent, FakeNetwork

TASK = pb.Task(id="1", context_id="c", status=pb.TaskStatus(state=pb.TASK_STATE_WORKING))
REQUEST = pb.SendMessageRequest(
    message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hi")])
)
PUSH = pb.TaskPushNotificationConfig(task_id="1", url="https://me.example/push")
CONTEXT = ClientCallContext(state={"a": 1}, timeout=5, service_parameters={"x-team": "moon"})


class OfSdk(ClientCallInterceptor):
    async def before(self, args): ...

    async def after(self, args): ...


class OfHoldfast(Interceptor): ...


class Early(Interceptor):
    async def before(self, call):
        return holdfast.extend.Reply(value=TASK)


AGENT = FakeAgent()


def made(**options):
    return connect(AGENT.url, engine=FakeNetwork(FakeAgent()), **options)


def on_sdk_card(interceptor):
    return client_factory(engine=FakeNetwork(AGENT)).create(card_of(AGENT), [interceptor])


MESSAGE = to_value(REQUEST.message, types.Message)
CASES = {
    "message": (lambda: made().ask(REQUEST), lambda: made().ask(REQUEST.message), "its message"),
    "role": (
        lambda: made().ask(types.Message(role=pb.ROLE_USER, parts=MESSAGE.parts)),
        lambda: made().ask(
            types.Message(role=Role(SdkRole.Name(pb.ROLE_USER)), parts=MESSAGE.parts)
        ),
        r"not int; pass a member such as Role\.USER; .* holdfast\.Role\(a2a\.types\.Role\.Name\(",
    ),
    "state": (
        lambda: made().list_tasks(status=pb.TASK_STATE_WORKING),
        lambda: made().list_tasks(status=TaskState(SdkTaskState.Name(pb.TASK_STATE_WORKING))),
        r"holdfast\.TaskState\(a2a\.types\.TaskState\.Name\(…\)\)",
    ),
    "id": (lambda: made().get_task(TASK), None, "a2a_pb2.Task of the official SDK; pass its id"),
    "id of a request": (
        lambda: made().list_task_push_notification_configs(
            pb.ListTaskPushNotificationConfigsRequest(task_id="1")
        ),
        None,
        "of the official SDK; pass its task_id$",
    ),
    "ids of a request": (
        lambda: made().get_task_push_notification_config(
            pb.GetTaskPushNotificationConfigRequest(task_id="1", id="2"), "2"
        ),
        None,
        "of the official SDK; pass its task_id and its id$",
    ),
    "push config of a message": (
        lambda: made().send_message("hi", push_notification_config=PUSH),
        lambda: made().send_message(
            "hi", push_notification_config=to_value(PUSH, types.TaskPushNotificationConfig)
        ),
        r"to_value\(…, holdfast\.types\.TaskPushNotificationConfig\)",
    ),
    "push config": (
        lambda: made().create_task_push_notification_config(PUSH),
        None,
        r"to_value\(…, holdfast\.types\.TaskPushNotificationConfig\)",
    ),
    "configuration": (
        lambda: made(configuration=pb.SendMessageConfiguration()),
        lambda: made(
            configuration=to_value(pb.SendMessageConfiguration(), types.SendMessageConfiguration)
        ),
        r"to_value\(…, holdfast\.types\.SendMessageConfiguration\)",
    ),
    "conversation": (
        lambda: made().conversation(task=TASK),
        lambda: made().conversation(task=to_value(TASK, types.Task)),
        r"to_value\(…, holdfast\.types\.Task\)",
    ),
    "request of call": (
        lambda: made().call(OPERATIONS["ListTasks"], pb.ListTasksRequest()),
        lambda: made().call(
            OPERATIONS["ListTasks"], to_value(pb.ListTasksRequest(), types.ListTasksRequest)
        ),
        r"to_value\(…, holdfast\.types\.ListTasksRequest\)",
    ),
    "metadata": (
        lambda: made().ask("hi", metadata={"task": TASK}),
        lambda: made().ask("hi", metadata={"task": MessageToDict(TASK)}),
        r"must be JSON, .*; pass what google\.protobuf\.json_format\.MessageToDict\(…\) gives",
    ),
    "context": (
        lambda: made().ask("hi", context=CONTEXT),
        lambda: made().ask(
            "hi",
            context=holdfast.auth.ClientCallContext(state=CONTEXT.state),
            timeout=CONTEXT.timeout,
            headers=CONTEXT.service_parameters,
        ),
        r"pass holdfast\.auth\.ClientCallContext\(state=….state\), its timeout as timeout=",
    ),
    "config": (
        lambda: compat.ClientFactory(ClientConfig()),
        None,
        r"pass holdfast\.compat\.ClientConfig\(…\), which has engine= in place of httpx_client=",
    ),
    "interceptor": (
        lambda: made(interceptors=[OfSdk()]),
        lambda: made(interceptors=[OfHoldfast()]),
        r"OfSdk is an interceptor of the official SDK; derive it from holdfast\.extend\.Intercep",
    ),
    "interceptor of compat": (
        lambda: compat.ClientFactory().create(AGENT.url, interceptors=[OfSdk()]),
        None,
        r"derive it from holdfast\.extend\.Interceptor",
    ),
    "interceptor added later": (
        lambda: made().add_request_middleware(OfSdk()),
        lambda: made().add_request_middleware(OfHoldfast()),
        r"derive it from holdfast\.extend\.Interceptor",
    ),
    "credentials": (
        lambda: made(interceptors=[SdkAuthInterceptor(InMemoryContextCredentialStore())]),
        lambda: made(auth=InMemoryContextCredentialStore()),
        "credentials are passed as auth=",
    ),
    "Holdfast's interceptor in the SDK": (
        lambda: on_sdk_card(OfHoldfast()),
        lambda: on_sdk_card(OfSdk()),
        r"OfHoldfast is not an interceptor .*: derive it from a2a\.client\.ClientCallInterceptor",
    ),
    "Holdfast's interceptor, added later": (
        lambda: on_sdk_card(OfSdk()).add_interceptor(OfHoldfast()),
        lambda: on_sdk_card(OfSdk()).add_interceptor(OfSdk()),
        r"OfHoldfast is not an interceptor .*: derive it from a2a\.client\.ClientCallInterceptor",
    ),
    "Holdfast's credentials in the SDK": (
        lambda: client_factory().create_from_url(
            AGENT.url, [compat.AuthInterceptor(compat.InMemoryContextCredentialStore())]
        ),
        None,
        r"holdfast\S+AuthInterceptor is not an interceptor of the official SDK",
    ),
    "transport": (
        lambda: compat.ClientFactory().register("JSONRPC", HoldfastTransport),
        None,
        "HoldfastTransport is a transport of the official SDK: register it in a factory of the S",
    ),
    "transport of connect": (
        lambda: made(transport_producers={"JSONRPC": HoldfastTransport}),
        made,
        "Holdfast's own client needs none for JSONRPC",
    ),
    "client": (
        lambda: connect(on_sdk_card(OfSdk())),
        made,
        "BaseClient of the official SDK; pass the agent's URL or card",
    ),
    "client of a RetryTransport": (
        lambda: RetryTransport(on_sdk_card(OfSdk())),
        None,
        r"transport must be ClientTransport, not a client; use client_factory\(…\)",
    ),
    "request of a list": (
        lambda: made().list_tasks(pb.ListTasksRequest()),
        lambda: made().list_tasks(context_id="c", limit=10),
        r"pass its fields by keyword, such as context_id=….context_id and limit=….page_size",
    ),
    "dict to convert": (
        lambda: to_value({"url": "https://me.example"}, types.TaskPushNotificationConfig),
        lambda: types.TaskPushNotificationConfig.from_dict({"url": "https://me.example"}),
        r"not dict; .* use holdfast\.types\.TaskPushNotificationConfig\.from_dict",
    ),
    "answer to convert": (
        lambda: to_proto(Answer(task=to_value(TASK, types.Task)), pb.Task),
        lambda: to_proto(to_value(TASK, types.Task), pb.Task),
        "value must be of holdfast.types, not Answer; pass its task or its message",
    ),
    "httpx client as an engine": (
        lambda: connect(AGENT.url, engine=httpx.AsyncClient()),
        None,
        r"engine must be an HttpEngine, not AsyncClient; .* pass AiohttpEngine\(…\)",
    ),
    "httpx transport as an engine": (
        lambda: connect(AGENT.url, engine=Transport()),
        None,
        "engine must be an HttpEngine, not Transport",
    ),
    "httpx transport of a blocking client": (
        lambda: httpx.Client(transport=Transport()).get("http://agent.test"),
        None,
        "this transport is for httpx.AsyncClient, not httpx.Client; holdfast.sync is for",
    ),
    "retries of an httpx transport": (
        lambda: Transport(retries=3),
        lambda: Transport(resilience=holdfast.Resilience()),
        "'retries' is not an option of Transport; there are resilience, timeout",
    ),
    "executor class": (
        lambda: A2AServer(types.AgentCard(name="a"), executor=OfHoldfast),
        None,
        r"executor must be an instance, not the class OfHoldfast; pass OfHoldfast\(…\)",
    ),
    "early reply": (
        lambda: made(interceptors=[Early()]).get_task("1"),
        None,
        r"must be Task, not a2a_pb2\.Task of the official SDK; pass holdfast\.integ.*to_value",
    ),
    "reply of a fake agent": (
        lambda: FakeAgent(REQUEST.message),
        lambda: FakeAgent(MESSAGE),
        r"behaviour must be Message, .*to_value\(…, holdfast\.types\.Message\)",
    ),
    "card of a fake agent": (
        lambda: FakeAgent(card=card_of(AGENT)),
        lambda: FakeAgent(card=to_value(card_of(AGENT), types.AgentCard)),
        r"to_value\(…, holdfast\.types\.AgentCard\)",
    ),
    "event of a task manager": (
        lambda: compat.ClientTaskManager().process(TASK),
        lambda: compat.ClientTaskManager().process(to_value(TASK, types.Task)),
        r"to_value\(…, holdfast\.types\.Task\)",
    ),
    "agent of a coordinator": (
        lambda: holdfast.Coordinator({"a": TASK}),
        None,
        r"AgentCard, .* or a Client, not a2a_pb2\.Task of the official SDK",
    ),
    "part of a message": (
        lambda: made().ask(types.Message(parts=(pb.Part(text="x"),))),
        lambda: made().ask(types.Message(parts=(to_value(pb.Part(text="x"), types.Part),))),
        r"part 1 must be Part, not a2a_pb2\.Part of the official SDK; .*to_value",
    ),
    "Holdfast's context in the SDK": (
        lambda: listed(holdfast.auth.ClientCallContext()),
        None,
        r"context must be a2a\.client\.ClientCallContext, not holdfast",
    ),
    "class of the SDK to convert to": (
        lambda: to_value(TASK, pb.Task),
        lambda: to_value(TASK, types.Task),
        r"kind must be a class of holdfast\.types; pass holdfast\.types\.Task",
    ),
    "value of Holdfast to convert from the SDK": (
        lambda: to_value(to_value(TASK, types.Task), types.Task),
        lambda: to_value(TASK, types.Task),
        r"must be a message of the official SDK, not holdfast\.types\.Task",
    ),
    "message of the SDK to convert to the SDK": (
        lambda: to_proto(TASK, pb.Task),
        None,
        r"value must be of holdfast\.types, not a2a\.types\.Task",
    ),
    "event to convert to an envelope": (
        lambda: to_proto(to_value(TASK, types.Task), pb.StreamResponse),
        lambda: to_proto(types.StreamResponse(task=to_value(TASK, types.Task)), pb.StreamResponse),
        r"Task is not a2a\.types\.StreamResponse; pass holdfast\.types\.StreamResponse\(task=…\)",
    ),
    "message to convert to another": (
        lambda: to_proto(MESSAGE, pb.Task),
        None,
        r"holdfast\.types\.Message is not a2a\.types\.Task$",
    ),
    "httpx client of connect": (
        lambda: connect(AGENT.url, httpx_client=httpx.AsyncClient()),
        lambda: made(auth="Bearer t", headers={"x-team": "moon"}),
        "pass its credentials as auth=, its other headers as headers=, .* as engine=",
    ),
    "class of Holdfast to convert to": (
        lambda: to_proto(MESSAGE, types.Message),
        lambda: to_proto(MESSAGE, pb.Message),
        r"message_type must be a class of the official SDK; pass a2a\.types\.Message",
    ),
    "retry_config": (
        lambda: made(retry_config=RetryConfig()),
        lambda: made(resilience=holdfast.Resilience(retry=holdfast.RetryPolicy())),
        r"pass resilience=Resilience\(retry=RetryPolicy\(max_retries=…\)\)",
    ),
    "retry config as policies": (
        lambda: made(resilience=RetryConfig()),
        None,
        r"must be Resilience, not RetryConfig; pass Resilience\(retry=RetryPolicy",
    ),
    "retry policy as policies": (
        lambda: made(resilience=holdfast.RetryPolicy()),
        None,
        r"must be Resilience, not RetryPolicy; pass Resilience\(retry=…\)",
    ),
    "retry policy as a retry config": (
        lambda: client_factory(retry_config=holdfast.RetryPolicy()),
        lambda: client_factory(resilience=holdfast.Resilience(retry=holdfast.RetryPolicy())),
        r"must be RetryConfig, not RetryPolicy; pass resilience=Resilience\(retry=…\)",
    ),
    "transport as an option": (
        lambda: connect(AGENT.url, transport=OfSdk()),
        None,
        r"a transport of the official SDK goes to holdfast\.integrations\.a2a_sdk\.RetryTransport",
    ),
    "transport of a producer": (
        lambda: with_producer(lambda card, url, config: sdk_transport()),
        None,
        r"must return a Transport, not .*JsonRpcTransport of the official SDK; .*client_factory",
    ),
    "interceptor as credentials": (
        lambda: made(auth=SdkAuthInterceptor(InMemoryContextCredentialStore())),
        lambda: made(auth=InMemoryContextCredentialStore()),
        "AuthInterceptor of the official SDK; pass the credential service of the interceptor",
    ),
    "address as a card": (
        lambda: client_factory().create(AGENT.url),
        None,
        r"card must be a2a\.types\.AgentCard, not str; for an address, .*create_from_url\(url\)",
    ),
    "config by position": (
        lambda: connect(AGENT.url, ClientConfig()),
        None,
        r"pass options by keyword, .* a ClientConfig to holdfast\.compat\.ClientFactory",
    ),
    "executor alone": (
        lambda: A2AServer(executor=OfHoldfast(), card={"name": "a"}),
        None,
        r"A2AServer needs what it serves as its first argument.*A2AServer\(MyExecutor\(\), card=",
    ),
}


def sdk_transport():
    return JsonRpcTransport(httpx.AsyncClient(), card_of(AGENT), AGENT.url)


async def with_producer(producer):
    factory = compat.ClientFactory()
    factory.register("JSONRPC", producer)
    async with factory.create(to_value(card_of(AGENT), types.AgentCard)) as client:
        await client.get_task("1")


async def listed(context):
    return await on_sdk_card(OfSdk()).list_tasks(pb.ListTasksRequest(), context=context)


async def done(use):
    result = use()
    return await result if hasattr(result, "__await__") else result


@pytest.mark.parametrize("case", CASES)
async def test_an_sdk_object_is_refused_with_advice_that_works(case):
    wrong, right, advice = CASES[case]

    with pytest.raises((TypeError, ValueError), match=advice) as caught:
        await done(wrong)
    assert "\n" not in str(caught.value)
    if right is not None:
        await done(right)


async def test_credential_stores_may_be_mixed_with_the_other_librarys_client():
    document = (await made().agent_card()).to_dict() | {
        "securitySchemes": {"bearerAuth": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
        "securityRequirements": [{"schemes": {"bearerAuth": {"list": []}}}],
    }
    card, state = types.AgentCard.from_dict(document), {"sessionId": "s-1"}
    agent = FakeAgent(card=card, token="s3cret")
    for store in (InMemoryContextCredentialStore(), compat.InMemoryContextCredentialStore()):
        await store.set_credentials("s-1", "bearerAuth", "s3cret")
        context = holdfast.auth.ClientCallContext(state=state)
        for options in ({"auth": store}, {"interceptors": [compat.AuthInterceptor(store)]}):
            client = connect(agent.url, engine=FakeNetwork(agent), **options)
            assert (await client.ask("hi", context=context)).text == "hi"
        factory = client_factory(engine=FakeNetwork(agent))
        theirs = factory.create(to_proto(card, pb.AgentCard), [SdkAuthInterceptor(store)])
        events = theirs.send_message(REQUEST, context=ClientCallContext(state=state))
        assert [event async for event in events]


async def test_a_coordinator_takes_an_sdk_card():
    agent = FakeAgent("hello")
    agents = {"one": card_of(agent), "two": [card_of(agent)]}

    async with holdfast.Coordinator(agents, engine=FakeNetwork(agent)) as coordinator:
        results = await coordinator.fan_out("hi")

    assert [result.answer.text for result in results] == ["hello", "hello"]


async def test_a_fake_agent_refuses_what_its_function_returns():
    agent = FakeAgent(lambda received: REQUEST.message)

    with pytest.raises(TypeError, match="the result of behaviour must be Message"):
        await connect(agent.url, engine=FakeNetwork(agent)).ask("hi")


OF_V03 = """
import asyncio, json
from a2a.client import ClientCallContext, ClientCallInterceptor, ClientConfig
from a2a.types import *
import holdfast
from holdfast import compat, types
from holdfast.testing import FakeAgent, FakeNetwork

AGENT = FakeAgent()
PUSH = TaskPushNotificationConfig(
    task_id="1", push_notification_config=PushNotificationConfig(url="https://x.test", token="t")
)
TASK = Task(id="1", context_id="c", status=TaskStatus(state=TaskState.working))
MESSAGE = Message(message_id="1", role=Role.user, parts=[Part(root=TextPart(text="hi"))])
PARAMS = MessageSendParams(message=MESSAGE)
REQUEST = SendMessageRequest(id=1, params=PARAMS)

class OfSdk(ClientCallInterceptor):
    async def intercept(self, *args): ...

def made(**options):
    return holdfast.connect(AGENT.url, engine=FakeNetwork(AGENT), **options)

WRONG = {
    "push": lambda: made().create_task_push_notification_config(PUSH),
    "task": lambda: made().conversation(task=TASK),
    "state": lambda: made().list_tasks(status=TaskState.working),
    "params": lambda: made().ask(PARAMS),
    "request": lambda: made().ask(REQUEST),
    "metadata": lambda: made().ask("hi", metadata=TASK),
    "context": lambda: made().ask("hi", context=ClientCallContext()),
    "config": lambda: compat.ClientFactory(ClientConfig()),
    "interceptor": lambda: made(interceptors=[OfSdk()]),
}

async def main():
    said = {}
    for name, use in WRONG.items():
        try:
            result = use()
            await result
        except TypeError as error:
            said[name] = str(error)
    config = types.TaskPushNotificationConfig(
        task_id=PUSH.task_id,
        url=PUSH.push_notification_config.url,
        token=PUSH.push_notification_config.token,
    )
    agent = made()
    task = await agent.send_message("hi", push_notification_config=config)
    agent.conversation(task=await agent.get_task(task.id))
    await agent.list_tasks(status=holdfast.TaskState[TaskState.working.name.upper()])
    await agent.ask(PARAMS.message)
    await agent.ask(REQUEST.params.message)
    dump = TASK.model_dump(mode="json", by_alias=True, exclude_none=True)
    await agent.ask("hi", metadata=dump)
    print(json.dumps(said))

asyncio.run(main())
"""


@pytest.mark.sdk
@pytest.mark.real_time
def test_objects_of_the_sdk_for_0_3_are_refused_with_advice_that_works():
    python = sdk_python("HOLDFAST_SDK03_PYTHON", ".venv-sdk03")
    ran = subprocess.run(
        [str(python), "-c", OF_V03],
        env={"PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    for name, advice in {
        "push": r"TaskPushNotificationConfig\(task_id=….task_id, url=….push_notification_config",
        "task": r"pass await agent.get_task\(….id\)",
        "state": r"pass holdfast.TaskState\[….name.upper\(\)\]",
        "params": "pass its message",
        "request": "pass its params.message",
        "metadata": r"model_dump\(mode=\"json\", by_alias=True, exclude_none=True\) gives",
        "context": r"pass holdfast.auth.ClientCallContext",
        "config": r"pass holdfast.compat.ClientConfig",
        "interceptor": r"derive it from holdfast.extend.Interceptor",
    }.items():
        assert re.search(advice, said[name]), said[name]
