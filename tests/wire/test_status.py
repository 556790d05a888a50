"""Errors by status and body: their type, and whether the agent executed the operation."""

import json
import time

import pytest
from hypothesis import strategies as st
from tests.kit.effort import case
from tests.kit.strategies import any_text, error_objects, given, http_headers, http_statuses

from holdfast import errors
from holdfast._wire import status
from holdfast._wire.bindings import codec_for
from holdfast.compat import ArticleErrorCode, make_error
from holdfast.errors import (
    BY_CODE,
    A2AError,
    A2AHTTPError,
    AgentError,
    AuthenticationError,
    InternalError,
    InvalidAgentResponseError,
    PermissionDeniedError,
    RateLimitedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from holdfast.extend import HttpReply
from holdfast.protocol import CANCEL_TASK, GET_TASK, SEND_MESSAGE
from holdfast.types import TaskState

NOW = 1_445_412_480.0  # Wed, 21 Oct 2015 07:28:00 GMT
REQUEST_ID = "r-1"
BOTH = ("JSONRPC", "HTTP+JSON")


def error_info(reason, **metadata):
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "a2a-protocol.org",
        "metadata": metadata,
    }


def rpc(code, message="no", **members):
    """Return a JSON-RPC reply with an error; agents send the same over REST."""
    error = {"code": code, "message": message, **members}
    return json.dumps({"jsonrpc": "2.0", "id": REQUEST_ID, "error": error}).encode()


def rest_error_body(http_status, name, message="no", details=()):
    """Return a `google.rpc.Status` as the official server sends it."""
    error = {"code": http_status, "status": name, "message": message}
    return json.dumps({"error": {**error, **({"details": details} if details else {})}}).encode()


def failure(binding, http_status, body=b"", headers=None, operation=SEND_MESSAGE, **options):
    reply = HttpReply(status=http_status, headers=headers or {}, body=body)
    with pytest.raises(A2AError) as caught:
        codec_for(binding, "1.0").decode(
            operation,
            REQUEST_ID,
            reply,
            now=NOW,
            **{"refusals": status.REFUSALS, **options},
        )
    assert caught.value.http_status == http_status
    return caught.value


# ── Execution (DESIGN: sending once) ─────────────────────────────────────────────────────────

SECONDS = {"retry-after": "3"}
DATE = {"retry-after": "Wed, 21 Oct 2015 07:28:03 GMT"}
BAD_HINT = {"retry-after": "soon"}

# Bodies that say nothing in the protocol's terms: a proxy's, a framework's, a token check's.
SILENT = {
    "empty": b"",
    "text": b"no",
    "HTML": b"<html><body>no</body></html>",
    "JSON": b'{"detail":"no"}',
    "list": b'[{"error":{"code":-32603}}]',
    "OAuth": b'{"error":"invalid_token","error_description":"expired"}',
    "problem": b'{"type":"about:blank","title":"no","status":400}',
    "broken JSON": b'{"error":{"code":-32603',
}
# Bodies with an error of A2A or JSON-RPC, as each binding carries them.
SPEAKING = {
    "internal": (
        InternalError,
        {
            "JSONRPC": rpc(-32603, "crashed"),
            "HTTP+JSON": rest_error_body(500, "INTERNAL", "unknown exception"),
        },
    ),
    "unsupported": (
        UnsupportedOperationError,
        {
            "JSONRPC": rpc(-32004, data=[error_info("UNSUPPORTED_OPERATION")]),
            "HTTP+JSON": rest_error_body(
                400, "FAILED", details=[error_info("UNSUPPORTED_OPERATION")]
            ),
        },
    ),
    "invalid": (errors.InvalidRequestError, dict.fromkeys(BOTH, rpc(-32600))),
    "params": (errors.InvalidParamsError, dict.fromkeys(BOTH, rpc(-32602))),
    "not found": (TaskNotFoundError, dict.fromkeys(BOTH, rpc(-32001))),
    "parse": (errors.ParseError, dict.fromkeys(BOTH, rpc(-32700))),
    "version": (
        errors.VersionNotSupportedError,
        {
            "JSONRPC": rpc(-32009, data=[error_info("VERSION_NOT_SUPPORTED")]),
            "HTTP+JSON": rest_error_body(
                400, "FAILED", details=[error_info("VERSION_NOT_SUPPORTED")]
            ),
        },
    ),
}

