"""The engine over aiohttp on real sockets: one request, true facts, no leaks."""

import asyncio
import contextlib
import functools
import gc
import gzip
import json
import random
import re
import socket
import ssl
import threading
import traceback
import tracemalloc
import warnings

import aiohttp
import pytest
import trustme
from tests.kit.raw_server import (
    LAST_CHUNK,
    always,
    chunk,
    head,
    header,
    reply,
    serve,
    serve_in_thread,
)

from holdfast import Coordinator, OutcomeUnknownError, RateLimitedError, Resilience, connect
from holdfast._wire.http import Progress
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2ATimeoutError,
    InvalidAgentResponseError,
    LimitExceededError,
)
from holdfast.extend import AiohttpEngine, HttpRequest
from holdfast.policies import Limits, Timeouts
from holdfast.testing import FakeAgent, LoopbackServer

pytestmark = pytest.mark.real_time

# What a test waits for comes at once; the bound only keeps a broken engine from hanging.
LONG_TIMEOUT_S = 60.0
# A limit that is meant to fire.
BRIEF = 0.05
CHUNKED = "Transfer-Encoding: chunked"
LONG_NAME = ".".join(["name" * 15] * 5) + ".invalid"


def on_a_loop(test):
    """Run an async test on an ordinary event loop, and check for leaks."""

    async def tidy(*args, **kwargs):
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(LONG_TIMEOUT_S):
            await test(*args, **kwargs)
        for _ in range(10):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert sockets_of(loop) == 0

    @functools.wraps(test)
    def sync(*args, **kwargs):
        asyncio.run(tidy(*args, **kwargs))
        gc.collect(1)  # its waste is young; a ResourceWarning belongs to the test that caused it

    return sync


def sockets_of(loop):
    """Return the number of sockets that the loop watches, without its own pipe."""
    return len(loop._selector.get_map()) - 1


@contextlib.asynccontextmanager
async def open_engine(**options):
    engine = AiohttpEngine(**options)
    try:
        yield engine
    finally:
        await engine.close()


def limits(**brief):
    timeouts = dict.fromkeys(Timeouts.__struct_fields__, LONG_TIMEOUT_S)
    return Timeouts(**timeouts | brief)


def post(url, body=b'{"method": "SendMessage"}', **options):
    options = {"timeouts": limits(), "max_idle": 1.0} | options
    return HttpRequest(method="POST", url=url, body=body, **options)


def get(url, **options):
    options = {"timeouts": limits()} | options
    return HttpRequest(method="GET", url=url, **options)


def request_line(request):
    return request.partition(b"\r\n")[0].decode()


async def failing(call, kind):
    with pytest.raises(kind) as caught:
        await call
    return caught.value


async def reading(engine, request, received=None, then=lambda: None):
    """Read a stream to its end; call `then` for each chunk."""
    received = [] if received is None else received
    async with engine.stream(request) as stream:
        async for piece in stream.chunks():
            received.append(piece)
            then()
    return received


class Clock:
    """A clock that a test sets; the pool uses no other."""

    def __init__(self, monkeypatch):
        self.ahead = 0.0
        loop = asyncio.get_running_loop()
        real = loop.time
        monkeypatch.setattr(loop, "time", lambda: real() + self.ahead)
        monkeypatch.setattr("aiohttp.connector.monotonic", lambda: self.ahead)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def certified(authority):
    """Return the TLS context of a server whose certificate is for 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def trusting(authority):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


# ── Requests ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "target", ["/", "/a%2Fb/%7Eme/", "/rpc?q=a%20b+c&empty=", "/a//b/../c", "/%C3%A9?x=%2B"]
)
@on_a_loop
async def test_the_url_is_sent_unchanged(target):
    async with serve() as server, open_engine() as engine:
        await engine.request(get(server.url.rstrip("/") + target))

        assert request_line(server.requests[0]) == f"GET {target} HTTP/1.1"


@on_a_loop
async def test_the_body_and_the_headers_are_sent_unchanged():
    body = bytes(range(256)) * 1000
    async with serve() as server, open_engine() as engine:
        await engine.request(post(server.url, body, headers={"x-any": "thing"}))

        head_sent, _, body_sent = server.requests[0].partition(b"\r\n\r\n")
        assert body_sent == body
        assert header(head_sent, "content-length") == str(len(body))
        assert header(head_sent, "x-any") == "thing"


@on_a_loop
async def test_a_get_has_no_headers_about_a_body():
    async with serve() as server, open_engine() as engine:
        await engine.request(get(server.url))

        assert header(server.requests[0], "content-length") is None
        assert header(server.requests[0], "content-type") is None
        assert header(server.requests[0], "transfer-encoding") is None


@on_a_loop
async def test_calls_accept_gzip_and_streams_only_identity():
    packed = reply(gzip.compress(b"held fast"), "Content-Encoding: gzip")
    async with serve(always(packed)) as server, open_engine() as engine:
        answer = await engine.request(post(server.url))
        await reading(engine, post(server.url))

        assert answer.body == b"held fast"
        accepted = [header(request, "accept-encoding") for request in server.requests]
        assert accepted == ["gzip", "identity"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("make", [get, post])
@on_a_loop
async def test_a_redirect_is_returned_as_a_reply(status, make):
    async with serve(always(reply(b"", "Location: /other", status=f"{status} Go"))) as server:
        async with open_engine() as engine:
            answer = await engine.request(make(server.url))

        assert answer.status == status
        assert answer.headers["location"] == "/other"
        assert len(server.requests) == 1


@pytest.mark.rule("P17")
@on_a_loop
async def test_cookies_are_neither_stored_nor_sent():
    async with (
        serve(always(reply(b"{}", "Set-Cookie: a=b; Path=/"))) as server,
        open_engine() as engine,
    ):
        await engine.request(get(server.url))
        await engine.request(get(server.url))

        assert [header(request, "cookie") for request in server.requests] == [None, None]


@pytest.mark.rule("P17")
@on_a_loop
async def test_netrc_is_not_read(tmp_path, monkeypatch):
    (tmp_path / ".netrc").write_text("default login user password sesame\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    async with serve() as server, open_engine() as engine:
        await engine.request(get(server.url))

        assert header(server.requests[0], "authorization") is None


@pytest.mark.parametrize("make", [get, post])
@on_a_loop
async def test_progress_is_sent_once_the_request_left(make):
    async def script(connection):
        await connection.first_bytes()
        sent_flags.append(progress.sent)

    progress, sent_flags = Progress(), []
    async with serve(script) as server, open_engine() as engine:
        await failing(engine.request(make(server.url, progress=progress)), A2AConnectionError)

        assert sent_flags == [True]
        assert progress.sent


# ── Proxies ──────────────────────────────────────────────────────────────────────────────────


@on_a_loop
async def test_the_proxy_of_the_environment_is_used(monkeypatch):
    async with serve() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        async with open_engine() as engine:
            await engine.request(get("http://agent.example/a%2Fb/?q=%20"))

        line = "GET http://agent.example/a%2Fb/?q=%20 HTTP/1.1"
        assert request_line(proxy.requests[0]) == line
        assert header(proxy.requests[0], "host") == "agent.example"


@on_a_loop
async def test_the_proxy_receives_its_credentials(monkeypatch):
    async with serve() as proxy:
        monkeypatch.setenv("http_proxy", f"http://user:sesame@127.0.0.1:{proxy.port}")
        async with open_engine() as engine:
            await engine.request(get("http://agent.example/"))

        assert header(proxy.requests[0], "proxy-authorization") == "Basic dXNlcjpzZXNhbWU="


@pytest.mark.parametrize("bypass", ["127.0.0.1", "*"])
@on_a_loop
async def test_no_proxy_bypasses_the_proxy(monkeypatch, bypass):
    async with serve() as proxy, serve() as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", bypass)
        async with open_engine() as engine:
            await engine.request(get(server.url))

        assert (len(proxy.requests), len(server.requests)) == (0, 1)


@on_a_loop
async def test_proxies_can_be_disabled(monkeypatch):
    async with serve() as proxy, serve() as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        async with open_engine(proxies=False) as engine:
            await engine.request(get(server.url))

        assert (len(proxy.requests), len(server.requests)) == (0, 1)


@pytest.mark.parametrize(
    ("status", "transient"),
    [("407 Who are you", False), ("403 No", False), ("502 Bad Gateway", True)],
)
@on_a_loop
async def test_a_proxy_that_does_not_connect_is_named_without_its_password(
    monkeypatch, status, transient
):
    async with serve(always(reply(status=status))) as proxy:
        monkeypatch.setenv("https_proxy", f"http://user:sesame@127.0.0.1:{proxy.port}")
        async with open_engine() as engine:
            error = await failing(
                engine.request(post("https://agent.example/")), A2AConnectionError
            )

    assert (error.failure, error.executed, error.transient) == ("proxy", False, transient)
    assert status[:3] in str(error)
    assert "sesame" not in "".join(traceback.format_exception(error)) + repr(error)


@pytest.mark.parametrize("scheme", ["http", "https"])
@on_a_loop
async def test_an_unreachable_proxy_is_named_without_its_password(monkeypatch, scheme):
    with peer_closed_loop_blocked() as port:
        monkeypatch.setenv(f"{scheme}_proxy", f"http://user:sesame@127.0.0.1:{port}")
        async with open_engine() as engine:
            call = engine.request(post(f"{scheme}://agent.example/"))
            error = await failing(call, A2AConnectionError)

    assert (error.failure, error.executed, error.transient) == ("proxy", False, True)
    assert "sesame" not in "".join(traceback.format_exception(error)) + repr(error)


@contextlib.contextmanager
def peer_closed_loop_blocked():
    """Yield a reserved port on which no server listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


