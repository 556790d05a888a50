"""What the failures of the SDK's transports mean: worth another try, and was it executed?"""

import contextlib
import subprocess
import sys

import grpc
import httpx
import httpx2
import pytest
from a2a.client.errors import A2AClientError, A2AClientTimeoutError, AgentCardResolutionError
from a2a.client.transports.tenant_decorator import TenantTransportDecorator
from a2a.utils import errors as domain
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from tests.kit.effort import case
from tests.kit.refused_bodies import OF_AN_AGENT, OF_SOMEBODY_BEFORE_IT
from tests.kit.sdk_transports import (
    CALLS,
    CONDITIONAL,
    Dice,
    Scripted,
    call,
    caused,
    rpc_error,
    status_error,
    timed_out,
    unanswered,
)

from holdfast import A2AConnectionError
from holdfast.errors import AgentError
from holdfast.integrations.a2a_sdk import RetryTransport, default_retry_predicate, retry_facts

HARMLESS = sorted(set(CALLS) - set(CONDITIONAL))


def own(error):
    """A failure of a transport that has Holdfast below."""
    return caused(A2AClientError("it failed"), error)


def domain_errors():
    kinds = [kind for kind in vars(domain).values() if isinstance(kind, type)]
    kinds = [kind for kind in kinds if issubclass(kind, domain.A2AError)]
    assert len(kinds) > 10
    return kinds


async def tries(error, name, **options):
    """How often a call is made whose first try fails like this."""
    inner = Scripted(error)
    transport = RetryTransport(inner, env=Dice(0.5), max_retries=1, **options)
    with contextlib.suppress(type(error)):
        await call(transport, name)
    return len(inner.calls)


# ── Is it worth another try? ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [*range(300, 309), *range(400, 432), *range(500, 512)])
def test_by_default_four_http_statuses_are_tried_again(status):
    assert default_retry_predicate(status_error(status)) == (status in {429, 502, 503, 504})


@pytest.mark.parametrize("code", [code.name for code in grpc.StatusCode])
def test_by_default_three_grpc_codes_are_tried_again(code):
    retried = {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}

    assert default_retry_predicate(rpc_error(code)) == (code in retried)


@pytest.mark.parametrize("package", [httpx, httpx2])
@pytest.mark.parametrize(
    "kind",
    [
        "ConnectError",
        "ReadError",
        "WriteError",
        "CloseError",
        "RemoteProtocolError",
        "ProxyError",
        "DecodingError",
        "RequestError",
    ],
)
def test_by_default_request_errors_are_tried_again(package, kind):
    class Special(getattr(package, kind)):
        """A subclass is one of them."""

    assert default_retry_predicate(unanswered(getattr(package, kind)))
    assert default_retry_predicate(unanswered(Special))


@pytest.mark.parametrize("package", [httpx, httpx2])
@pytest.mark.parametrize("kind", ["LocalProtocolError", "TooManyRedirects", "UnsupportedProtocol"])
def test_what_is_the_same_at_every_try_is_tried_once(package, kind):
    assert not default_retry_predicate(unanswered(getattr(package, kind)))


@pytest.mark.parametrize("error", [A2AClientTimeoutError(), timed_out()])
def test_by_default_timeouts_are_tried_again(error):
    assert default_retry_predicate(error)


@pytest.mark.parametrize("kind", domain_errors())
def test_an_error_of_the_protocol_is_an_answer_whatever_it_came_with(kind):
    for cause in (None, status_error(503).__cause__, rpc_error("UNAVAILABLE").__cause__):
        assert not default_retry_predicate(caused(kind(), cause))


@pytest.mark.parametrize(
    "error",
    [
        A2AClientError("it is closed"),
        AgentCardResolutionError("no card", status_code=503),
        caused(A2AClientError("not JSON"), ValueError()),
        caused(A2AClientError("no status"), grpc.RpcError()),
        ValueError(),
        TimeoutError(),
        httpx.ConnectError("as it is"),
    ],
)
def test_by_default_nothing_else_is_tried_again(error):
    assert not default_retry_predicate(error)


@pytest.mark.parametrize("transient", [True, False])
def test_holdfast_below_knows(transient):
    assert default_retry_predicate(own(AgentError("busy", transient=transient))) == transient
    late = caused(A2AClientTimeoutError("late"), AgentError("late", transient=transient))
    assert default_retry_predicate(late) == transient


# ── Was it executed? ─────────────────────────────────────────────────────────────────────────