# Status, Retry-After -> type, executed, transient; for each body that says nothing.
WITHOUT_A_PROTOCOL_ERROR = [
    (400, {}, A2AHTTPError, None, False),
    (400, SECONDS, A2AHTTPError, None, False),
    (401, {}, AuthenticationError, False, False),
    (402, {}, A2AHTTPError, None, False),
    (403, {}, PermissionDeniedError, False, False),
    (404, {}, A2AHTTPError, False, False),
    (405, {}, A2AHTTPError, False, False),
    (406, {}, A2AHTTPError, None, False),
    (408, {}, A2AHTTPError, None, True),
    (409, {}, A2AHTTPError, None, False),
    (410, {}, A2AHTTPError, None, False),
    (411, {}, A2AHTTPError, False, False),
    (412, {}, A2AHTTPError, None, False),
    (413, {}, A2AHTTPError, False, False),
    (414, {}, A2AHTTPError, False, False),
    (415, {}, A2AHTTPError, False, False),
    (421, {}, A2AHTTPError, False, False),
    (422, {}, A2AHTTPError, False, False),
    (425, {}, A2AHTTPError, False, True),
    (429, {}, RateLimitedError, False, True),
    (429, SECONDS, RateLimitedError, False, True),
    (429, BAD_HINT, RateLimitedError, False, True),
    (500, {}, A2AHTTPError, None, True),
    (500, SECONDS, A2AHTTPError, None, True),
    (501, {}, A2AHTTPError, None, False),
    (502, {}, A2AHTTPError, None, True),
    (502, SECONDS, A2AHTTPError, None, True),
    (503, {}, A2AHTTPError, None, True),
    (503, SECONDS, A2AHTTPError, False, True),
    (503, DATE, A2AHTTPError, False, True),
    (503, {"retry-after-ms": "250"}, A2AHTTPError, False, True),
    (503, BAD_HINT, A2AHTTPError, None, True),
    (503, {"retry-after": "-3"}, A2AHTTPError, None, True),
    (504, {}, A2AHTTPError, None, True),
    (504, SECONDS, A2AHTTPError, None, True),
    (302, {}, A2AHTTPError, None, False),
    (599, {}, A2AHTTPError, None, False),
]
# Status, Retry-After, body -> executed, transient.
WITH_A_PROTOCOL_ERROR = [
    (http_status, headers, body, False if body in {"parse", "version"} else None, transient)
    for http_status, headers, busy in [
        (400, {}, False),
        (400, SECONDS, True),
        (401, {}, False),
        (403, {}, False),
        (404, {}, False),
        (415, {}, False),
        (422, {}, False),
        (429, {}, True),
        (429, SECONDS, True),
        (500, {}, False),
        (502, {}, False),
        (503, {}, True),
        (503, SECONDS, True),
    ]
    for body in SPEAKING
    # "The agent failed inside" is transient wherever it stands, a bad request is not.
    for transient in [busy or body == "internal"]
]


@pytest.mark.parametrize("binding", BOTH)
@pytest.mark.parametrize(
    ("http_status", "headers", "kind", "executed", "transient"), WITHOUT_A_PROTOCOL_ERROR
)
def test_a_status_without_an_error_object_maps_to_its_error(
    *, binding, http_status, headers, kind, executed, transient
):
    for body, silent in SILENT.items():
        with case(body):
            error = failure(binding, http_status, silent, headers)

            assert (type(error), error.executed, error.transient) == (kind, executed, transient)
            assert error.code is None
            assert error.message.startswith(f"HTTP {http_status}")