# ── One call is one request ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ending", ["close", "reset"])
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "POST"])
@on_a_loop
async def test_a_request_lost_on_a_reused_connection_is_not_sent_again(method, ending):
    async def script(connection):
        await connection.request()
        await connection.send(reply())
        await connection.request()
        getattr(connection, ending)()

    async with serve(script) as server, open_engine() as engine:
        request = HttpRequest(method=method, url=server.url, timeouts=limits())
        await engine.request(request)
        error = await failing(engine.request(request), A2AConnectionError)

        assert (error.failure, error.executed, error.transient) == ("disconnected", None, True)
        assert (len(server.connections), len(server.requests)) == (1, 2)


@pytest.mark.parametrize("make", [get, post])
@on_a_loop
async def test_a_connection_that_the_server_closed_while_idle_is_not_used(make):
    async def script(connection):
        await connection.request()
        await connection.send(reply())
        connection.finish()
        await connection.until_gone()

    async with serve(script) as server, open_engine() as engine:
        await engine.request(make(server.url))
        await server.connections[0].gone.wait()
        await engine.request(make(server.url))

        assert [len(connection.requests) for connection in server.connections] == [1, 1]


@pytest.mark.parametrize("make", [get, post])
@on_a_loop
async def test_nothing_is_sent_on_a_connection_that_was_closed_while_the_loop_was_blocked(
    make, monkeypatch
):
    async def script(connection):
        await connection.request()
        await connection.send(reply())
        await answered.wait()
        connection.finish()
        is_closed.set()
        await connection.until_gone()

    monkeypatch.setattr(
        "holdfast._net.pools._POLL_OVERDUE_S", 0
    )  # after which the loop counts as blocked
    answered, is_closed = asyncio.Event(), threading.Event()
    progress = Progress()
    with serve_in_thread(script) as server:
        async with open_engine() as engine:
            await engine.request(make(server.url))
            server.call(answered.set)
            assert is_closed.wait(10)  # as tools do that are not async
            request = make(server.url, progress=progress)
            error = await failing(engine.request(request), A2AConnectionError)

            assert (error.failure, error.executed, error.transient) == (
                "disconnected",
                False,
                True,
            )
            assert not progress.sent
            assert (len(server.connections), len(server.requests)) == (1, 1)


@pytest.mark.rule("D06")
@pytest.mark.parametrize("ticks", range(6))
@pytest.mark.parametrize("make", [get, post])
@on_a_loop
async def test_a_close_during_the_request_reports_whether_bytes_left(make, ticks):
    """Whether bytes left depends on the iteration of the event loop; the facts must agree."""
    progress = Progress()
    async with serve() as server, open_engine() as engine:
        await engine.request(make(server.url))
        server.connections[0].finish()
        for _ in range(ticks):
            await asyncio.sleep(0)
        call = engine.request(make(server.url, progress=progress))
        [outcome] = await asyncio.gather(call, return_exceptions=True)

        if isinstance(outcome, A2AConnectionError):
            await server.until(lambda: not server.open)
            has_left = len(server.requests) == 2
            assert (outcome.failure, outcome.transient) == ("disconnected", True)
            assert outcome.executed is (None if has_left else False)
            assert progress.sent is has_left
            assert len(server.connections) == 1
        else:  # the close had been seen
            assert outcome.status == 200
            assert [len(connection.requests) for connection in server.connections] == [1, 1]


@pytest.mark.parametrize("make", [get, post])
@on_a_loop
async def test_data_received_on_an_idle_connection_is_not_a_reply(make):
    async def script(connection):
        await connection.request()
        await connection.send(reply(b"mine"))
        await idle.wait()
        await connection.send(reply(b"not asked for"))
        has_written.set()
        await connection.request()
        await connection.until_gone()

    idle, has_written = asyncio.Event(), asyncio.Event()
    progress = Progress()
    async with serve(script) as server, open_engine() as engine:
        await engine.request(make(server.url))
        idle.set()
        await has_written.wait()
        for _ in range(5):  # the client takes notice
            await asyncio.sleep(0)
        request = make(server.url, progress=progress)
        error = await failing(engine.request(request), A2AConnectionError)
        await server.until(lambda: not server.open)

        assert (error.failure, error.executed, error.transient) == ("disconnected", False, True)
        assert not progress.sent
        assert len(server.requests) == 1


# ── Timeouts ─────────────────────────────────────────────────────────────────────────────────


def assert_timeout(error, phase, *, executed):
    assert (error.phase, error.timeout) == (phase, BRIEF)
    assert (error.executed, error.transient) == (executed, True)
    assert f"{BRIEF:g} s" in str(error)


@pytest.mark.rule("P32")
@on_a_loop
async def test_pool_timeout():
    async def script(connection):
        await connection.request()
        await connection.stall()

    progress = Progress()
    async with serve(script) as server, open_engine(max_connections=1) as engine:
        first = asyncio.create_task(engine.request(post(server.url)))
        await server.until(lambda: server.requests)
        request = post(server.url, timeouts=limits(pool=BRIEF), progress=progress)
        error = await failing(engine.request(request), A2ATimeoutError)

        assert_timeout(error, "pool", executed=False)
        assert not progress.sent
        assert len(server.connections) == 1
        first.cancel()
        await asyncio.wait([first])


