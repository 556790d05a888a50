"""The data model: properties of values, and validation of cards."""

import json
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from tests.kit.strategies import (
    any_text,
    artifacts,
    cards,
    events,
    given,
    json_values,
    messages,
    model_values,
)

from holdfast._model.card_checks import check_card
from holdfast._model.card_reading import read_card
from holdfast.errors import InvalidAgentCardError
from holdfast.protocol import OPERATIONS
from holdfast.types import (
    AgentCard,
    AgentInterface,
    Artifact,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Request,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

CARD = {
    "name": "echo",
    "description": "Echoes.",
    "version": "1",
    "supportedInterfaces": [
        {"url": "https://a.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "echo", "name": "Echo", "description": "Says it again.", "tags": []}],
}

# ── States ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", TaskState)
def test_four_states_are_terminal_and_two_are_interrupted(state):
    assert state.is_terminal == (state.name in {"COMPLETED", "FAILED", "CANCELED", "REJECTED"})
    assert state.is_interrupted == (state.name in {"INPUT_REQUIRED", "AUTH_REQUIRED"})


@pytest.mark.parametrize(
    "name", ["COMPLETED", "completed", "TASK_STATE_completed", "TASK_STATE_COMPLETED ", "3", ""]
)
def test_a_state_that_resembles_a_terminal_one_is_not_terminal(name):
    assert not TaskState(name).is_terminal


@pytest.mark.parametrize("value", [3, None, b"TASK_STATE_FAILED"])
def test_only_a_string_is_a_state(value):
    with pytest.raises(ValueError, match="not a valid TaskState"):
        TaskState(value)


# ── Text ─────────────────────────────────────────────────────────────────────────────────────


def text_parts(*texts):
    return tuple(Part(text=text) for text in texts)


def test_the_text_of_a_message_has_a_line_for_each_text_part():
    message = Message(parts=(*text_parts("a", ""), Part(data={"n": 1}), *text_parts("b")))

    assert message.text == "a\n\nb"
    assert Message().text == ""


def test_the_text_of_an_artifact_is_concatenated():
    artifact = Artifact(parts=(*text_parts("Hello, "), Part(raw=b"x"), *text_parts("world!")))

    assert artifact.text == "Hello, world!"
    assert Artifact().text == ""


def test_the_text_of_a_task_is_that_of_its_artifacts_only():
    task = Task(
        id="t",
        status=TaskStatus(message=Message(parts=text_parts("status"))),
        history=(Message(parts=text_parts("history")),),
        artifacts=(
            Artifact(parts=text_parts("one ", "text")),
            Artifact(parts=(Part(data=1),)),
            Artifact(parts=text_parts("another")),
        ),
    )

    assert task.text == "one text\nanother"
    assert Task(id="t", status=task.status, history=task.history).text == ""


@given(message=messages, artifact=artifacts)
def test_text_contains_text_parts_only(message, artifact):
    assert message.text == "\n".join(p.text for p in message.parts if p.text is not None)
    assert artifact.text == "".join(p.text for p in artifact.parts if p.text is not None)


# ── Time ─────────────────────────────────────────────────────────────────────────────────────

NOON = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("timestamp", "time"),
    [
        ("2025-03-01T12:00:00Z", NOON),
        ("2025-03-01T12:00:00.250Z", NOON + timedelta(milliseconds=250)),
        ("2025-03-01T14:00:00+02:00", NOON),
        ("2025-03-01T12:00:00.123456789Z", NOON + timedelta(microseconds=123456)),
        ("2025-03-01T12:00:00", NOON),  # without a zone it is UTC
        ("2025-03-01 12:00:00", NOON),
    ],
)
def test_a_timestamp_may_have_z_an_offset_or_no_zone(timestamp, time):
    status = TaskStatus.from_dict({"timestamp": timestamp})

    assert status.time == time
    assert status.time.tzinfo is not None
    assert status.timestamp == timestamp


def test_the_offset_of_a_timestamp_is_kept():
    status = TaskStatus(timestamp="2025-03-01T14:00:00+02:00")

    assert status.time.tzinfo == timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    "timestamp", ["", "soon", "2025-13-01T00:00:00Z", "1740830400", "\ud800", "2025-03-01T12:00Q"]
)
def test_an_invalid_timestamp_is_kept_as_text_without_a_time(timestamp):
    status = TaskStatus.from_dict({"state": "TASK_STATE_WORKING", "timestamp": timestamp})

    assert (status.timestamp, status.time) == (timestamp, None)


@given(timestamp=any_text | st.datetimes().map(str))
def test_any_timestamp_is_accepted(timestamp):
    time = TaskStatus(timestamp=timestamp).time

    assert time is None or time.tzinfo is not None


def test_a_missing_timestamp_has_no_time():
    assert TaskStatus().time is None


# ── Values ───────────────────────────────────────────────────────────────────────────────────


@given(value=model_values)
def test_values_survive_dicts_and_json_unchanged(value):
    kind = type(value)
    assume(kind is not Message or value.message_id or value.parts)

    assert kind.from_dict(value.to_dict()) == value
    assert kind.from_dict(json.loads(value.to_json())) == value
    assert kind.from_dict(json.loads(value.to_json(indent=2))) == value
    assert json.loads(value.to_json()) == value.to_dict()


@pytest.mark.parametrize("data", [{}, {"role": "ROLE_USER"}, {"text": "hi"}])
def test_an_object_without_id_and_parts_is_not_a_message(data):
    with pytest.raises(ValueError, match="missing required fields `messageId` and `parts`"):
        Message.from_dict(data)
    assert Message.from_dict({"messageId": "m", **data}).message_id == "m"


@pytest.mark.rule("S26")
@given(data=json_values)
def test_s26_data_survives_unchanged(data):
    part = Part.from_dict(Part(data=data).to_dict())

    assert part.data == data
    assert repr(part.data) == repr(data)  # 1 is not 1.0, and False is not 0


def test_wire_names_are_camel_case_and_unset_members_are_omitted():
    message = Message(
        message_id="m", role=Role.USER, reference_task_ids=("t",), parts=(Part(media_type="a/b"),)
    )

    assert message.to_dict() == {
        "messageId": "m",
        "role": "ROLE_USER",
        "referenceTaskIds": ["t"],
        "parts": [{"mediaType": "a/b"}],
    }
    assert "\n" not in message.to_json()
    assert message.to_json(indent=2).startswith('{\n  "messageId"')


@pytest.mark.parametrize("indent", [0, 2])
def test_lone_surrogates_are_escaped_in_any_layout(indent):
    text = Part(text="\ud800").to_json(indent=indent)

    assert "\\ud800" in text
    assert Part.from_dict(json.loads(text)) == Part(text="\ud800")


def test_raw_bytes_are_base64_on_the_wire():
    assert Part(raw=b"\xff\xef").to_dict() == {"raw": "/+8="}


def test_an_invalid_value_names_the_member():
    with pytest.raises(ValueError, match=r"parts\[0\]\.text"):
        Message.from_dict({"parts": [{"text": 7}]})


@pytest.mark.parametrize(
    "value", [Message(), Task(id="t"), Part(), AgentCard(), GetTaskRequest(id="t")]
)
def test_values_are_frozen(value):
    name = value.__struct_fields__[0]

    with pytest.raises(AttributeError):
        setattr(value, name, "other")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("task", Task(id="t")),
        ("message", Message(message_id="m")),
        ("status_update", TaskStatusUpdateEvent(task_id="t")),
        ("artifact_update", TaskArtifactUpdateEvent(task_id="t")),
    ],
)
def test_an_event_is_its_set_member(name, value):
    assert StreamResponse(**{name: value}).event is value