@pytest.mark.rule("P31", "D06")
@pytest.mark.parametrize("binding", BOTH)
@pytest.mark.parametrize(
    ("http_status", "headers", "body", "executed", "transient"), WITH_A_PROTOCOL_ERROR
)
def test_an_error_of_the_protocol_leaves_execution_unknown_under_any_status(
    *, binding, http_status, headers, body, executed, transient
):
    kind, bodies = SPEAKING[body]
    if (binding, body) == ("HTTP+JSON", "internal") and http_status in {401, 403, 429}:
        kind = status._BY_STATUS[http_status]  # without ErrorInfo the status is the better name
        transient = http_status == 429

    error = failure(binding, http_status, bodies[binding], headers)

    assert (type(error), error.executed, error.transient) == (kind, executed, transient)


@pytest.mark.rule("D06")
@pytest.mark.parametrize("binding", BOTH)
@pytest.mark.parametrize("code", [-32050, -32099, -32000, -32010, -31999 - 1, -32768])
@pytest.mark.parametrize("http_status", [400, 404, 422, 500])
def test_a_code_of_the_agent_is_kept_and_overrides_the_status(binding, code, http_status):
    error = failure(binding, http_status, rpc(code, "own"))

    assert type(error) is AgentError
    assert (error.code, error.executed, error.transient) == (code, None, False)
    assert error.message == f"the agent answered {code}: own"


@pytest.mark.parametrize("binding", BOTH)
@pytest.mark.parametrize(
    ("code", "kind"), [(code, kind.__name__) for code, kind in BY_CODE.items()]
)
def test_a_code_maps_to_the_protocols_error(binding, code, kind):
    error = failure(binding, 400, rpc(code))

    assert type(error).__name__ == kind
    assert error.code == code
    assert error.executed is (False if code in {-32700, -32009} else None)


def test_the_table_of_codes_equals_the_protocols():
    assert {code: kind.__name__ for code, kind in BY_CODE.items()} == {
        -32001: "TaskNotFoundError",
        -32002: "TaskNotCancelableError",
        -32003: "PushNotificationNotSupportedError",
        -32004: "UnsupportedOperationError",
        -32005: "ContentTypeNotSupportedError",
        -32006: "InvalidAgentResponseError",
        -32007: "ExtendedAgentCardNotConfiguredError",
        -32008: "ExtensionSupportRequiredError",
        -32009: "VersionNotSupportedError",
        -32700: "ParseError",
        -32600: "InvalidRequestError",
        -32601: "MethodNotFoundError",
        -32602: "InvalidParamsError",
        -32603: "InternalError",
    }


@pytest.mark.rule("P31")
@pytest.mark.parametrize("binding", BOTH)
def test_the_caller_may_add_or_remove_statuses_that_prove_no_execution(binding):
    assert failure(binding, 404, refusals=frozenset({429})).executed is None
    assert failure(binding, 429, refusals=frozenset({429})).executed is False
    assert failure(binding, 502, refusals=frozenset({502})).executed is False
    assert failure(binding, 404, rpc(-32001), refusals=frozenset({404})).executed is None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(rest_error_body(404, "NOT_FOUND", "no such task"), id="google.rpc.Status"),
        pytest.param(
            json.dumps(
                json.loads(rest_error_body(404, "NOT_FOUND", "no such task"))["error"]
            ).encode(),
            id="the same without an envelope",
        ),
    ],
)
def test_a_status_object_without_error_info_is_an_http_error(body):
    error = failure("HTTP+JSON", 404, body)

    assert type(error) is A2AHTTPError
    assert (error.executed, error.transient) == (None, False)
    assert error.message == "HTTP 404 Not Found: no such task"
    assert error.excerpt is None
    assert error.data["status"] == "NOT_FOUND"


@pytest.mark.parametrize(
    ("http_status", "name", "kind", "code"),
    [
        (400, "INVALID_ARGUMENT", errors.InvalidParamsError, -32602),
        (501, "UNIMPLEMENTED", errors.MethodNotFoundError, -32601),
        (500, "INTERNAL", InternalError, -32603),
        (401, "UNAUTHENTICATED", AuthenticationError, None),
        (403, "PERMISSION_DENIED", PermissionDeniedError, None),
        (429, "RESOURCE_EXHAUSTED", RateLimitedError, None),
        (503, "UNAVAILABLE", A2AHTTPError, None),
    ],
)
def test_the_status_name_without_error_info_determines_the_error(http_status, name, kind, code):
    error = failure("HTTP+JSON", http_status, rest_error_body(http_status, name), SECONDS)

    assert type(error) is kind
    assert (error.code, error.executed, error.retry_after) == (code, None, 3.0)