RPC = OF_AN_AGENT["an error"]
PAGE = OF_SOMEBODY_BEFORE_IT["a page"]


def unread(status):
    """A reply to a stream whose body nobody has read."""
    error = status_error(status)
    cause = error.__cause__
    stream = httpx.AsyncByteStream()
    cause.response = httpx.Response(status, stream=stream, request=cause.request)
    return error


def not_executed():
    """Failures that show that the agent did not run it."""
    return {
        "refused": unanswered(httpx.ConnectError),
        "refused, httpx2": unanswered(httpx2.ConnectError),
        "proxy": unanswered(httpx.ProxyError),
        "connect timeout": timed_out(httpx.ConnectTimeout),
        "pool timeout": timed_out(httpx.PoolTimeout),
        "by hand": caused(A2AClientTimeoutError(), httpx.ConnectTimeout("without a request")),
        **{f"429, {who}": status_error(429, body) for who, body in OF_SOMEBODY_BEFORE_IT.items()},
        "429, moved": status_error(429, history=[httpx.Response(307), httpx.Response(308)]),
        "503, hint": status_error(503, retry_after="1"),
        "503, hint in ms": status_error(503, PAGE, retry_after_ms="5"),
        "own": own(
            A2AConnectionError("refused", failure="refused", transient=True, executed=False)
        ),
        "own, below httpx": caused(
            A2AClientError(),
            caused(
                httpx.ReadError("as httpx tells it"),
                A2AConnectionError("refused", failure="refused", transient=True, executed=False),
            ),
        ),
    }


def maybe_executed():
    """Failures after which nobody knows."""
    return {
        "read timeout": timed_out(httpx.ReadTimeout),
        "write timeout": timed_out(httpx.WriteTimeout),
        "a timeout of who knows what": A2AClientTimeoutError(),
        "reset": unanswered(httpx.ReadError),
        "reset, httpx2": unanswered(httpx2.ReadError),
        "reset while writing": unanswered(httpx.WriteError),
        "closed": unanswered(httpx.CloseError),
        "no reply": unanswered(httpx.RemoteProtocolError),
        "undecodable": unanswered(httpx.DecodingError),
        "refused after a redirect": unanswered(httpx.ConnectError, method="GET"),
        "502": status_error(502),
        "503": status_error(503),
        "503, a hint that is none": status_error(503, retry_after="soon"),
        "504": status_error(504, retry_after="1"),
        **{f"429, {what}": status_error(429, body) for what, body in OF_AN_AGENT.items()},
        "429, unread": unread(429),
        "429 after a redirect": status_error(429, history=[httpx.Response(303)]),
        **{
            f"503, hint, {what}": status_error(503, body, retry_after="1")
            for what, body in OF_AN_AGENT.items()
        },
        "own": own(A2AConnectionError("reset", failure="closed", transient=True)),
        "own, below httpx": caused(
            A2AClientError(),
            caused(
                httpx.ConnectError("only the last of several tries"),
                A2AConnectionError("reset", failure="closed", transient=True),
            ),
        ),
        "grpc, words only": rpc_error("UNAVAILABLE", "failed to connect to all addresses"),
        "grpc, closed": rpc_error("UNAVAILABLE", "Socket closed"),
        "grpc, deadline": rpc_error("DEADLINE_EXCEEDED"),
        "grpc, exhausted": rpc_error("RESOURCE_EXHAUSTED"),
        "grpc, hint": rpc_error("UNAVAILABLE", trailing=[("grpc-retry-pushback-ms", "10")]),
    }


@pytest.mark.parametrize("name", CONDITIONAL)
@pytest.mark.parametrize("what", not_executed())
async def test_what_was_not_executed_is_sent_again(name, what):
    error = not_executed()[what]
    assert await tries(error, name) == 2


@pytest.mark.parametrize(
    ("kind", "made"),
    [("UnsupportedProtocol", 2), ("LocalProtocolError", 1), ("TooManyRedirects", 1)],
)
async def test_a_predicate_that_says_yes_to_all_resends_only_what_is_safe(kind, made):
    error = unanswered(getattr(httpx, kind))
    assert await tries(error, "send_message", retry_predicate=lambda _: True) == made


@pytest.mark.parametrize("name", CONDITIONAL)
async def test_what_may_have_been_executed_is_not_sent_again(name):
    for what, error in maybe_executed().items():
        with case(what):
            assert await tries(error, name) == 1
            assert retry_facts(error).reason == "the agent may have executed it"
            assert retry_facts(error).executed is None