@pytest.mark.rule("P32")
@pytest.mark.parametrize("make", [get, post])
@on_a_loop
async def test_connect_timeout_in_the_handshake(make):
    async def script(connection):
        await connection.stall()

    progress = Progress()
    async with serve(script) as server, open_engine() as engine:
        url = server.url.replace("http:", "https:")
        request = make(url, timeouts=limits(connect=BRIEF), progress=progress)
        error = await failing(engine.request(request), A2ATimeoutError)

        assert_timeout(error, "connect", executed=False)
        assert not progress.sent


@on_a_loop
async def test_connect_timeout_at_a_full_backlog():
    with socket.socket() as listening, contextlib.ExitStack() as fillers:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):  # nobody accepts them
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listening.getsockname())
        async with open_engine() as engine:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
            call = engine.request(post(url, timeouts=limits(connect=BRIEF)))
            error = await failing(call, A2ATimeoutError)

    assert_timeout(error, "connect", executed=False)


@pytest.mark.rule("P32")
@on_a_loop
async def test_write_timeout():
    async def script(connection):
        connection.stop_reading()
        await connection.stall()

    progress = Progress()
    async with serve(script, receive_buffer=4096) as server, open_engine() as engine:
        request = post(server.url, bytes(2**25), timeouts=limits(write=BRIEF), progress=progress)
        error = await failing(engine.request(request), A2ATimeoutError)

        assert_timeout(error, "write", executed=None)
        assert progress.sent


@pytest.mark.rule("P32")
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("make", [get, post])
@on_a_loop
async def test_first_byte_timeout(make, streaming):
    async def script(connection):
        await connection.request()
        await connection.stall()

    async with serve(script) as server, open_engine() as engine:
        request = make(server.url, timeouts=limits(first_byte=BRIEF))
        call = reading(engine, request) if streaming else engine.request(request)
        error = await failing(call, A2ATimeoutError)

        assert_timeout(error, "first_byte", executed=None)
        assert len(server.requests) == 1


@pytest.mark.rule("P32")
@pytest.mark.parametrize("part", ["", "half"])
@pytest.mark.parametrize("streaming", [False, True])
@on_a_loop
async def test_idle_timeout(streaming, part):
    async def script(connection):
        await connection.request()
        await connection.send(head("Content-Length: 100") + part.encode())
        await connection.stall()

    async with serve(script) as server, open_engine() as engine:
        request = post(server.url, timeouts=limits(idle=BRIEF))
        call = reading(engine, request) if streaming else engine.request(request)
        error = await failing(call, A2ATimeoutError)

        assert_timeout(error, "idle", executed=None)


@on_a_loop
async def test_every_chunk_restarts_the_idle_timeout(monkeypatch):
    clock = Clock(monkeypatch)

    async def script(connection):
        await connection.request()
        await connection.send(head(CHUNKED))
        for _ in range(5):
            await connection.send(chunk(b": still here\n\n"))
            await consumed.acquire()
            clock.ahead += 7.0
        await connection.send(LAST_CHUNK)

    consumed = asyncio.Semaphore(0)
    async with serve(script) as server, open_engine() as engine:
        request = post(server.url, timeouts=limits(idle=10.0))

        assert len(await reading(engine, request, then=consumed.release)) == 5


@on_a_loop
async def test_timeouts_apply_to_their_own_phase_only(monkeypatch):
    """A long time before the first byte does not count for the connect and idle timeouts."""
    clock = Clock(monkeypatch)

    async def script(connection):
        await connection.request()
        clock.ahead += 30.0
        await connection.send(reply())

    async with serve(script) as server, open_engine() as engine:
        timeouts = limits(pool=10.0, connect=10.0, write=10.0, idle=10.0)
        answer = await engine.request(post(server.url, timeouts=timeouts))

        assert answer.status == 200


@on_a_loop
async def test_an_early_reply_ends_the_writing():
    async def script(connection):
        connection.stop_reading()
        await connection.send(reply(b"too large", status="413 Content Too Large"))
        await connection.stall()

    async with serve(script, receive_buffer=4096) as server, open_engine() as engine:
        answer = await engine.request(post(server.url, bytes(2**25)))

        assert (answer.status, answer.body) == (413, b"too large")


# ── Failures ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("D06")
@pytest.mark.parametrize("make", [get, post])
@on_a_loop
async def test_refused(make):
    progress = Progress()
    with peer_closed_loop_blocked() as port:
        async with open_engine() as engine:
            request = make(f"http://127.0.0.1:{port}/", progress=progress)
            error = await failing(engine.request(request), A2AConnectionError)

    assert (error.failure, error.executed, error.transient) == ("refused", False, True)
    assert error.message == "the connection was refused"
    cause = error.__cause__  # the frames and exceptions of aiohttp are left out
    assert isinstance(cause, ConnectionRefusedError)
    assert (cause.__traceback__, cause.__cause__, cause.__context__) == (None, None, None)
    assert not progress.sent