@given(event=events)
def test_an_event_is_encoded_and_decoded_unchanged(event):
    assert StreamResponse.from_dict(event.to_dict()).event == event.event


def test_an_event_of_an_unknown_kind_is_none():
    assert StreamResponse.from_dict({"somethingNew": {}}).event is None


def test_a_task_has_the_state_of_its_status():
    assert Task(id="t", status=TaskStatus(state=TaskState.WORKING)).state is TaskState.WORKING
    assert Task(id="t").state is TaskState.UNSPECIFIED


# ── Requests ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda operation: operation.name)
def test_every_request_has_a_tenant(operation):
    assert issubclass(operation.request, Request)
    assert "tenant" in operation.request.__struct_fields__


def test_a_send_request_equals_the_protocols():
    request = SendMessageRequest(
        tenant="acme",
        message=Message(message_id="m"),
        configuration=SendMessageConfiguration(
            accepted_output_modes=("text/plain",),
            history_length=0,
            return_immediately=True,
            task_push_notification_config=TaskPushNotificationConfig(url="https://me.example"),
        ),
        metadata={"n": 1},
    )

    assert request.to_dict() == {
        "tenant": "acme",
        "message": {"messageId": "m"},
        "configuration": {
            "acceptedOutputModes": ["text/plain"],
            "historyLength": 0,
            "returnImmediately": True,
            "taskPushNotificationConfig": {"url": "https://me.example"},
        },
        "metadata": {"n": 1},
    }


