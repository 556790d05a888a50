"""The table of operations equals the protocol's (A2A specification 5.3)."""

import re

import pytest

from holdfast import connect
from holdfast.protocol import OPERATIONS
from holdfast.testing import FakeAgent, FakeNetwork
from holdfast.types import (
    AgentCard,
    Empty,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    Task,
)

PUSH = "/tasks/{task_id}/pushNotificationConfigs"

# The name is that of the JSON-RPC method and of the gRPC method.
TABLE = {
    # name: verb, path, safety, streaming
    "SendMessage": ("POST", "/message:send", "conditional", False),
    "SendStreamingMessage": ("POST", "/message:stream", "conditional", True),
    "GetTask": ("GET", "/tasks/{id}", "read", False),
    "ListTasks": ("GET", "/tasks", "read", False),
    "CancelTask": ("POST", "/tasks/{id}:cancel", "idempotent", False),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe", "read", True),
    "CreateTaskPushNotificationConfig": ("POST", PUSH, "conditional", False),
    "GetTaskPushNotificationConfig": ("GET", f"{PUSH}/{{id}}", "read", False),
    "ListTaskPushNotificationConfigs": ("GET", PUSH, "read", False),
    "DeleteTaskPushNotificationConfig": ("DELETE", f"{PUSH}/{{id}}", "idempotent", False),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard", "read", False),
}

OLDER_PUSH = "/v1/tasks/{id}/pushNotificationConfigs"
OLDER_TABLE = {
    # name: JSON-RPC method and path of protocol 0.3
    "SendMessage": ("message/send", "/v1/message:send"),
    "SendStreamingMessage": ("message/stream", "/v1/message:stream"),
    "GetTask": ("tasks/get", "/v1/tasks/{id}"),
    "ListTasks": ("tasks/list", "/v1/tasks"),
    "CancelTask": ("tasks/cancel", "/v1/tasks/{id}:cancel"),
    "SubscribeToTask": ("tasks/resubscribe", "/v1/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("tasks/pushNotificationConfig/set", OLDER_PUSH),
    "GetTaskPushNotificationConfig": (
        "tasks/pushNotificationConfig/get",
        f"{OLDER_PUSH}/{{push_notification_config_id}}",
    ),
    "ListTaskPushNotificationConfigs": ("tasks/pushNotificationConfig/list", OLDER_PUSH),
    "DeleteTaskPushNotificationConfig": (
        "tasks/pushNotificationConfig/delete",
        f"{OLDER_PUSH}/{{push_notification_config_id}}",
    ),
    "GetExtendedAgentCard": ("agent/getAuthenticatedExtendedCard", "/v1/card"),
}


def test_the_table_has_the_eleven_operations_of_the_protocol():
    assert len(OPERATIONS) == 11
    assert all(name == operation.name for name, operation in OPERATIONS.items())
    assert OPERATIONS.keys() == TABLE.keys()


@pytest.mark.parametrize("name", TABLE)
def test_an_operation_has_verb_path_safety_and_streaming_of_the_protocol(name):
    row = OPERATIONS[name]

    assert (row.verb, row.path, row.safety, row.streaming) == TABLE[name]


@pytest.mark.parametrize("name", TABLE)
def test_an_operation_has_method_and_path_of_0_3(name):
    row = OPERATIONS[name]

    assert (row.method_v03, row.path_v03) == OLDER_TABLE[name]


@pytest.mark.parametrize("name", TABLE)
def test_a_path_names_members_of_the_request(name):
    row = OPERATIONS[name]

    assert set(re.findall(r"{(\w+)}", row.path)) <= set(row.request.__struct_fields__)


@pytest.mark.parametrize(
    ("name", "response"),
    [
        ("SendMessage", SendMessageResponse),
        ("SendStreamingMessage", StreamResponse),
        ("SubscribeToTask", StreamResponse),
        ("GetTask", Task),
        ("CancelTask", Task),
        ("DeleteTaskPushNotificationConfig", Empty),
        ("GetExtendedAgentCard", AgentCard),
    ],
)
def test_an_operation_has_the_response_type_of_the_protocol(name, response):
    assert OPERATIONS[name].response is response


def test_both_send_operations_have_the_same_request():
    assert OPERATIONS["SendMessage"].request is OPERATIONS["SendStreamingMessage"].request
    assert OPERATIONS["SendMessage"].request is SendMessageRequest


def test_only_operations_that_create_something_are_conditional():
    conditional = {
        operation.name for operation in OPERATIONS.values() if operation.safety == "conditional"
    }

    assert conditional == {
        "SendMessage",
        "SendStreamingMessage",
        "CreateTaskPushNotificationConfig",
    }


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("name", ["GetTask", "CancelTask", "ListTaskPushNotificationConfigs"])
async def test_an_empty_id_is_refused_over_each_binding(name, version, binding):
    agent = FakeAgent(versions=(version,))
    client = connect(agent.url, engine=FakeNetwork(agent), bindings=(binding,))
    operation = OPERATIONS[name]
    [member] = re.findall(r"{(\w+)}", operation.path)

    with pytest.raises(ValueError, match=f"^the request lacks {member}$"):
        await client.call(operation, operation.request(**{member: ""}))

    assert agent.received == []
