"""The gRPC codec without a connection: metadata, statuses and their details."""

import base64

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct
from google.rpc import error_details_pb2 as rpc
from google.rpc.status_pb2 import Status
from hypothesis import strategies as st
from tests.kit.strategies import given, short_text

from holdfast import protocol as op
from holdfast._policy.breaker import classify
from holdfast._policy.retry_after import asks_to_wait
from holdfast._wire.grpc import CODECS
from holdfast._wire.grpc_metadata import reply_headers, request_metadata
from holdfast._wire.grpc_status import GRPC_STATUSES, RpcStatus, error_from_status
from holdfast._wire.status import REFUSALS
from holdfast.errors import (
    BY_CODE,
    A2AConnectionError,
    A2AError,
    A2ATimeoutError,
    AgentError,
    AuthenticationError,
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    InternalError,
    InvalidAgentResponseError,
    InvalidParamsError,
    MethodNotFoundError,
    ParseError,
    PermissionDeniedError,
    PushNotificationNotSupportedError,
    RateLimitedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from holdfast.protocol import OPERATIONS

VERSIONS = ["1.0", "0.3"]
TYPES = "type.googleapis.com/google.rpc."


def info(reason, **metadata):
    return rpc.ErrorInfo(reason=reason, domain="a2a-protocol.org", metadata=metadata)


def rich(*details, code=2, message="said"):
    status = Status(code=code, message=message)
    for detail in details:
        status.details.add().Pack(detail)
    return [("grpc-status-details-bin", status.SerializeToString())]


def error(code, details="said", operation=op.SEND_MESSAGE, version="1.0", **ended):
    facts = {name: ended.pop(name) for name in ("sent", "began") if name in ended}
    refusals = ended.pop("refusals", REFUSALS)
    status = RpcStatus(code=code, details=details, **ended)
    return error_from_status(
        operation, status, version=version, now=1e9, refusals=refusals, **facts
    )


# ── Metadata ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "names"),
    [("1.0", ["a2a-extensions"]), ("0.3", ["a2a-extensions", "x-a2a-extensions"])],
)
def test_metadata_contain_version_and_extensions(version, names):
    sent = dict(request_metadata(version, {"authorization": "Bearer x"}, ["urn:a", "urn:b"]))

    expected = {"a2a-version": version, "authorization": "Bearer x"}
    assert sent == expected | dict.fromkeys(names, "urn:a,urn:b")


def test_headers_that_grpc_writes_itself_are_omitted():
    own = ("user-agent", "content-type", "te", "host", "content-length", "connection")
    sent = dict(request_metadata("1.0", dict.fromkeys(own, "x")))

    assert sent == {"a2a-version": "1.0"}


def test_binary_headers_are_bytes():
    sent = dict(request_metadata("1.0", {"trace-bin": base64.b64encode(b"\x00\xff").decode()}))
    unpadded = dict(request_metadata("1.0", {"trace-bin": "AP8"}))

    assert sent["trace-bin"] == unpadded["trace-bin"] == b"\x00\xff"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("grpc-timeout", "secret"),
        ("x!", "secret"),
        ("X-Upper", "secret"),
        ("-bin", "secret"),
        ("x", "secret\n"),
        ("x", "secret\tb"),
        ("x", "sécret"),
        ("x-bin", "secret!"),
    ],
)
def test_invalid_metadata_are_refused_and_not_shown(name, value):
    with pytest.raises(ValueError, match=r"header|name") as caught:
        request_metadata("1.0", {name: value})
    assert "cret" not in str(caught.value)


def test_metadata_of_a_reply_become_its_headers():
    initial = [("A2A-Extensions", "urn:a"), ("grpc-encoding", "gzip"), ("x-bin", b"\x00")]
    trailing = [("a2a-extensions", "urn:b"), ("raw", b"\xff")]

    assert reply_headers(initial, trailing) == {
        "a2a-extensions": "urn:a, urn:b",
        "x-bin": "AA==",
        "raw": "\ufffd",
    }
    assert reply_headers(None, ()) == {}