def test_a_history_length_of_zero_is_not_the_same_as_none():
    assert GetTaskRequest(id="t", history_length=0).to_dict() == {"id": "t", "historyLength": 0}
    assert GetTaskRequest(id="t").to_dict() == {"id": "t"}
    assert ListTasksRequest(include_artifacts=False).to_dict() == {"includeArtifacts": False}


@pytest.mark.parametrize("members", [{}, {"task": Task(id="t"), "message": Message()}])
def test_an_answer_holds_a_task_or_a_message(members):
    with pytest.raises(ValueError, match="either a task or a message"):
        SendMessageResponse(**members)


# ── Cards ────────────────────────────────────────────────────────────────────────────────────


def card_with(**members):
    return {name: value for name, value in {**CARD, **members}.items() if value is not ...}


def interface(**members):
    first = {**CARD["supportedInterfaces"][0], **members}
    return {name: value for name, value in first.items() if value is not ...}


def test_a_card_is_decoded():
    card = read_card(CARD)

    assert card.name == "echo"
    assert card.capabilities.streaming is True
    assert card.capabilities.push_notifications is None  # not declared
    assert card.supported_interfaces == (
        AgentInterface(
            url="https://a.example/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
        ),
    )
    assert card.to_dict()["skills"] == [
        {"id": "echo", "name": "Echo", "description": "Says it again."}
    ]


@pytest.mark.parametrize(
    "members",
    [
        dict.fromkeys(("description", "version", "capabilities", "skills", "provider"), ...),
        dict.fromkeys(("description", "version", "capabilities", "skills", "provider")),
        {"supportedInterfaces": [interface(protocolVersion=...)]},
        {"supportedInterfaces": [interface(protocolVersion=None, tenant=None)]},
        {"supportedInterfaces": [interface(), interface(protocolBinding="https://own.example")]},
        {"supportedInterfaces": [interface(protocolBinding="GRPC", url="a.example:443")]},
        {"url": "https://a.example", "protocolVersion": "0.3.0"},  # both kinds in one
        {"somethingNew": {"a": [1]}},
    ],
)
def test_a_card_may_lack_or_add_members_that_no_call_needs(members):
    assert read_card(card_with(**members)).name == "echo"


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"name": ...}, "name"),
        ({"name": ""}, "name"),
        ({"name": None}, "name"),
        ({"name": 7}, "name"),
        ({"supportedInterfaces": ...}, "supportedInterfaces"),
        ({"supportedInterfaces": []}, "supportedInterfaces"),
        ({"supportedInterfaces": {}}, "supportedInterfaces"),
        ({"supportedInterfaces": ["https://a"]}, "supportedInterfaces[0]"),
        ({"supportedInterfaces": [interface(url=...)]}, "supportedInterfaces[0].url"),
        ({"supportedInterfaces": [interface(url=None)]}, "supportedInterfaces[0].url"),
        ({"supportedInterfaces": [interface(url=["a"])]}, "supportedInterfaces[0].url"),
        (
            {"supportedInterfaces": [interface(), interface(protocolBinding="")]},
            "supportedInterfaces[1].protocolBinding",
        ),
        ({"supportedInterfaces": [interface(url="http://[a")]}, "supportedInterfaces[0].url"),
        ({"supportedInterfaces": [interface(url="http://a:99999")]}, "supportedInterfaces[0].url"),
        ({"supportedInterfaces": [interface(url="http://a:x/")]}, "supportedInterfaces[0].url"),
        ({"capabilities": {"streaming": "often"}}, "capabilities.streaming"),
        ({"skills": [{"tags": [1]}]}, "skills[0].tags[0]"),
    ],
)
def test_an_unusable_card_is_refused_with_the_field(members, field):
    with pytest.raises(InvalidAgentCardError) as caught:
        read_card(card_with(**members))

    assert caught.value.field == field
    assert field in str(caught.value)
    assert caught.value.executed is False
    assert caught.value.transient is False


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("a.test/agent", "is not an absolute URL"),
        ("https://me:s3cret@a.test", "contains a user name or password"),
        ("https://a.test\\b", "has a backslash in it"),
        ("https://a.test/my agent", "has a space or a control character in it"),
        ("https://a.test:0", "has port 0, on which no server can listen"),
    ],
)
def test_an_address_in_a_card_is_refused_with_its_fault_and_without_secrets(url, fault):
    with pytest.raises(InvalidAgentCardError) as caught:
        read_card(card_with(supportedInterfaces=[interface(url=url)]))

    expected = f"the agent card is not valid: supportedInterfaces[0].url {fault}"
    assert caught.value.message == expected