@pytest.mark.parametrize("variable", ["http_proxy", "ALL_PROXY"])
@on_a_loop
async def test_the_error_of_a_refusing_proxy_names_it_and_its_variable(variable, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with peer_closed_loop_blocked() as port:
        monkeypatch.setenv(variable, f"http://ann:s3cret@127.0.0.1:{port}")
        async with open_engine() as engine:
            request = get("http://agent.example/")
            error = await failing(engine.request(request), A2AConnectionError)

    proxy = f"http://127.0.0.1:{port} from {variable}"
    assert error.message == f"the proxy did not connect ({proxy}: Connection refused)"


@pytest.mark.parametrize("name", [LONG_NAME, "a" * 64 + ".invalid", "no..name.invalid"])
@on_a_loop
async def test_an_invalid_name_is_a_dns_failure(name):
    async with open_engine() as engine:
        error = await failing(engine.request(post(f"http://{name}/")), A2AConnectionError)

    assert (error.failure, error.executed) == ("dns", False)


@on_a_loop
async def test_a_dns_failure_is_transient_as_the_resolver_says():
    async with open_engine() as engine:
        error = await failing(engine.request(post(f"http://{LONG_NAME}/")), A2AConnectionError)

    assert error.transient is (error.__cause__.errno != socket.EAI_NONAME)


@pytest.mark.parametrize("url", ["ftp://agent.example/", "http:///rpc", "http://256.1.1.1/"])
@on_a_loop
async def test_an_invalid_address_is_not_transient(url):
    async with open_engine() as engine:
        error = await failing(engine.request(post(url)), A2AConnectionError)

    assert (error.failure, error.executed, error.transient) == ("unreachable", False, False)


@pytest.mark.rule("D06")
@pytest.mark.parametrize("ending", ["close", "reset"])
@pytest.mark.parametrize("make", [get, post])
@on_a_loop
async def test_disconnected_before_the_reply(make, ending):
    async def script(connection):
        await connection.request()
        getattr(connection, ending)()

    async with serve(script) as server, open_engine() as engine:
        error = await failing(engine.request(make(server.url)), A2AConnectionError)

        assert (error.failure, error.executed, error.transient) == ("disconnected", None, True)
        assert len(server.requests) == 1


@pytest.mark.parametrize("ending", ["close", "reset"])
@on_a_loop
async def test_disconnected_while_the_request_is_written(ending):
    async def script(connection):
        getattr(connection, ending)()

    async with serve(script, receive_buffer=4096) as server, open_engine() as engine:
        error = await failing(engine.request(post(server.url, bytes(2**22))), A2AConnectionError)

        assert (error.failure, error.transient) == ("disconnected", True)


@pytest.mark.parametrize("ending", ["close", "reset"])
@pytest.mark.parametrize(
    "part",
    [
        head("Content-Length: 100") + b"half",
        head(CHUNKED) + chunk(b"half"),
        head(CHUNKED) + b"64\r\nhalf",
    ],
    ids=["by length", "between chunks", "in a chunk"],
)
@on_a_loop
async def test_truncated(part, ending):
    async def script(connection):
        await connection.request()
        await connection.send(part)
        await has_begun.wait()
        getattr(connection, ending)()

    has_begun = asyncio.Event()
    async with serve(script) as server, open_engine() as engine:
        received = []
        call = reading(engine, post(server.url), received, then=has_begun.set)
        error = await failing(call, A2AConnectionError)

        assert received == [b"half"]
        assert (error.failure, error.executed, error.transient) == ("truncated", None, True)


@on_a_loop
async def test_a_truncated_reply_of_a_call_is_truncated():
    async def script(connection):
        await connection.request()
        await connection.send(head("Content-Length: 100") + b"half")

    async with serve(script) as server, open_engine() as engine:
        error = await failing(engine.request(post(server.url)), A2AConnectionError)

        assert (error.failure, error.executed, error.transient) == ("truncated", None, True)


@on_a_loop
async def test_data_received_before_a_cut_is_delivered_to_a_slow_reader():
    async def script(connection):
        await connection.request()
        await connection.send(head(CHUNKED) + chunk(b"one"))
        await reader_is_busy.wait()
        await connection.send(chunk(b"two"), chunk(b"three"))
        connection.finish()
        await connection.until_gone()

    async def read_slowly():
        async with engine.stream(post(server.url)) as stream:
            async for piece in stream.chunks():
                received.append(piece)
                reader_is_busy.set()
                await server.connections[0].gone.wait()

    reader_is_busy = asyncio.Event()
    async with serve(script) as server, open_engine() as engine:
        received = []
        error = await failing(read_slowly(), A2AConnectionError)

        assert b"".join(received) == b"onetwothree"
        assert error.failure == "truncated"


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"\x00\xff" * 100,
        b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n12345",
        head(CHUNKED) + b"zz\r\nnot a length\r\n",
        reply(b"this is no gzip", "Content-Encoding: gzip"),
        reply(b"this is unknown", "Content-Encoding: br"),
    ],
    ids=["ssh", "bytes", "length", "lengths", "chunk", "gzip", "encoding"],
)
@on_a_loop
async def test_garbage_is_an_invalid_response(answer):
    async with serve(always(answer)) as server, open_engine() as engine:
        error = await failing(engine.request(post(server.url)), InvalidAgentResponseError)

        assert (error.executed, error.transient) == (None, False)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "description"),
    [
        (b"SSH-2.0-OpenSSH_9.9\r\n", "it begins b'SSH-2.0-OpenSSH_9.9"),
        (b"\x15\x03\x01\x00\x02\x02\x16", "it begins with 7 bytes that are not text"),
        (
            b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00",
            "HTTP/2, as a gRPC server",
        ),
    ],
)
@on_a_loop
async def test_a_reply_that_is_not_http_is_described(answer, description):
    async with serve(always(answer)) as server, open_engine() as engine:
        error = await failing(engine.request(post(server.url)), InvalidAgentResponseError)

    assert error.message.startswith("the reply is not HTTP/1.1")
    assert description in error.message
    assert "status line" not in str(error)


@on_a_loop
async def test_any_bytes_raise_only_a2a_errors():
    dice = random.Random(20)
    response = (
        reply(b'{"ok": true}', "Content-Type: application/json")
        + reply(gzip.compress(b"{}" * 100), "Content-Encoding: gzip")
        + head(CHUNKED)
        + chunk(b"some")
        + chunk(b"thing")
        + LAST_CHUNK
    )

    def mutated():
        data = bytearray(response)
        start = response.index(b"HTTP", dice.choice([0, 1, response.rindex(b"HTTP")]))
        for _ in range(dice.randrange(1, 6)):
            data[dice.randrange(start, len(data))] = dice.randrange(256)
        return bytes(data[start : dice.randrange(start, len(data) + 1)])

    async def script(connection):
        await connection.request()
        await connection.send(mutated())

    async with serve(script) as server, open_engine() as engine:
        for turn in range(300):
            call = engine.request(post(server.url))
            with contextlib.suppress(A2AError):
                await (call if turn % 2 else reading(engine, get(server.url)))
            if not turn % 2:
                call.close()


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["file", "path", "context", "off"])
@on_a_loop
async def test_tls_settings_are_applied(kind, authority, certified, trusting, tmp_path):
    file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    option = {"file": str(file), "path": file, "context": trusting, "off": False}[kind]
    async with serve(ssl=certified) as server, open_engine(ssl=option) as engine:
        answer = await engine.request(post(server.url))

        assert answer.status == 200


@pytest.mark.rule("P33")
@on_a_loop
async def test_an_untrusted_certificate_is_a_permanent_tls_failure(certified):
    async with serve(ssl=certified) as server, open_engine() as engine:
        error = await failing(engine.request(post(server.url)), A2AConnectionError)

        assert (error.failure, error.executed, error.transient) == ("tls", False, False)
        assert server.requests == []


@pytest.mark.rule("P33")
@on_a_loop
async def test_a_certificate_for_another_host_is_a_permanent_tls_failure(authority, trusting):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("other.example").configure_cert(context)
    async with serve(ssl=context) as server, open_engine(ssl=trusting) as engine:
        error = await failing(engine.request(post(server.url)), A2AConnectionError)

        assert (error.failure, error.executed, error.transient) == ("tls", False, False)
        assert server.requests == []


@pytest.mark.parametrize("ending", ["answer", "close", "reset"])
@on_a_loop
async def test_a_server_without_tls_is_a_tls_failure(ending):
    async def script(connection):
        if ending == "answer":
            await connection.send(reply(status="400 Plain HTTP"))
            await connection.until_gone()
        else:
            getattr(connection, ending)()

    progress = Progress()
    async with serve(script) as server, open_engine() as engine:
        url = server.url.replace("http:", "https:")
        error = await failing(engine.request(post(url, progress=progress)), A2AConnectionError)

        assert (error.failure, error.executed) == ("tls", False)
        assert (error.transient, "use http:// in its address" in error.message) == (
            ending != "answer",
            True,
        )
        assert not progress.sent


@on_a_loop
async def test_a_server_that_does_not_answer_the_handshake_may_speak_plain_http():
    async def silent(connection):
        await connection.until_gone()

    async with serve(silent) as server, open_engine() as engine:
        url = server.url.replace("http:", "https:")
        request = post(url, timeouts=Timeouts(connect=0.05))
        error = await failing(engine.request(request), A2ATimeoutError)

    assert (error.phase, "use http:// in its address" in error.message) == ("connect", True)


def test_an_invalid_certificate_file_is_refused_at_once(tmp_path):
    (tmp_path / "no.pem").write_text("no certificate")

    with pytest.raises(ValueError, match=r"no\.pem contains no certificate"):
        AiohttpEngine(ssl=tmp_path / "no.pem")
    with pytest.raises(FileNotFoundError):
        AiohttpEngine(ssl=tmp_path / "missing.pem")


@on_a_loop
async def test_an_ipv6_literal():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no ::1")
    async with serve(host="::1") as server, open_engine() as engine:
        answer = await engine.request(post(server.url))

        assert answer.status == 200
        assert header(server.requests[0], "host") == f"[::1]:{server.port}"