# ── Errors of the agent ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", BY_CODE.values(), ids=lambda kind: kind.__name__)
def test_the_reason_of_error_info_determines_the_error(kind):
    failure = error(kind.entry.grpc_status, trailing=rich(info(kind.entry.reason, a="b")))

    assert type(failure) is kind
    assert (failure.code, failure.grpc_status) == (kind.entry.code, kind.entry.grpc_status)
    assert failure.http_status is None
    assert failure.message == f"the agent answered {kind.entry.code}: said"
    assert failure.executed is (False if kind in {ParseError, VersionNotSupportedError} else None)
    assert failure.details == (
        {
            "@type": f"{TYPES}ErrorInfo",
            "reason": kind.entry.reason,
            "domain": "a2a-protocol.org",
            "metadata": {"a": "b"},
        },
    )


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        ("NOT_FOUND", "TaskNotFoundError: gone", TaskNotFoundError),
        ("UNIMPLEMENTED", "TaskNotCancelableError: gone", TaskNotCancelableError),
        ("UNIMPLEMENTED", "UnsupportedOperationError: gone", UnsupportedOperationError),
        ("INTERNAL", "JSONParseError: gone", ParseError),
        ("UNIMPLEMENTED", "ContentTypeNotSupportedError: gone", ContentTypeNotSupportedError),
    ],
)
def test_the_text_of_older_agents_determines_the_error(status, text, kind):
    failure = error(status, text, version="0.3", operation=op.GET_TASK)

    assert type(failure) is kind
    assert failure.message == f"the agent answered {kind.entry.code}: gone"


def test_an_error_of_a_task_has_its_id_and_state():
    trailing = rich(info("TASK_NOT_CANCELABLE", taskId="t", state="TASK_STATE_COMPLETED"))
    failure = error("FAILED_PRECONDITION", trailing=trailing, operation=op.CANCEL_TASK)

    assert (failure.task_id, failure.state) == ("t", "TASK_STATE_COMPLETED")


def test_codes_of_the_agent_are_kept():
    failure = error(
        "UNKNOWN", trailing=rich(info("UNKNOWN_ERROR", code="-32050", retryable="true"))
    )

    assert type(failure) is AgentError
    assert (failure.code, failure.transient, failure.executed) == (-32050, True, None)


def test_other_details_are_kept_and_leave_execution_unknown():
    bad = rpc.BadRequest(field_violations=[{"field": "message", "description": "empty"}])
    known_detail = Struct()
    known_detail.update({"a": 1})
    details = rich(bad, known_detail)
    strange = Status.FromString(details[0][1])
    strange.details.append(Any(type_url="type.example/some.Thing", value=b"\x00"))
    strange.details.append(Any(type_url=f"{TYPES}ErrorInfo", value=b"\xff"))
    failure = error(
        "UNAUTHENTICATED", trailing=[("grpc-status-details-bin", strange.SerializeToString())]
    )

    assert type(failure) is AuthenticationError
    assert failure.executed is None
    assert failure.details == (
        {
            "@type": f"{TYPES}BadRequest",
            "fieldViolations": [{"field": "message", "description": "empty"}],
        },
        {"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"a": 1}},
        {"@type": "type.example/some.Thing"},
        {"@type": f"{TYPES}ErrorInfo"},
    )


# ── Statuses without details ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("status", "kind", "code", "executed", "transient"),
    [
        ("CANCELLED", A2AConnectionError, None, None, True),
        ("UNKNOWN", InternalError, -32603, None, True),
        ("INVALID_ARGUMENT", InvalidParamsError, -32602, None, False),
        ("DEADLINE_EXCEEDED", A2ATimeoutError, None, None, True),
        ("NOT_FOUND", TaskNotFoundError, -32001, None, False),
        ("ALREADY_EXISTS", AgentError, None, None, False),
        ("PERMISSION_DENIED", PermissionDeniedError, None, False, False),
        ("RESOURCE_EXHAUSTED", RateLimitedError, None, None, True),
        ("FAILED_PRECONDITION", AgentError, None, None, False),
        ("ABORTED", AgentError, None, None, False),
        ("OUT_OF_RANGE", InvalidParamsError, -32602, None, False),
        ("UNIMPLEMENTED", MethodNotFoundError, -32601, False, False),
        ("INTERNAL", InternalError, -32603, None, True),
        ("UNAVAILABLE", A2AConnectionError, None, None, True),
        ("DATA_LOSS", AgentError, None, None, False),
        ("UNAUTHENTICATED", AuthenticationError, None, False, False),
        ("99", AgentError, None, None, False),
    ],
)
def test_each_grpc_status_maps_to_its_error(status, kind, code, executed, transient):
    failure = error(status)

    assert type(failure) is kind
    assert (failure.code, failure.executed, failure.transient) == (code, executed, transient)
    assert failure.grpc_status == status
    assert failure.message == f"gRPC {status}: said"
    number = GRPC_STATUSES[status].number if status in GRPC_STATUSES else int(status)
    assert error(number).grpc_status == status
    assert error(status, began=True).executed is None
    assert error(status, refusals=frozenset()).executed is None
    assert error(status, sent=False).executed is False