# ── Details ──────────────────────────────────────────────────────────────────────────────────

CARRIERS = {
    "JSON-RPC": lambda code, reason, **m: (
        "JSONRPC",
        200,
        rpc(code, data=[error_info(reason, **m)]),
    ),
    "REST": lambda code, reason, **m: (
        "HTTP+JSON",
        400,
        rest_error_body(400, "FAILED_PRECONDITION", details=[error_info(reason, **m)]),
    ),
}
carriers = pytest.mark.parametrize("carrier", CARRIERS.values(), ids=CARRIERS)


@pytest.mark.rule("D12")
@carriers
@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("TASK_NOT_FOUND", -32001),
        ("TASK_NOT_CANCELABLE", -32002),
        ("PUSH_NOTIFICATION_NOT_SUPPORTED", -32003),
        ("UNSUPPORTED_OPERATION", -32004),
        ("CONTENT_TYPE_NOT_SUPPORTED", -32005),
        ("INVALID_AGENT_RESPONSE", -32006),
        ("EXTENDED_AGENT_CARD_NOT_CONFIGURED", -32007),
        ("EXTENSION_SUPPORT_REQUIRED", -32008),
        ("VERSION_NOT_SUPPORTED", -32009),
    ],
)
def test_an_error_is_the_same_over_both_bindings(carrier, reason, code):
    error = failure(*carrier(code, reason))

    assert type(error) is BY_CODE[code]
    assert error.code == code
    assert error.details == (error_info(reason),)


@carriers
def test_task_not_found_names_the_task(carrier):
    error = failure(*carrier(-32001, "TASK_NOT_FOUND", taskId="t-1"), operation=GET_TASK)

    assert isinstance(error, TaskNotFoundError)
    assert error.task_id == "t-1"


@carriers
def test_task_not_cancelable_has_the_state(carrier):
    error = failure(
        *carrier(-32002, "TASK_NOT_CANCELABLE", taskId="t-1", state="TASK_STATE_COMPLETED"),
        operation=CANCEL_TASK,
    )

    assert isinstance(error, TaskNotCancelableError)
    assert (error.task_id, error.state) == ("t-1", TaskState.COMPLETED)


@carriers
def test_metadata_of_any_shape_are_accepted(carrier):
    error = failure(*carrier(-32001, "TASK_NOT_FOUND", errors=[{"loc": ["id"]}], taskId=7))

    assert error.task_id is None
    assert error.details[0]["metadata"]["errors"] == [{"loc": ["id"]}]


def test_error_info_of_another_domain_is_ignored():
    info = {**error_info("TASK_NOT_FOUND"), "domain": "googleapis.com"}

    error = failure("HTTP+JSON", 404, rest_error_body(404, "NOT_FOUND", details=[info]))

    assert type(error) is A2AHTTPError
    assert error.details == (info,)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("https://a2a-protocol.org/errors/task-not-found", TaskNotFoundError),
        ("https://a2a-protocol.org/errors/task-not-cancelable/", TaskNotCancelableError),
        ("urn:x/version-not-supported-error", errors.VersionNotSupportedError),
        ("https://a2a-protocol.org/errors/unsupported-operation", UnsupportedOperationError),
    ],
)
@pytest.mark.parametrize("more", [{}, {"code": "TASK_ERROR"}, {"code": 7}])
def test_a_problem_that_names_an_a2a_error_is_that_error(name, kind, more):
    problem = {"type": name, "title": "no", "status": 404, "detail": "really not", **more}

    error = failure("HTTP+JSON", 404, json.dumps(problem).encode())

    assert type(error) is kind
    assert error.executed is (False if error.code == -32009 else None)
    assert error.data == problem
    assert "really not" in str(error)