# ── Limits ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("framed", ["length", "chunks"])
@on_a_loop
async def test_a_reply_over_the_limit_is_refused(framed):
    pieces = {
        "length": [reply(bytes(1001))],
        "chunks": [head(CHUNKED) + chunk(bytes(1000)), chunk(b"1") + LAST_CHUNK],
    }
    async with serve(always(*pieces[framed])) as server, open_engine() as engine:
        call = engine.request(post(server.url, limits=Limits(body=1000)))
        error = await failing(call, LimitExceededError)

        assert (error.which, error.bound) == ("body", 1000)
        assert (error.executed, error.transient) == (None, False)
        await engine.request(post(server.url, limits=Limits(body=1001)))


@on_a_loop
async def test_a_reply_over_the_limit_closes_its_connection():
    async def script(connection):
        await connection.request()
        await connection.send(head("Content-Length: 1000000") + bytes(2000))
        await connection.until_gone()

    async with serve(script) as server, open_engine() as engine:
        await failing(
            engine.request(post(server.url, limits=Limits(body=1000))), LimitExceededError
        )

        await server.connections[0].gone.wait()


@pytest.mark.rule("P24")
@on_a_loop
async def test_a_compression_bomb_is_stopped_by_its_inflated_size():
    bomb = gzip.compress(bytes(2**27))
    assert len(bomb) * 1000 < 2**27 * 1.05
    async with (
        serve(always(reply(bomb, "Content-Encoding: gzip"))) as server,
        open_engine() as engine,
    ):
        tracemalloc.start()
        try:
            call = engine.request(post(server.url, limits=Limits(body=2**20)))
            error = await failing(call, LimitExceededError)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

        assert error.bound == 2**20
        assert peak < 2**24


@on_a_loop
async def test_a_flood_is_held_back():
    async def script(connection):
        await connection.request()
        await connection.send(head(CHUNKED), *([chunk(bytes(2**20))] * 128))

    async with serve(script) as server, open_engine() as engine:
        tracemalloc.start()
        try:
            await failing(
                engine.request(post(server.url, limits=Limits(body=2**20))), LimitExceededError
            )
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

        assert peak < 2**24


# ── Slots and connections ────────────────────────────────────────────────────────────────────


@on_a_loop
async def test_calls_share_connections():
    async with serve() as server, open_engine() as engine:
        for _ in range(3):
            await engine.request(post(server.url))

        assert len(server.connections) == 1


@on_a_loop
async def test_an_idle_connection_serves_a_message_for_one_second(monkeypatch):
    clock = Clock(monkeypatch)
    async with serve() as server, open_engine() as engine:
        await engine.request(post(server.url, max_idle=1.0))
        clock.ahead += 0.9
        await engine.request(post(server.url, max_idle=1.0))
        assert len(server.connections) == 1

        clock.ahead += 1.1
        await engine.request(post(server.url, max_idle=1.0))
        assert len(server.connections) == 2


@on_a_loop
async def test_an_idle_connection_serves_a_read_within_its_own_limit(monkeypatch):
    clock = Clock(monkeypatch)
    async with serve() as server, open_engine() as engine:
        await engine.request(get(server.url, max_idle=4.0))
        clock.ahead += 3.9
        await engine.request(get(server.url, max_idle=4.0))
        assert len(server.connections) == 1

        clock.ahead += 4.1
        await engine.request(get(server.url, max_idle=4.0))
        assert len(server.connections) == 2


@pytest.mark.parametrize("allowed", [0.5, 1.0, 2.0])
@on_a_loop
async def test_a_connection_that_a_read_left_idle_is_too_old_for_a_message(monkeypatch, allowed):
    clock = Clock(monkeypatch)
    async with serve() as server, open_engine() as engine:
        await engine.request(get(server.url, max_idle=4.0))
        clock.ahead += allowed + 0.1
        await engine.request(post(server.url, max_idle=allowed))
        assert len(server.connections) == 2

        clock.ahead += allowed + 0.1
        await engine.request(post(server.url, max_idle=allowed))
        assert len(server.connections) == 3


def gathering(size):
    """Return a script that answers once `size` requests are in flight."""
    waiting = set()
    full = asyncio.Event()

    async def script(connection):
        while await connection.request() is not None:
            waiting.add(connection)
            if len(waiting) == size:
                full.set()
            await full.wait()
            await connection.send(reply())

    return script


@on_a_loop
async def test_max_connections_bounds_concurrent_calls():
    most = 0

    async def script(connection):
        nonlocal most
        while await connection.request() is not None:
            most = max(most, sum(map(busy, server.connections)))
            await connection.send(reply())
            connection.answered = len(connection.requests)

    def busy(connection):
        return len(connection.requests) > getattr(connection, "answered", 0)

    async with serve(script) as server, open_engine(max_connections=3) as engine:
        await asyncio.gather(*(engine.request(post(server.url)) for _ in range(30)))

        assert len(server.requests) == 30
        assert most == 3
        assert len(server.connections) == 3


@on_a_loop
async def test_progress_names_the_slot_that_a_request_awaits():
    async def script(connection):
        while (await connection.request()) is not None:
            if len(server.requests) > 1:
                await connection.send(reply())

    progress = Progress()
    async with serve(script) as server, open_engine(max_connections=1) as engine:
        first = asyncio.create_task(engine.request(post(server.url)))
        await server.until(lambda: server.requests)
        second = asyncio.create_task(engine.request(post(server.url, progress=progress)))
        while progress.awaits is None:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0)
        assert progress.awaits == "slot for calls (max_connections=1)"

        first.cancel()
        assert (await second).status == 200
        assert progress.awaits is None


@on_a_loop
async def test_the_maximum_number_of_calls_runs_concurrently():
    async with serve(gathering(5)) as server, open_engine(max_connections=5) as engine:
        await asyncio.gather(*(engine.request(post(server.url)) for _ in range(5)))

        assert len(server.connections) == 5


@on_a_loop
async def test_open_streams_do_not_starve_calls():
    async def script(connection):
        request = await connection.request()
        if b"stream" in request_line(request).encode():
            await connection.send(head(CHUNKED))
            await connection.until_gone()
        await connection.send(reply())

    async with (
        serve(script) as server,
        open_engine(max_connections=1, max_streams=2) as engine,
        contextlib.AsyncExitStack() as open_streams,
    ):
        for _ in range(2):
            await open_streams.enter_async_context(engine.stream(post(f"{server.url}stream")))
        answer = await engine.request(post(server.url))
        third = reading(engine, post(f"{server.url}stream", timeouts=limits(pool=BRIEF)))
        error = await failing(third, A2ATimeoutError)

        assert answer.status == 200
        assert_timeout(error, "pool", executed=False)
        assert len(server.requests) == 3


@pytest.mark.parametrize("option", ["max_connections", "max_streams"])
def test_at_least_one_slot_is_required(option):
    with pytest.raises(ValueError, match=f"{option} must be at least 1"):
        AiohttpEngine(**{option: 0})


# ── Streams ──────────────────────────────────────────────────────────────────────────────────


@on_a_loop
async def test_chunks_arrive_as_they_are_sent():
    async def script(connection):
        await connection.request()
        await connection.send(head(CHUNKED))
        for piece in (b"one", b"two", b"three"):
            await connection.send(chunk(piece))
            await consumed.acquire()
        await connection.send(LAST_CHUNK)

    consumed = asyncio.Semaphore(0)
    async with serve(script) as server, open_engine() as engine:
        received = []
        async with engine.stream(post(server.url)) as stream:
            assert stream.status == 200
            assert stream.headers["transfer-encoding"] == "chunked"
            async for piece in stream.chunks():
                received.append(piece)
                consumed.release()

        assert received == [b"one", b"two", b"three"]