def test_the_table_has_every_status():
    import grpc

    assert {name: meant.number for name, meant in GRPC_STATUSES.items()} == {
        status.name: status.value[0]
        for status in grpc.StatusCode
        if status is not grpc.StatusCode.OK
    }


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        (op.CANCEL_TASK, TaskNotCancelableError),
        (op.SUBSCRIBE_TO_TASK, UnsupportedOperationError),
        (op.CREATE_PUSH_CONFIG, PushNotificationNotSupportedError),
        (op.GET_EXTENDED_AGENT_CARD, ExtendedAgentCardNotConfiguredError),
    ],
    ids=str,
)
def test_failed_precondition_is_interpreted_by_the_operation(operation, kind):
    assert type(error("FAILED_PRECONDITION", operation=operation)) is kind


@pytest.mark.parametrize(
    ("words", "failure"),
    [
        ("DNS resolution failed for a.test:50051: UNKNOWN", "dns"),
        ("errors resolving a.test:50051: [...]", "dns"),
        ("failed to connect to all addresses; last error: Ssl handshake failed", "tls"),
        ("failed to connect to all addresses; ... Connection refused", "refused"),
        ("failed to connect ...; last error: HTTP proxy returned response code 407", "proxy"),
        ("failed to connect to all addresses; last error: timeout", "unreachable"),
    ],
)
def test_the_text_of_a_connection_failure_determines_its_kind(words, failure):
    assert error("UNAVAILABLE", words, sent=False).failure == failure
    assert error("UNAVAILABLE", words).failure == "disconnected"
    assert error("UNAVAILABLE", words).executed is None


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("INTERNAL", "Stream removed (RST_STREAM (Received RST_STREAM with error code 2))"),
        ("INTERNAL", "Received RST_STREAM with error code 2"),
        ("UNKNOWN", "Stream removed"),
        ("UNKNOWN", "No status received"),
        ("UNKNOWN", "Received http2 header with status: 500"),
        ("RESOURCE_EXHAUSTED", "Received RST_STREAM with error code 11"),
        ("PERMISSION_DENIED", "Received RST_STREAM with error code 12"),
    ],
)
def test_a_truncated_reply_is_a_connection_error_under_any_status(status, words):
    failure = error(status, words)

    assert type(failure) is A2AConnectionError
    assert (failure.failure, failure.code) == ("disconnected", None)
    assert (failure.executed, failure.transient, failure.grpc_status) == (None, True, status)
    assert classify(failure) == "failure"
    assert type(error(status, words, trailing=rich(rpc.BadRequest(), message=words))) is not type(
        failure
    )


def test_a_gateway_may_refuse_with_an_http_status():
    failure = error("UNAUTHENTICATED", "Received http2 header with status: 401")

    assert type(failure) is AuthenticationError
    assert failure.executed is False


def test_an_unreadable_reply_is_an_invalid_response():
    failure = error("INTERNAL", "Compression bit set but no encoding configured")

    assert type(failure) is InvalidAgentResponseError
    assert (failure.code, failure.executed) == (None, None)