def test_any_other_problem_is_an_http_error():
    error = failure("HTTP+JSON", 422, b'{"type":"https://a/out-of-tea","title":"No tea"}')

    assert (type(error), error.executed) == (A2AHTTPError, False)
    assert "No tea" in error.excerpt


# ── Hints ────────────────────────────────────────────────────────────────────────────────────

RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"}


@pytest.mark.rule("D06")
@pytest.mark.parametrize("code", [-32004, -32600, -32603, -32050, 1000])
@pytest.mark.parametrize("retryable", [True, False])
def test_a_hint_sets_transient_and_never_executed(code, retryable):
    body = rpc(code, data={"retryable": retryable, "retryAfter": 4, "extra": [1]})

    error = failure("JSONRPC", 200, body)

    assert (error.transient, error.executed, error.retry_after) == (retryable, None, 4.0)
    assert error.data == {"retryable": retryable, "retryAfter": 4, "extra": [1]}


@pytest.mark.parametrize(
    ("code", "executed"), [(-32700, False), (-32009, False), (-32603, None), (-32050, None)]
)
def test_retry_after_makes_an_error_transient(code, executed):
    error = failure("JSONRPC", 200, rpc(code, data={"retryAfter": 4}))

    assert (error.transient, error.executed, error.retry_after) == (True, executed, 4.0)


@pytest.mark.parametrize("retryable", ["yes", 1, None, []])
def test_a_hint_that_is_not_a_boolean_is_ignored(retryable):
    assert failure("JSONRPC", 200, rpc(-32003, data={"retryable": retryable})).transient is False
    assert failure("JSONRPC", 200, rpc(-32603, data={"retryable": retryable})).transient is True


@pytest.mark.parametrize(
    ("binding", "http_status", "body"),
    [
        ("JSONRPC", 200, rpc(-32050, data=[RETRY_INFO])),
        ("HTTP+JSON", 429, rest_error_body(429, "RESOURCE_EXHAUSTED", details=[RETRY_INFO])),
        (
            "HTTP+JSON",
            400,
            rest_error_body(400, "X", details=[error_info("UNSUPPORTED_OPERATION"), RETRY_INFO]),
        ),
    ],
)
def test_retry_info_is_read(binding, http_status, body):
    error = failure(binding, http_status, body, {"retry-after": "9"})

    assert (error.retry_after, error.transient, error.executed) == (2.5, True, None)


@pytest.mark.parametrize("value", ["", "s", "-1s", "nan", "inf", "1e999s", 7, None, ["3s"], "3ss"])
def test_an_invalid_retry_info_is_ignored(value):
    error = failure("JSONRPC", 200, rpc(-32050, data=[{**RETRY_INFO, "retryDelay": value}]))

    assert (error.retry_after, error.transient) == (None, False)


BAD_NUMBERS = [
    "-1",
    "-0.5",
    "nan",
    "inf",
    "-inf",
    "Infinity",
    "1_000",
    "0x10",
    "1e3",
    "\u0661",
    "",
    "s",
]


@pytest.mark.parametrize("value", [*BAD_NUMBERS, -1, -0.5, None, True, [3], {"s": 3}])
def test_an_invalid_retry_after_in_the_data_is_ignored(value):
    error = failure("JSONRPC", 200, rpc(-32050, data={"retryAfter": value}))

    assert (error.retry_after, error.transient) == (None, False)


@pytest.mark.parametrize("value", [0, 3, 2.5, "3", "2.5", 10**400])
def test_retry_after_in_the_data_may_be_a_number_or_a_text(value):
    error = failure("JSONRPC", 200, rpc(-32050, data={"retryAfter": value}))

    assert error.retry_after == (None if value == 10**400 else float(value))


def test_the_nearest_hint_takes_precedence():
    headers = {"retry-after": "7", "retry-after-ms": "1500"}

    assert failure("JSONRPC", 200, rpc(-32050, data={"retryAfter": 4}), headers).retry_after == 4
    assert failure("JSONRPC", 200, rpc(-32050), headers).retry_after == 1.5
    assert failure("JSONRPC", 200, rpc(-32050), {"retry-after": "7"}).retry_after == 7