@on_a_loop
async def test_a_reply_to_a_stream_request_that_is_not_a_stream_is_read_whole():
    refusal = reply(b'{"error": {}}', status="401 No")
    async with (
        serve(always(refusal)) as server,
        open_engine() as engine,
        engine.stream(post(server.url)) as stream,
    ):
        assert (stream.status, await stream.read()) == (401, b'{"error": {}}')


@on_a_loop
async def test_a_stream_read_whole_is_limited():
    async with (
        serve(always(reply(bytes(1001)))) as server,
        open_engine() as engine,
        engine.stream(post(server.url, limits=Limits(body=1000))) as stream,
    ):
        await failing(stream.read(), LimitExceededError)


@on_a_loop
async def test_a_body_without_length_ends_with_the_connection():
    async def script(connection):
        await connection.request()
        await connection.send(head() + b"all of it")

    async with serve(script) as server, open_engine() as engine:
        assert await reading(engine, post(server.url)) == [b"all of it"]


def endless():
    """Return a script whose reply continues until the client disconnects."""

    async def script(connection):
        await connection.request()
        await connection.send(head(CHUNKED) + chunk(b"first"))
        await connection.until_gone()

    return script


@pytest.mark.parametrize("secure", [False, True])
@on_a_loop
async def test_leaving_a_stream_closes_the_socket_and_frees_the_slot(secure, certified, trusting):
    async with (
        serve(endless(), ssl=certified if secure else None) as server,
        open_engine(max_streams=1, ssl=trusting) as engine,
    ):
        for turn in range(3):
            async with engine.stream(post(server.url)) as stream:
                async for piece in stream.chunks():
                    assert piece == b"first"
                    break
            await server.connections[turn].gone.wait()

        assert len(server.connections) == 3


@on_a_loop
async def test_an_exception_inside_a_stream_closes_the_socket_and_frees_the_slot():
    async with serve(endless()) as server, open_engine(max_streams=1) as engine:
        with pytest.raises(LookupError):
            async with engine.stream(post(server.url)):
                raise LookupError

        await server.connections[0].gone.wait()
        async with engine.stream(post(server.url)):
            pass


@on_a_loop
async def test_a_stream_read_to_its_end_leaves_its_connection_reusable():
    async with serve(always(reply(b"all"))) as server, open_engine(max_streams=1) as engine:
        for _ in range(3):
            assert await reading(engine, post(server.url)) == [b"all"]

        assert len(server.connections) == 1


@on_a_loop
async def test_an_abandoned_stream_logs_nothing():
    asyncio.get_running_loop().set_debug(False)  # else aiohttp rightly complains
    async with serve(endless()) as server, open_engine(max_streams=1) as engine:
        stream = await engine.stream(post(server.url)).__aenter__()
        pieces = stream.chunks()
        assert await anext(pieces) == b"first"
        del stream, pieces
        gc.collect()
        await engine.close()

        await server.connections[0].gone.wait()


@pytest.mark.parametrize("streaming", [False, True])
@on_a_loop
async def test_cancelled_while_waiting_for_the_reply(streaming):
    async def script(connection):
        await connection.request()
        await connection.until_gone()

    async with serve(script) as server, open_engine(max_connections=1, max_streams=1) as engine:
        for turn in range(3):
            request = post(server.url)
            call = reading(engine, request) if streaming else engine.request(request)
            task = asyncio.create_task(call)
            await server.until(lambda turn=turn: len(server.requests) > turn)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.connections[turn].gone.wait()


@on_a_loop
async def test_cancelled_while_waiting_for_a_chunk():
    async with serve(endless()) as server, open_engine(max_streams=1) as engine:
        for turn in range(3):
            has_begun = asyncio.Event()
            task = asyncio.create_task(reading(engine, post(server.url), then=has_begun.set))
            await has_begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.connections[turn].gone.wait()


@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_a_cancelled_request_does_not_wait_for_a_server_that_does_not_read(how):
    """A closed socket exists until its peer has read the written data."""

    async def script(connection):
        await connection.first_bytes()
        connection.stop_reading()
        has_begun.set()
        await connection.stall()

    @on_a_loop
    async def main(url):
        async with open_engine() as engine:
            request = post(url, bytes(2**25), timeouts=limits(write=BRIEF))
            if how == "timeout":
                await failing(engine.request(request), A2ATimeoutError)
            else:
                task = asyncio.create_task(engine.request(post(url, bytes(2**25))))
                await asyncio.to_thread(has_begun.wait, LONG_TIMEOUT_S)
                task.cancel()
                await asyncio.wait([task])

    has_begun = threading.Event()

    with serve_in_thread(script, receive_buffer=4096) as server:
        main(server.url)  # which looks for sockets that are left


# ── Cancelled at random ──────────────────────────────────────────────────────────────────────

ROUNDS, AT_ONCE, SLOTS = 120, 25, 7


async def cancelled_at_random(call, dice):
    """Start calls, and cancel each after a random number of iterations of the event loop."""
    for _ in range(ROUNDS):
        tasks = [asyncio.create_task(call()) for _ in range(AT_ONCE)]
        victims = dict.fromkeys(range(30), ())
        for task in tasks:
            turn = dice.randrange(30)
            victims[turn] = (*victims[turn], task)
        for task_due in victims.values():
            for task in task_due:
                task.cancel()
            await asyncio.sleep(0)
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome


@pytest.mark.rule("S28", "D05")
@on_a_loop
async def test_s28_calls_cancelled_at_random_leave_every_slot_free():
    dice = random.Random(28)

    async def script(connection):
        if measured.is_set():
            return await gather_all(connection)
        while await connection.request() is not None:
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
            await connection.send(*random_reply(dice))
        return None

    async def call():
        make = dice.choice([get, post])
        await engine.request(make(server.url))

    measured = asyncio.Event()
    gather_all = gathering(SLOTS)
    async with serve(script) as server, open_engine(max_connections=SLOTS) as engine:
        await cancelled_at_random(call, dice)
        answered = len(server.requests)
        await engine.close()
        await server.until(lambda: not server.open)
        measured.set()
        last = await asyncio.gather(*(engine.request(get(server.url)) for _ in range(SLOTS)))

        assert [answer.status for answer in last] == [200] * SLOTS
        assert len(server.open) == SLOTS
        assert answered > ROUNDS
        await engine.close()
        await server.until(lambda: not server.open)


@pytest.mark.rule("S28", "D05")
@on_a_loop
async def test_s28_streams_cancelled_at_random_leave_every_slot_free():
    dice = random.Random(28)

    async def script(connection):
        if measured.is_set():
            return await gather_all(connection)
        await connection.request()
        await connection.send(head(CHUNKED))
        for _ in range(dice.randrange(10)):
            await connection.send(chunk(b": ping\n\n"))
        await connection.until_gone()
        return None

    async def call():
        async with engine.stream(post(server.url)) as stream:
            opened.append(stream)
            pieces = 0
            async for _ in stream.chunks():
                pieces += 1
                if pieces == dice.randrange(1, 10):
                    return

    opened = []
    measured = asyncio.Event()
    gather_all = gathering(SLOTS)
    async with serve(script) as server, open_engine(max_streams=SLOTS) as engine:
        await cancelled_at_random(call, dice)
        await server.until(lambda: not server.open)
        measured.set()
        last = (reading(engine, get(server.url)) for _ in range(SLOTS))

        assert await asyncio.gather(*last) == [[b"{}"]] * SLOTS
        assert len(opened) > ROUNDS