@pytest.mark.parametrize("document", [None, [], "card", 7, [CARD]])
def test_a_document_that_is_not_an_object_is_not_a_card(document):
    with pytest.raises(InvalidAgentCardError, match="not a JSON object") as caught:
        read_card(document)

    assert caught.value.field is None
    assert caught.value.executed is False


@given(card=cards)
def test_a_card_is_checked_from_every_source(card):
    def verdict(check):
        try:
            check()
        except InvalidAgentCardError as error:
            return error.field
        return "usable"

    assert verdict(lambda: read_card(card.to_dict())) == verdict(lambda: check_card(card))


@given(document=st.dictionaries(st.sampled_from(sorted(CARD)), json_values))
def test_any_object_is_a_card_or_refused(document):
    try:
        card = read_card(document)
    except InvalidAgentCardError:
        return
    assert card.supported_interfaces


def test_security_schemes_keep_their_names_on_the_wire():
    schemes = {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
        "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
        "oauth": {
            "oauth2SecurityScheme": {
                "flows": {
                    "authorizationCode": {
                        "authorizationUrl": "https://a",
                        "tokenUrl": "https://t",
                        "scopes": {"read": "Read."},
                        "pkceRequired": True,
                    }
                },
                "oauth2MetadataUrl": "https://m",
            }
        },
        "oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://o"}},
        "mtls": {"mtlsSecurityScheme": {"description": "Certificates."}},
    }
    requirements = [{"schemes": {"oauth": {"list": ["read"]}, "mtls": {}}}]
    card = read_card(card_with(securitySchemes=schemes, securityRequirements=requirements))

    assert card.to_dict()["securitySchemes"] == schemes
    assert card.to_dict()["securityRequirements"] == requirements
    assert card.security_schemes["oauth"].oauth2_security_scheme.flows.authorization_code.scopes


def test_cards_share_no_defaults():
    first, second = AgentCard(), AgentCard()

    first.security_schemes["key"] = None

    assert second.security_schemes == {}
    assert msgspec.structs.replace(second, name="x") == AgentCard(name="x")


def test_a_state_with_a_lone_surrogate_is_shown_escaped():
    state = TaskState("\ud800\x1b[2J")
    task = Task(id="t", status=TaskStatus(state=state))

    assert repr(task) == r"Task(id='t', state=\ud800\x1b[2J)"
    assert repr(state) == r"<TaskState.\ud800\x1b[2J: '\ud800\x1b[2J'>"
    assert repr(Message(role=Role("\ud800"))) == r"Message(role=\ud800)"
    assert repr(TaskState.WORKING) == "<TaskState.WORKING: 'TASK_STATE_WORKING'>"