# now is 07:28:00; the date header is the server's own clock, a minute slow.
SLOW = "Wed, 21 Oct 2015 07:27:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "120"}, 120.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT", "date": SLOW}, 90.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT", "date": "noon"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2015 09:28:30 +0200"}, 30.0),
        ({"retry-after": "Wednesday, 21-Oct-15 07:28:30 GMT"}, 30.0),  # RFC 850
        ({"retry-after": "Wed Oct 21 07:28:30 2015"}, 30.0),  # asctime
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 -0000"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:00:00 GMT"}, 0.0),  # over already
        *(({"retry-after": value}, None) for value in BAD_NUMBERS),
        *(({"retry-after-ms": value}, None) for value in BAD_NUMBERS),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:30 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 99999999 07:28:30 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 +99999999999999"}, None),
        ({"retry-after": "1-Jan- 12:00 GMT"}, None),
        ({}, None),
    ],
)
def test_the_retry_after_header_is_read_in_every_form(headers, seconds):
    assert failure("JSONRPC", 429, headers=headers).retry_after == seconds


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_a_date_is_in_utc_in_any_time_zone(zone, monkeypatch):
    if not hasattr(time, "tzset"):
        pytest.skip("this system cannot change its zone")
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        error = failure("JSONRPC", 429, headers={"retry-after": "Wed Oct 21 07:28:30 2015"})
    time.tzset()

    assert error.retry_after == 30.0


@given(value=any_text | st.text("0123456789 -:,GMTJanOct+", max_size=30), date=any_text)
def test_any_retry_after_header_is_a_valid_delay_or_none(value, date):
    headers = {"retry-after": value, "retry-after-ms": value, "date": date}

    wait = status.from_http_status(HttpReply(status=503, headers=headers), now=NOW).retry_after

    assert wait is None or 0 <= wait < float("inf")


# ── The dialect of an older article (DESIGN: errors) ─────────────────────────────────────────


MAY_PASS = {-32004, -32005, -32006}
"""Return whether the article's client retries an error without a hint."""


@pytest.mark.parametrize("code", range(-32008, -32000))
@pytest.mark.parametrize(
    "data", [{"retryable": True}, {"retryAfter": 5}, {"detail": "Come back later."}]
)
def test_the_articles_dialect_has_its_own_codes(code, data):
    error = failure("JSONRPC", 200, rpc(code, "Busy", data=data))

    assert type(error) is AgentError
    assert (error.code, error.data, error.executed) == (code, data, None)
    assert error.transient == ("detail" not in data or code in MAY_PASS)
    assert ("Busy: Come back later." in str(error)) == ("detail" in data)


@pytest.mark.parametrize("data", [None, {}, {"taskId": "t"}, [], [{"retryable": True}], "x", 7])
def test_without_the_dialects_members_codes_are_the_protocols(data):
    assert type(failure("JSONRPC", 200, rpc(-32004, data=data))) is UnsupportedOperationError


@pytest.mark.parametrize("code", [-32009, -32603, -32700])
def test_codes_outside_the_dialect_keep_their_meaning(code):
    error = failure("JSONRPC", 200, rpc(code, data={"retryable": True}))

    assert type(error) is BY_CODE[code]


# ── Messages ─────────────────────────────────────────────────────────────────────────────────


@given(text=any_text, detail=any_text)
def test_an_agents_message_is_bounded_and_readable(text, detail):
    error = failure("JSONRPC", 200, rpc(-32050, text * 200, data={"detail": "x" * 5_000 + detail}))

    assert len(error.message) < 1_200
    assert error.message.isprintable()


@pytest.mark.rule("S30")
def test_s30_a_page_of_a_proxy_is_a_typed_error_with_status_and_excerpt():
    page = b"<html>\r\n<head><title>502 Bad Gateway</title></head>" + b"<p>" * 1000

    for binding in BOTH:
        error = failure(binding, 502, page, {"content-type": "text/html", "set-cookie": "s=1"})
        assert (type(error), error.http_status, error.transient) == (A2AHTTPError, 502, True)
        assert error.excerpt.startswith("<html> <head><title>502 Bad Gateway")
        assert len(error.excerpt) <= 200
        assert error.headers == {"content-type": "text/html"}


