"""Arbitrary values of the data model, of JSON and of replies, for the property tests."""

import re

import hypothesis
from hypothesis import settings
from hypothesis import strategies as st
from tests.kit.effort import rounds

from holdfast.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    APIKeySecurityScheme,
    Artifact,
    HTTPAuthSecurityScheme,
    Message,
    Part,
    Role,
    SecurityRequirement,
    SecurityScheme,
    StreamResponse,
    StringList,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)


def given(*, max_examples=60, **arguments):
    """Like hypothesis's own, with fewer examples unless a thorough run is asked for."""
    bounded = settings(max_examples=rounds(max(10, max_examples // 3), max_examples))
    return lambda test: bounded(hypothesis.given(**arguments)(test))


def shown(value):
    """A value in the name of a test, which is the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


# Servers send lone surrogates, which `st.text()` leaves out.
any_text = st.text(st.characters(), max_size=12)
short_text = st.text(max_size=12)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**80), max_value=2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=8,
)
json_objects = st.dictionaries(any_text, json_values, max_size=3)


def optional(strategy):
    return st.none() | strategy


def tuples_of(strategy, max_size=3):
    return st.lists(strategy, max_size=max_size).map(tuple)


# No name of the protocol will ever hold a lone surrogate.
states = st.sampled_from(TaskState) | short_text.map(TaskState)
roles = st.sampled_from(Role) | short_text.map(Role)

_with_content = (
    st.fixed_dictionaries({"text": any_text})
    | st.fixed_dictionaries({"raw": st.binary(max_size=12)})
    | st.fixed_dictionaries({"url": any_text})
    | st.fixed_dictionaries({"data": json_values})
)


@st.composite
def parts(draw):
    return Part(
        **draw(_with_content),
        metadata=draw(optional(json_objects)),
        filename=draw(optional(any_text)),
        media_type=draw(optional(any_text)),
    )


messages = st.builds(
    Message,
    message_id=any_text,
    role=roles,
    parts=tuples_of(parts()),
    context_id=optional(any_text),
    task_id=optional(any_text),
    metadata=optional(json_objects),
    extensions=tuples_of(any_text),
    reference_task_ids=tuples_of(any_text),
)
artifacts = st.builds(
    Artifact,
    artifact_id=any_text,
    name=optional(any_text),
    description=optional(any_text),
    parts=tuples_of(parts()),
    metadata=optional(json_objects),
    extensions=tuples_of(any_text),
)
statuses = st.builds(
    TaskStatus, state=states, message=optional(messages), timestamp=optional(any_text)
)
tasks = st.builds(
    Task,
    id=any_text,
    context_id=optional(any_text),
    status=statuses,
    artifacts=tuples_of(artifacts, max_size=2),
    history=tuples_of(messages, max_size=2),
    metadata=optional(json_objects),
)
status_updates = st.builds(
    TaskStatusUpdateEvent,
    task_id=any_text,
    context_id=optional(any_text),
    status=statuses,
    metadata=optional(json_objects),
)
artifact_updates = st.builds(
    TaskArtifactUpdateEvent,
    task_id=any_text,
    context_id=optional(any_text),
    artifact=artifacts,
    append=st.booleans(),
    last_chunk=st.booleans(),
    metadata=optional(json_objects),
)
events = (
    st.builds(StreamResponse, task=tasks)
    | st.builds(StreamResponse, message=messages)
    | st.builds(StreamResponse, status_update=status_updates)
    | st.builds(StreamResponse, artifact_update=artifact_updates)
)

_schemes = st.builds(
    SecurityScheme,
    api_key_security_scheme=st.builds(APIKeySecurityScheme, location=any_text, name=any_text),
) | st.builds(
    SecurityScheme,
    http_auth_security_scheme=st.builds(
        HTTPAuthSecurityScheme, scheme=any_text, bearer_format=optional(any_text)
    ),
)
_requirements = st.builds(
    SecurityRequirement,
    schemes=st.dictionaries(any_text, st.builds(StringList, list=tuples_of(any_text)), max_size=2),
)
cards = st.builds(
    AgentCard,
    name=any_text,
    description=any_text,
    supported_interfaces=tuples_of(
        st.builds(
            AgentInterface,
            url=any_text,
            protocol_binding=st.sampled_from(["JSONRPC", "HTTP+JSON", "GRPC"]),
            tenant=optional(any_text),
            protocol_version=optional(st.sampled_from(["1.0", "0.3"])),
        )
    ),
    provider=optional(st.builds(AgentProvider, url=any_text, organization=any_text)),
    version=any_text,
    documentation_url=optional(any_text),
    capabilities=st.builds(
        AgentCapabilities,
        streaming=optional(st.booleans()),
        push_notifications=optional(st.booleans()),
        extensions=tuples_of(
            st.builds(
                AgentExtension,
                uri=any_text,
                required=st.booleans(),
                params=optional(json_objects),
            )
        ),
        extended_agent_card=optional(st.booleans()),
    ),
    security_schemes=st.dictionaries(any_text, _schemes, max_size=2),
    security_requirements=tuples_of(_requirements),
    skills=tuples_of(st.builds(AgentSkill, id=any_text, name=any_text, tags=tuples_of(any_text))),
    icon_url=optional(any_text),
)
model_values = messages | artifacts | tasks | events | cards

# ── Replies ──────────────────────────────────────────────────────────────────────────────────

http_statuses = st.sampled_from(
    # 2xx often, so that bodies are read as answers, too.
    [*[200] * 6, 201, 204, 302, *range(400, 430), 500, 502, 503, 504, 599, 799]
)
http_headers = st.dictionaries(
    st.sampled_from(["content-type", "date", "location", "retry-after", "retry-after-ms"]),
    any_text
    | st.sampled_from(
        ["5", "-1", "Wed, 21 Oct 2015 07:28:00 GMT", "1-Jan- 12:00 GMT", "http://[", "text/html"]
    ),
    max_size=3,
)
error_codes = (
    st.sampled_from([-32700, -32600, -32601, -32602, -32603, -32050, 404, 500, 2.5, True, None])
    | st.integers(min_value=-32009, max_value=-32001)
    | json_values
)
error_details = st.lists(
    st.fixed_dictionaries(
        {
            "@type": st.sampled_from(
                ["type.googleapis.com/google.rpc.ErrorInfo", "x/google.rpc.RetryInfo", 7, None]
            )
        },
        optional={
            "reason": st.sampled_from(["TASK_NOT_FOUND", "TASK_NOT_CANCELABLE", ""]) | json_values,
            "domain": st.just("a2a-protocol.org") | json_values,
            "metadata": st.dictionaries(st.sampled_from(["taskId", "state"]), json_values)
            | json_values,
            "retryDelay": st.sampled_from(["3s", "-3s", "s", "nan", "1e999s"]) | json_values,
        },
    )
    | json_values,
    max_size=3,
)
error_objects = st.fixed_dictionaries(
    {},
    optional={
        "code": error_codes,
        "message": json_values,
        "status": st.sampled_from(["NOT_FOUND", "INTERNAL", "INVALID_ARGUMENT"]) | json_values,
        "details": error_details | json_values,
        "data": error_details
        | st.fixed_dictionaries(
            {},
            optional={
                "retryable": json_values,
                "retryAfter": json_values | st.floats(),
                "detail": json_values,
            },
        )
        | json_values,
        "type": st.just("https://a/task-not-found") | json_values,
    },
)