@pytest.mark.parametrize("name", CONDITIONAL)
async def test_no_predicate_makes_a_message_run_twice(name):
    for what, error in maybe_executed().items():
        with case(what):
            assert await tries(error, name, retry_predicate=lambda _: True) == 1


@pytest.mark.parametrize("name", CONDITIONAL)
@pytest.mark.parametrize("error", [ValueError(), domain.InternalError(), OSError()])
async def test_nor_after_an_unreadable_reply(name, error):
    assert await tries(error, name, retry_predicate=lambda _: True) == 1


@pytest.mark.parametrize("name", CONDITIONAL)
async def test_the_caller_may_want_it_sent_again(name):
    for what, error in maybe_executed().items():
        with case(what):
            assert await tries(error, name, resend_ambiguous=True) == 2


@pytest.mark.parametrize("name", HARMLESS)
async def test_what_may_run_twice_is_tried_again(name):
    for what, error in maybe_executed().items():
        with case(what):
            assert await tries(error, name) == 2


@pytest.mark.parametrize("status", [401, 404, 408, 425, 500])
@pytest.mark.parametrize(("body", "may"), [(b"", True), (RPC, False)])
async def test_a_predicate_may_add_a_refusal(status, body, may):
    error = status_error(status, body)
    is_refusal = status in {401, 404, 425}

    assert await tries(error, "send_message") == 1
    often = await tries(error, "send_message", retry_predicate=lambda _: True)

    assert often == (2 if may and is_refusal else 1)


@pytest.mark.parametrize(("name", "often"), [("get_task", 2), ("send_message", 1)])
async def test_a_grpc_error_that_says_nothing_shows_nothing(name, often):
    error = caused(A2AClientError("of an interceptor"), grpc.RpcError("no"))

    assert await tries(error, name, retry_predicate=lambda _: True) == often


class Odd:
    """A reply that a third party has made up."""

    status_code = 503


@pytest.mark.parametrize(("name", "often"), [("get_task", 2), ("send_message", 1)])
async def test_a_reply_that_cannot_be_read_shows_nothing(name, often):
    error = status_error(503)
    error.__cause__.response = Odd()

    assert await tries(error, name) == often


# ── gRPC ─────────────────────────────────────────────────────────────────────────────────────


class Channel(grpc.aio.Channel):
    """A channel that says what it is told to say of its connection."""

    def __init__(self, *states):
        self._states = list(states)

    def get_state(self, try_to_connect=False):
        state = self._states.pop(0)
        if state is None:
            raise grpc.aio.UsageError("Channel is closed.")
        return getattr(grpc.ChannelConnectivity, state)


for _name in grpc.aio.Channel.__abstractmethods__ - {"get_state"}:
    setattr(Channel, _name, None)
Channel.__abstractmethods__ = frozenset()

NO_CONNECTION = "failed to connect to all addresses; last error: UNKNOWN: Connection refused"
NO_NAME = "errors resolving agent.example:443: [field:hostname lookup error]"
NO_NAME_BEFORE = "DNS resolution failed for agent.example:443: no such host"
IDLE, CONNECTING, READY, FAILED = "IDLE", "CONNECTING", "READY", "TRANSIENT_FAILURE"
STATED = [("server", "nginx")]


@pytest.mark.parametrize(
    ("error", "states", "often"),
    [
        (rpc_error("UNAVAILABLE", NO_CONNECTION), (IDLE, FAILED), 2),
        (rpc_error("UNAVAILABLE", NO_NAME), (IDLE, FAILED), 2),
        (rpc_error("UNAVAILABLE", NO_NAME_BEFORE), (CONNECTING, FAILED), 2),
        (rpc_error("UNAVAILABLE", NO_CONNECTION), (FAILED, FAILED), 2),
        (rpc_error("UNAVAILABLE", NO_CONNECTION), (READY, FAILED), 1),
        (rpc_error("UNAVAILABLE", NO_CONNECTION), (IDLE, READY), 1),
        (rpc_error("UNAVAILABLE", NO_CONNECTION), (IDLE, IDLE), 1),
        (rpc_error("UNAVAILABLE", NO_CONNECTION), (None, FAILED), 1),
        (rpc_error("UNAVAILABLE", NO_CONNECTION), (IDLE, None), 1),
        (rpc_error("UNAVAILABLE", NO_CONNECTION, trailing=STATED), (IDLE, FAILED), 1),
        (rpc_error("UNAVAILABLE", NO_CONNECTION, initial=STATED), (IDLE, FAILED), 1),
        (rpc_error("UNAVAILABLE", "Socket closed"), (IDLE, FAILED), 1),
        (rpc_error("UNAVAILABLE", None), (IDLE, FAILED), 1),
        (rpc_error("RESOURCE_EXHAUSTED", NO_CONNECTION), (IDLE, FAILED), 1),
        (rpc_error("DEADLINE_EXCEEDED", NO_CONNECTION), (IDLE, FAILED), 1),
    ],
)
@pytest.mark.parametrize("name", CONDITIONAL)
@pytest.mark.parametrize("depth", [0, 1])
async def test_grpc_has_to_show_that_it_had_no_connection(name, error, states, often, depth):
    inner = Scripted(error)
    inner.channel = Channel(*states, IDLE)
    wrapped = TenantTransportDecorator(inner, "acme") if depth else inner
    transport = RetryTransport(wrapped, env=Dice(0.5), max_retries=1)

    if often == 1:
        with pytest.raises(A2AClientError):
            await call(transport, name)
    else:
        await call(transport, name)

    assert len(inner.calls) == often