def test_an_unknown_status_is_named_by_its_number():
    assert failure("JSONRPC", 799).message == "HTTP 799"
    assert failure("JSONRPC", 429).message == "HTTP 429 Too Many Requests"


# ── An older dialect ─────────────────────────────────────────────────────────────────────────

ARTICLE_CODES = {
    "AUTH_REQUIRED": -32001,
    "TASK_NOT_FOUND": -32002,
    "INSUFFICIENT_SCOPE": -32003,
    "RATE_LIMITED": -32004,
    "AGENT_UNAVAILABLE": -32005,
    "TASK_TIMEOUT": -32006,
    "CONTENT_TOO_LARGE": -32007,
    "SKILL_NOT_FOUND": -32008,
}


def test_article_error_codes():
    assert {code.name: int(code) for code in ArticleErrorCode} == ARTICLE_CODES


@pytest.mark.parametrize("code", ArticleErrorCode)
@pytest.mark.parametrize(
    ("data", "facts"),
    [
        ({"retryable": True, "retryAfter": 10}, (True, 10)),
        ({"retryable": False, "detail": "for good"}, (False, None)),
        ({"retryAfter": 2.5}, (True, 2.5)),
    ],
)
def test_an_error_made_in_the_dialect_is_read_with_its_facts(code, data, facts):
    error_object = make_error(code, "Not now", data)
    document = json.loads(json.dumps({"jsonrpc": "2.0", "id": REQUEST_ID, "error": error_object}))

    error = failure("JSONRPC", 200, json.dumps(document).encode())

    assert type(error) is AgentError
    assert error.code == code
    assert (error.transient, error.retry_after, error.executed) == (*facts, None)
    assert error.data == data
    assert "Not now" in str(error)
    assert data.get("detail", "") in str(error)


def test_an_error_without_the_dialects_data_is_of_a2a():
    envelope = {"jsonrpc": "2.0", "id": REQUEST_ID, "error": make_error(-32001, "no")}

    assert type(failure("JSONRPC", 200, json.dumps(envelope).encode())) is TaskNotFoundError
    assert make_error(-32700, "no", {}) == {"code": -32700, "message": "no"}


@given(error=error_objects, http_status=http_statuses, headers=http_headers)
def test_any_error_object_is_a_typed_error(error, http_status, headers):
    reply = HttpReply(status=http_status, headers=headers)

    typed_errors = [
        status.from_rpc_error(error, reply, now=NOW),
        status.from_rest_status(error, reply, now=NOW),
        status.from_problem(error, reply, now=NOW),
    ]

    assert isinstance(typed_errors[0], A2AError)
    for each in typed_errors:
        assert each is None or isinstance(each, A2AError)
        if each is not None and each.code not in {-32700, -32009}:
            assert each.executed is None
        assert each is None or each.retry_after is None or 0 <= each.retry_after < float("inf")
    if isinstance(typed_errors[0], InvalidAgentResponseError) and typed_errors[0].code is None:
        assert not isinstance(error.get("code"), int) or isinstance(error["code"], bool)


@pytest.mark.parametrize(
    ("binding", "http_status", "body", "is_unknown"),
    [
        ("JSONRPC", 200, rpc(-32601), True),
        ("JSONRPC", 200, rpc(-32001), False),
        ("JSONRPC", 200, rpc(-32004), False),
        *(("HTTP+JSON", bare, b"", True) for bare in (404, 405, 501)),
        *(("HTTP+JSON", bare, b"", False) for bare in (400, 401, 403, 410, 429, 500, 503)),
        (
            "HTTP+JSON",
            404,
            rest_error_body(404, "NOT_FOUND", details=[error_info("TASK_NOT_FOUND")]),
            False,
        ),
        ("HTTP+JSON", 501, rest_error_body(501, "UNIMPLEMENTED"), True),
    ],
)
def test_an_unknown_operation_is_recognized_by_its_name_or_path(
    binding, http_status, body, is_unknown
):
    error = failure(binding, http_status, body, operation=GET_TASK)

    assert status.is_unknown_operation(error) is is_unknown