def test_deadline_exceeded_of_another_party_names_the_wait():
    assert error("DEADLINE_EXCEEDED").phase == "first_byte"
    assert error("DEADLINE_EXCEEDED", began=True).phase == "idle"


def test_unimplemented_operations_of_0_3_are_unsupported():
    unimplemented = error("UNIMPLEMENTED", operation=op.DELETE_PUSH_CONFIG, version="0.3")
    assert type(unimplemented) is UnsupportedOperationError

    finished = error(
        "INVALID_ARGUMENT", "InvalidParamsError: over", op.SUBSCRIBE_TO_TASK, version="0.3"
    )
    assert type(finished) is UnsupportedOperationError


# ── Retry hints ──────────────────────────────────────────────────────────────────────────────


def wait(seconds, nanos=0):
    return rpc.RetryInfo(retry_delay=Duration(seconds=seconds, nanos=nanos))


@pytest.mark.parametrize(
    ("trailing", "retry_after", "transient"),
    [
        (rich(wait(7)), 7.0, True),
        (rich(wait(0, 250_000_000)), 0.25, True),
        (rich(wait(-1)), None, False),
        ([("grpc-retry-pushback-ms", "1500")], 1.5, True),
        ([*rich(wait(7)), ("grpc-retry-pushback-ms", "1500")], 1.5, True),
        ([("retry-after", "3")], 3.0, True),
        ([("retry-after-ms", "300")], 0.3, True),
    ],
    ids=str,
)
def test_retry_info_sets_retry_after(trailing, retry_after, transient):
    failure = error("ABORTED", trailing=trailing)

    assert (failure.retry_after, failure.transient) == (retry_after, transient)
    assert failure.executed is None


@pytest.mark.parametrize("word", ["-1", "never", ""])
def test_retryable_false_makes_an_error_permanent(word):
    failure = error("UNAVAILABLE", trailing=[("grpc-retry-pushback-ms", word)])

    assert (failure.retry_after, failure.transient) == (None, False)


def test_policies_apply_to_grpc_statuses():
    hint = [("grpc-retry-pushback-ms", "1500")]

    assert asks_to_wait(error("RESOURCE_EXHAUSTED", trailing=hint))
    assert asks_to_wait(error("UNAVAILABLE", trailing=hint))
    assert not asks_to_wait(error("ABORTED", trailing=hint))
    assert classify(error("RESOURCE_EXHAUSTED")) is None
    assert classify(error("UNAVAILABLE")) == "failure"
    assert classify(error("UNAUTHENTICATED")) == "reachable"
    assert classify(error("NOT_FOUND")) == "success"
    assert classify(error("INTERNAL")) == "reachable"


# ── Fuzz ─────────────────────────────────────────────────────────────────────────────────────

detail_bytes = st.binary(max_size=40) | st.builds(
    lambda url, value: Status(details=[Any(type_url=url, value=value)]).SerializeToString(),
    st.sampled_from([f"{TYPES}ErrorInfo", f"{TYPES}RetryInfo", f"{TYPES}BadRequest", "x"]),
    st.binary(max_size=20),
)


@given(
    code=st.sampled_from([*GRPC_STATUSES, "OK", "NEW"]) | st.integers(-1, 99),
    details=st.none() | short_text,
    trailing=st.lists(
        st.tuples(st.just("grpc-status-details-bin"), detail_bytes | short_text)
        | st.tuples(st.sampled_from(["grpc-retry-pushback-ms", "retry-after", "x"]), short_text),
        max_size=3,
    ),
    operation=st.sampled_from([*OPERATIONS.values()]),
    version=st.sampled_from(VERSIONS),
    sent=st.booleans(),
    max_examples=200,
)
def test_any_status_is_one_error(code, details, *, trailing, operation, version, sent):
    failure = error(code, details, operation, version, trailing=trailing, sent=sent)

    assert isinstance(failure, A2AError)
    assert len(str(failure)) < 2000
    assert sent or failure.executed is False


def test_both_versions_have_a_codec():
    assert set(CODECS) == set(VERSIONS)