def details(*infos):
    """The trailing metadata with these details of a status."""
    packed = []
    for info in infos:
        holder = Any()
        holder.Pack(info)
        packed.append(holder)
    status = Status(code=14, message="busy", details=packed)
    return [("grpc-status-details-bin", status.SerializeToString())]


@pytest.mark.parametrize(
    ("trailing", "wait"),
    [
        ([("grpc-retry-pushback-ms", "3000")], 3.5),
        ([("grpc-retry-pushback-ms", "0")], 0.5),
        (details(RetryInfo(retry_delay=Duration(seconds=2, nanos=500_000_000))), 3.0),
        (details(ErrorInfo(reason="BUSY"), RetryInfo(retry_delay=Duration(seconds=4))), 4.5),
        (details(ErrorInfo(reason="BUSY")), 0.5),
        (details(RetryInfo(retry_delay=Duration(seconds=-4))), 0.5),
        ([("grpc-status-details-bin", b"\xff\xff")], 0.5),
        ([("grpc-status-details-bin", "text")], 0.5),
    ],
)
async def test_a_grpc_hint_is_a_lower_bound_of_the_wait(trailing, wait):
    inner = Scripted(rpc_error("UNAVAILABLE", trailing=trailing))

    await call(RetryTransport(inner, env=Dice(0.5)), "get_task")

    assert inner.times == pytest.approx([0, wait])


@pytest.mark.parametrize("pushback", ["-1", "never", ""])
async def test_a_grpc_server_may_ask_not_to_be_tried_again(pushback):
    error = rpc_error("UNAVAILABLE", trailing=[("grpc-retry-pushback-ms", pushback)])

    assert await tries(error, "get_task") == 1
    assert retry_facts(error).reason == "the agent declared the failure final"


@pytest.mark.parametrize(
    "body",
    [
        '{"error": {"code": 503, "status": "UNAVAILABLE", "details": [%s]}}',
        '{"jsonrpc": "2.0", "error": {"code": -32000, "data": [%s]}}',
    ],
)
async def test_a_hint_in_a_body_counts_as_well(body):
    info = '{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}'
    written = body % info
    inner = Scripted(status_error(503, written.encode()))

    await call(RetryTransport(inner, env=Dice(0.5)), "get_task")

    assert inner.times == pytest.approx([0, 7.5])


# ── Without the SDK ──────────────────────────────────────────────────────────────────────────


def python(program):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("missing", ["a2a", "a2a.types.a2a_pb2"])
def test_without_the_sdk_the_extra_is_named(missing):
    program = f"""
import sys
sys.modules[{missing!r}] = None
try:
    import holdfast.integrations.a2a_sdk
except ImportError as error:
    print(error)
"""
    assert 'pip install ".[a2a-sdk]"' in python(program)


def test_what_else_is_missing_is_named_as_it_is():
    program = """
import sys
sys.modules["google.protobuf"] = None
try:
    import holdfast.integrations.a2a_sdk
except ImportError as error:
    print(error)
"""
    assert "google.protobuf" in python(program)


def test_grpc_is_not_imported_for_its_errors():
    program = """
import sys
import holdfast.integrations.a2a_sdk as integration
from a2a.client.errors import A2AClientError
assert not integration.default_retry_predicate(A2AClientError("no cause"))
print("grpc" in sys.modules, end="")
"""
    before = "import sys, a2a.client.transports.base; print('grpc' in sys.modules, end='')"
    assert python(program) == python(before)