def random_reply(dice):
    return dice.choice(
        [
            [reply()],
            [head("Content-Length: 4"), b"ab", b"cd"],
            [head(CHUNKED), chunk(b"ab"), chunk(b"cd"), LAST_CHUNK],
        ]
    )


# ── Event loops and closing ──────────────────────────────────────────────────────────────────


@pytest.mark.rule("S25")
def test_s25_one_engine_in_two_runs():
    engine = AiohttpEngine()

    @on_a_loop
    async def main(url):
        answer = await engine.request(post(url))
        assert answer.status == 200
        assert await reading(engine, post(url)) == [b"{}"]

    with serve_in_thread() as server:
        # The first run forgets to close, as a notebook does.
        asyncio.run(main.__wrapped__(server.url))
        gc.collect()
        asyncio.run(main.__wrapped__(server.url))
        gc.collect()
        assert len(server.connections) == 4


def test_the_connections_of_a_loop_end_with_it():
    engine = AiohttpEngine()

    async def main(url):
        await engine.request(post(url))

    with serve_in_thread() as server:
        for turn in range(3):
            asyncio.run(main(server.url))
            server.wait(lambda: not server.open)
            assert len(server.connections) == turn + 1
        assert len(engine._pools) == 1


@on_a_loop
async def test_one_engine_in_two_threads():
    async def work():
        for _ in range(50):
            answer = await engine.request(post(server.url))
            assert answer.status == 200
        await engine.close()

    async with serve() as server, open_engine() as engine:
        await asyncio.gather(
            asyncio.to_thread(asyncio.run, work()),
            asyncio.to_thread(asyncio.run, work()),
            work(),
        )

        assert len(server.requests) == 150
        assert len(server.connections) == 3
        await asyncio.get_running_loop().shutdown_default_executor()


@on_a_loop
async def test_a_closed_engine_can_be_used_again():
    async with serve() as server, open_engine() as engine:
        for _ in range(2):
            await engine.request(post(server.url))
            await reading(engine, post(server.url))
            await engine.close()
            await engine.close()
            await server.until(lambda: not server.open)

        assert len(server.connections) == 4


@on_a_loop
async def test_closing_fails_calls_in_flight_and_frees_their_slots():
    async def script(connection):
        await connection.request()
        if len(server.requests) == 1:
            await connection.until_gone()
        await connection.send(reply())

    async with serve(script) as server, open_engine(max_connections=1) as engine:
        first = asyncio.create_task(engine.request(post(server.url)))
        await server.until(lambda: server.requests)
        waiting = asyncio.create_task(engine.request(post(server.url)))
        await engine.close()
        error = await failing(first, A2AConnectionError)

        assert (error.failure, error.executed) == ("disconnected", None)
        assert (await waiting).status == 200


@on_a_loop
async def test_an_engine_is_closed_when_its_context_is_left():
    async with serve() as server:
        async with AiohttpEngine() as engine:
            await engine.request(post(server.url))
            assert server.open
        await server.until(lambda: not server.open)


@on_a_loop
async def test_a_dropped_engine_closes_its_connections_with_a_warning():
    async with serve() as server:
        engines = [AiohttpEngine()]
        await engines[0].request(post(server.url))
        with pytest.warns(ResourceWarning, match="unclosed AiohttpEngine: .*async with"):
            engines.clear()

        await server.until(lambda: not server.open)


@pytest.mark.parametrize("kind", ["Client", "Coordinator"])
@on_a_loop
async def test_the_warning_about_a_dropped_client_names_it_and_the_line_that_made_it(kind):
    async with LoopbackServer(FakeAgent()) as server:
        if kind == "Client":
            owner = connect(server.url)
            await owner.ask("hello")
        else:
            owner = Coordinator({"a": server.url})
            await owner.delegate("a", "hello")
        name = f"Client of {server.url}" if kind == "Client" else "Coordinator"
        place = rf"made at {re.escape(__file__)}:\d+: use 'async with'"
        with warnings.catch_warnings(record=True, action="always") as caught:
            del owner
            gc.collect()
        (text,) = [str(warning.message) for warning in caught]
        assert re.match(f"unclosed {name}, {place}", text)


def test_an_engine_left_open_at_exit_causes_one_warning(caplog):
    card = b"""{
        "name": "Agent",
        "supportedInterfaces": [{"url": "http://agent.test", "protocolBinding": "JSONRPC"}]
    }"""

    async def main(url):
        async with connect(url, engine=AiohttpEngine()) as client:
            assert (await client.agent_card()).name == "Agent"

    def run(url):
        asyncio.run(main(url))
        gc.collect()

    with (
        serve_in_thread(always(reply(card))) as server,
        warnings.catch_warnings(record=True, action="always") as caught,
    ):
        run(server.url)

    (text,) = [str(warning.message) for warning in caught]
    assert re.match(r"unclosed AiohttpEngine: use 'async with'", text)
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@on_a_loop
async def test_an_unused_or_closed_engine_is_dropped_silently():
    async with serve() as server:
        engine = AiohttpEngine()
        await engine.request(post(server.url))
        await engine.close()
        del engine
        AiohttpEngine()
        gc.collect()


# ── Borrowed sessions ────────────────────────────────────────────────────────────────────────


@on_a_loop
async def test_a_borrowed_session_is_used_and_never_closed():
    async with (
        serve() as server,
        aiohttp.ClientSession(headers={"x-mine": "yes"}) as session,
    ):
        engine = AiohttpEngine(session=session)
        answer = await engine.request(post(server.url))
        assert await reading(engine, get(server.url)) == [b"{}"]
        await engine.close()

        assert answer.status == 200
        assert [header(request, "x-mine") for request in server.requests] == ["yes", "yes"]
        assert not session.closed


@pytest.mark.parametrize("make", [get, post])
@on_a_loop
async def test_a_borrowed_session_reports_whether_bytes_left(make):
    async def script(connection):
        await connection.request()

    progress, reused = Progress(), Progress()
    with peer_closed_loop_blocked() as port:
        async with serve(script) as server, aiohttp.ClientSession() as session:
            engine = AiohttpEngine(session=session)
            error = await failing(
                engine.request(make(server.url, progress=progress)), A2AConnectionError
            )
            refused = await failing(
                engine.request(make(f"http://127.0.0.1:{port}/", progress=reused)),
                A2AConnectionError,
            )

    assert (error.failure, error.executed, progress.sent) == ("disconnected", None, True)
    assert (refused.failure, refused.executed, reused.sent) == ("refused", False, False)


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
@on_a_loop
async def test_a_request_lost_on_a_reused_connection_of_a_borrowed_session_is_not_sent_again(
    method,
):
    async def script(connection):
        await connection.request()
        await connection.send(reply())
        await connection.request()

    async with serve(script) as server, aiohttp.ClientSession() as session:
        engine = AiohttpEngine(session=session)
        request = HttpRequest(method=method, url=server.url, timeouts=limits())
        await engine.request(request)
        error = await failing(engine.request(request), A2AConnectionError)

        assert (error.failure, error.executed) == ("disconnected", None)
        assert len(server.requests) == 2


@on_a_loop
async def test_a_borrowed_session_applies_the_limits():
    async def script(connection):
        await connection.request()
        await connection.stall()

    async with serve(script) as server, aiohttp.ClientSession() as session:
        engine = AiohttpEngine(session=session)
        call = engine.request(get(server.url, timeouts=limits(first_byte=BRIEF)))
        error = await failing(call, A2ATimeoutError)

        assert_timeout(error, "first_byte", executed=None)


@on_a_loop
async def test_a_full_pool_of_a_borrowed_session_counts_as_connecting():
    async def script(connection):
        await connection.request()
        await connection.until_gone()

    connector = aiohttp.TCPConnector(limit=1)
    async with serve(script) as server, aiohttp.ClientSession(connector=connector) as session:
        engine = AiohttpEngine(session=session)
        first = asyncio.create_task(engine.request(post(server.url)))
        await server.until(lambda: server.requests)
        call = engine.request(post(server.url, timeouts=limits(connect=BRIEF)))
        error = await failing(call, A2ATimeoutError)

        assert_timeout(error, "connect", executed=False)
        first.cancel()
        await asyncio.wait([first])


# ── Cancelled, but sent? ─────────────────────────────────────────────────────────────────────


@on_a_loop
async def test_a_request_reported_as_unsent_is_not_sent_later():
    ended = asyncio.Event()

    async def detached(request, handler):
        """A middleware that runs in a separate task."""
        working = asyncio.ensure_future(handler(request))
        if request.body.decode() == "second":
            working.add_done_callback(lambda _: ended.set())
        return await asyncio.shield(working)

    gate = asyncio.Event()

    async def slow(connection):
        while await connection.request() is not None:
            await gate.wait()
            await connection.send(reply(b"{}"))

    connector = aiohttp.TCPConnector(limit=1)
    async with (
        serve(slow) as server,
        aiohttp.ClientSession(connector=connector, middlewares=(detached,)) as session,
    ):
        engine = AiohttpEngine(session=session)
        first = asyncio.ensure_future(engine.request(post(server.url, b"first")))
        await server.until(lambda: server.requests)
        second = post(server.url, b"second", timeouts=limits(connect=BRIEF))
        error = await failing(engine.request(second), A2ATimeoutError)
        gate.set()
        await first
        await ended.wait()

    assert (error.phase, error.executed) == ("connect", False)
    assert [request.rpartition(b"\r\n")[2] for request in server.requests] == [b"first"]


async def late(clock):
    """Let a timeout expire in the iteration of the event loop before the one that notices it."""
    loop = asyncio.get_running_loop()
    never_done = loop.create_future()

    def busy():
        clock.ahead += LONG_TIMEOUT_S / 2
        never_done.set_result(None)

    loop.call_soon(busy)
    await never_done


@on_a_loop
async def test_the_write_timeout_is_named_though_the_socket_drains_in_the_same_iteration(
    monkeypatch,
):
    clock = Clock(monkeypatch)
    drain = aiohttp.http_writer.StreamWriter.drain

    async def drains_too_late(self):
        await drain(self)
        await late(clock)
        await asyncio.sleep(0)  # and here in that turn itself

    monkeypatch.setattr("aiohttp.http_writer.StreamWriter.drain", drains_too_late)

    async def silent(connection):
        await connection.until_gone()

    async with serve(silent) as server, open_engine() as engine:
        request = post(server.url, b"x" * 40_000, timeouts=limits(write=LONG_TIMEOUT_S / 4))
        error = await failing(engine.request(request), A2ATimeoutError)

    assert (error.phase, error.executed) == ("write", None)


@on_a_loop
async def test_a_connection_made_as_its_timeout_expires_is_used_or_closed(
    monkeypatch,
):
    clock = Clock(monkeypatch)
    create = aiohttp.TCPConnector._create_connection

    async def just_in_time(self, *args, **kwargs):
        connection = await create(self, *args, **kwargs)
        await late(clock)
        return connection

    monkeypatch.setattr(aiohttp.TCPConnector, "_create_connection", just_in_time)
    async with serve(always(reply(b"{}"))) as server, open_engine() as engine:
        request = post(server.url, timeouts=limits(connect=LONG_TIMEOUT_S / 4))
        [outcome] = await asyncio.gather(engine.request(request), return_exceptions=True)

    if isinstance(outcome, A2ATimeoutError):
        assert (outcome.phase, outcome.executed, server.requests) == ("connect", False, [])
    else:
        assert outcome.status == 200


def test_a_stream_can_be_created_before_its_loop_runs():
    stream = AiohttpEngine().stream(get("http://127.0.0.1:1/"))

    async def enter():
        async with stream:
            pass

    with pytest.raises(A2AConnectionError):
        asyncio.run(enter())


# ── Cancelled close, and unreadable pages ────────────────────────────────────────────────────────


def open_sessions():
    sessions = [thing for thing in gc.get_objects() if type(thing) is aiohttp.ClientSession]
    return [session for session in sessions if not session.closed]


@pytest.mark.real_time
async def test_an_engine_whose_close_was_cancelled_leaves_nothing_open_after_the_next():
    engine = AiohttpEngine()
    async with serve(always()) as server:
        for idle in (1.0, 2.0, 3.0, 4.0):
            await engine.request(HttpRequest(method="POST", url=server.url, max_idle=idle))
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        closing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await closing
        await engine.close()  # a second try must find what the first one left

        leftover = open_sessions()
        for session in leftover:
            await session.close()
    assert leftover == []


PAGE = b"<html>" + b"busy " * 1000


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("headers", "limits"),
    [
        (("Content-Encoding: br",), Limits()),
        (("Content-Encoding: gzip",), Limits()),
        ((), Limits(body=1000)),
    ],
    ids=["a coding not asked for", "broken compression", "a page beyond the limit"],
)
async def test_an_unreadable_error_page_keeps_its_status(headers, limits):
    busy = reply(PAGE, "Retry-After: 7", *headers, status="503 Busy")
    engine = AiohttpEngine()
    async with serve(always(busy)) as server:
        card = {
            "name": "Busy",
            "supportedInterfaces": [{"url": server.url, "protocolBinding": "JSONRPC"}],
        }
        client = connect(card, engine=engine, limits=limits, resilience=Resilience.off())
        with pytest.raises(A2AError) as of_a_read:
            await client.get_task("t")
        with pytest.raises(OutcomeUnknownError) as of_a_message:
            await client.send_message("hello")
        await engine.close()

    assert of_a_read.value.transient
    for error in (of_a_read.value, of_a_message.value):
        # What cannot be read may be an agent's.
        assert (error.http_status, error.retry_after, error.executed) == (503, 7.0, None)


def card_at(url, **members):
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0", **members}
    return {"name": "Found", "supportedInterfaces": [interface]}


def answering(address, answer):
    """An agent on a raw socket whose card names any address."""

    async def script(connection):
        while (request := await connection.request()) is not None:
            if request.startswith(b"GET"):
                card = card_at(address.format(connection._server.port))
                await connection.send(reply(json.dumps(card).encode()))
            else:
                await connection.send(answer(connection._server.port))

    return script


@pytest.mark.real_time
async def test_a_borrowed_session_that_raises_for_a_status_keeps_the_facts():
    def answer(_port):
        return reply(b"slow", "Retry-After: 7", status="429 Too Many Requests")

    script = answering("http://127.0.0.1:{}/rpc", answer)
    async with aiohttp.ClientSession(raise_for_status=True) as session, serve(script) as server:
        client = connect(server.url, engine=session, resilience=Resilience.off())
        with pytest.raises(RateLimitedError) as caught:
            await client.send_message("hello")

    assert (caught.value.retry_after, caught.value.executed) == (7, False)
