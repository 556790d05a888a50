"""Applications in process: what an application, and what a client sees."""

import asyncio

import pytest

from holdfast import A2AConnectionError, A2ATimeoutError
from holdfast._testing.asgi_lifespan import Lifespan
from holdfast._wire.network_scope import NetworkReach
from holdfast.errors import LimitExceededError, NetworkPolicyError
from holdfast.extend import HttpRequest
from holdfast.policies import Limits, Timeouts
from holdfast.testing import AsgiNetwork

URL = "http://agent.test"


def now():
    return asyncio.get_running_loop().time()


def get(path="/", **given):
    return HttpRequest(**{"method": "GET", "url": f"{URL}{path}", **given})


def start(status=200, *headers):
    return {"type": "http.response.start", "status": status, "headers": [*headers]}


def body(data=b"", *, more=False):
    return {"type": "http.response.body", "body": data, "more_body": more}


class App:
    """Keeps what it was asked, and answers as it is told."""

    def __init__(self, *sends, then=None):
        self.sends = sends
        self.then = then
        self.scopes = []
        self.told = []

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            raise NotImplementedError
        self.scopes.append(scope)
        self.told.append(await receive())
        for what in self.sends:
            if isinstance(what, (int, float)):
                await asyncio.sleep(what)
            else:
                await send(what)
        if self.then is not None:
            await self.then(self, receive, send)


async def told(app, receive, _send):
    app.told.append(await receive())


def network(app):
    return AsgiNetwork({URL: app})


# ── What an application sees ─────────────────────────────────────────────────────────────────


async def test_the_request_as_a_server_gives_it():
    app = App(start(), body())
    request = get("/a%20b/c?x=1&y=%20", method="POST", headers={"x-name": "é"}, body=b"hello")

    await network(app).request(request)

    scope = app.scopes[0]
    assert (scope["method"], scope["scheme"], scope["http_version"]) == ("POST", "http", "1.1")
    assert (scope["path"], scope["raw_path"]) == ("/a b/c", b"/a%20b/c")
    assert scope["query_string"] == b"x=1&y=%20"
    assert scope["server"] == ("agent.test", 80)
    assert dict(scope["headers"]) == {
        b"host": b"agent.test",
        b"x-name": b"\xe9",
        b"content-length": b"5",
    }
    assert app.told == [{"type": "http.request", "body": b"hello", "more_body": False}]


async def test_after_its_reply_it_is_told_that_the_client_is_gone():
    app = App(start(), body(b"all"), then=told)

    async with network(app).stream(get()) as reply:
        assert await reply.read() == b"all"
        await asyncio.sleep(1)
        assert app.told[1:] == [{"type": "http.disconnect"}]


async def test_client_that_leaves_a_stream_is_reported_and_cancels_nothing():
    done = []

    async def works_on(app, receive, send):
        app.told.append(await receive())
        await asyncio.sleep(0.5)
        await send(body(b"nobody hears this", more=True))
        done.append(now())

    app = App(start(), body(b"one", more=True), then=works_on)
    carried = network(app)
    async with carried.stream(get()) as reply:
        assert await anext(reply.chunks()) == b"one"
        assert carried.in_flight == 1

    assert carried.in_flight == 0
    await asyncio.sleep(2)
    assert app.told[1:] == [{"type": "http.disconnect"}]
    assert done == [0.5]
    assert carried.crashes == []


async def test_client_that_is_cancelled_before_the_reply_is_reported():
    app = App(then=told)
    carried = network(app)
    asking = asyncio.create_task(carried.request(get()))
    await asyncio.sleep(1)

    asking.cancel()
    await asyncio.wait([asking])
    await carried.close()

    assert asking.cancelled()
    assert (app.told[1:], carried.in_flight) == ([{"type": "http.disconnect"}], 0)


async def test_who_does_not_read_lets_the_application_wait():
    sent = []

    async def pours(_app, _receive, send):
        for number in range(100):
            await send(body(b"x" * 10_000, more=number < 99))
            sent.append(number)

    carried = network(App(start(), then=pours))
    async with carried.stream(get()) as reply:
        await asyncio.sleep(10)
        assert len(sent) == 7  # 64 KiB
        assert len(await reply.read()) == 1_000_000


@pytest.mark.parametrize(
    "sends",
    [
        (body(),),
        (start(), start()),
        (start(), {"type": "http.response.nonsense"}),
        (start(), body(), body()),
    ],
)
async def test_value_that_is_not_asgi_raises_in_the_application(sends):
    carried = network(App(*sends))

    await carried.stream(get()).__aenter__()
    await asyncio.sleep(1)

    assert "at this point of its reply" in str(carried.crashes[0]) or "after the end" in str(
        carried.crashes[0]
    )


# ── What a client sees ───────────────────────────────────────────────────────────────────────


async def test_a_reply_comes_as_it_is_sent():
    head = start(201, (b"X-A", b"1"), (b"x-a", b"2"))
    app = App(1, head, 1, body(b"a", more=True), 1, body(b"b"))

    async with network(app).stream(get()) as reply:
        seen = [(now(), reply.status, reply.headers)]
        seen += [(now(), piece) async for piece in reply.chunks()]

    assert seen == [(1.0, 201, {"x-a": "1, 2"}), (2.0, b"a"), (3.0, b"b")]


async def raising(_app, _receive, _send):
    raise ZeroDivisionError


@pytest.mark.parametrize("then", [raising, None])
async def test_an_application_that_does_not_answer_is_answered_for(then):
    carried = network(App(then=then))

    reply = await carried.request(get())

    assert (reply.status, reply.body) == (500, b"Internal Server Error")
    assert [type(crash) for crash in carried.crashes] == [ZeroDivisionError] * bool(then)


@pytest.mark.parametrize("then", [raising, None])
async def test_a_reply_that_breaks_off_is_cut(then):
    app = App(start(), body(b"half", more=True), then=then)

    async with network(app).stream(get()) as reply:
        chunks = reply.chunks()
        assert await anext(chunks) == b"half"
        with pytest.raises(A2AConnectionError) as caught:
            await anext(chunks)

    assert (caught.value.failure, caught.value.executed) == ("truncated", None)


async def test_what_takes_too_long_says_which_wait_it_was():
    timeouts = Timeouts(first_byte=2, idle=3)
    slow, stopping = App(5, start(), body()), App(start(), body(b"a", more=True), 5, body())

    with pytest.raises(A2ATimeoutError) as first:
        await network(slow).request(get(timeouts=timeouts))
    at = now()
    with pytest.raises(A2ATimeoutError) as idle:
        await network(stopping).request(get(timeouts=timeouts))

    assert (first.value.phase, at, first.value.executed) == ("first_byte", 2.0, None)
    assert (idle.value.phase, now()) == ("idle", 5.0)
    await asyncio.sleep(10)


async def test_a_timeout_of_the_caller_stays_the_callers():
    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(1):
            await network(App(5, start(), body())).request(get())

    assert not isinstance(caught.value, A2ATimeoutError)
    await asyncio.sleep(10)


async def test_the_largest_reply():
    large, refusing = App(start(), body(b"x" * 101)), App(start(404), body(b"x" * 101))
    limits = Limits(body=100)

    with pytest.raises(LimitExceededError, match="body"):
        await network(large).request(get(limits=limits))
    reply = await network(refusing).request(get(limits=limits))

    assert (reply.status, reply.body) == (404, b"")


async def test_no_other_task_runs():
    with pytest.raises(A2AConnectionError) as caught:
        await network(App()).request(get(url="http://elsewhere.test/"))

    error = caught.value
    assert (error.failure, error.executed, error.transient) == ("dns", False, False)


async def test_what_must_not_be_reached_is_not():
    app = App(start(), body())
    inside = AsgiNetwork({"http://10.0.0.1": app})

    with pytest.raises(NetworkPolicyError):
        await inside.request(
            get(url="http://10.0.0.1/", reach=NetworkReach(inward="public", allowed=()))
        )
    reply = await inside.request(get(url="http://10.0.0.1/"))

    assert (reply.address, len(app.scopes)) == ("10.0.0.1", 1)


async def test_the_network_can_be_used_again_after_it_was_closed():
    stubborn = []

    async def stays(_app, _receive, _send):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stubborn.append(now())
            raise

    carried = network(App(start(), body(b"a", more=True), then=stays))
    for _ in range(2):
        async with carried.stream(get()) as reply:
            assert await anext(reply.chunks()) == b"a"
        await carried.close()
        await carried.close()

    assert stubborn == [1.0, 2.0]


# ── Lifespan ─────────────────────────────────────────────────────────────────────────────────


class Living:
    """Starts up and shuts down, and says what became of its state."""

    def __init__(self, up="complete", down="complete"):
        self.up, self.down = up, down
        self.life = []

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            self.life.append(scope["state"]["kept"])
            await App(start(), body())(scope, receive, send)
            return
        self.life.append((await receive())["type"])
        scope["state"]["kept"] = "kept"
        await send({"type": f"lifespan.startup.{self.up}", "message": "no disk"})
        if self.up == "complete":
            self.life.append((await receive())["type"])
            await send({"type": f"lifespan.shutdown.{self.down}", "message": "still busy"})


async def test_an_entered_network_has_its_applications_start_up_and_shut_down():
    app = Living()

    async with network(app) as carried:
        await carried.request(get())

    assert app.life == ["lifespan.startup", "kept", "lifespan.shutdown"]


async def test_an_application_without_a_lifespan_is_served_all_the_same():
    async with network(App(start(), body(b"here"))) as carried:
        assert (await carried.request(get())).body == b"here"


@pytest.mark.parametrize(
    ("app", "why"),
    [
        (Living(up="failed"), "the application cannot start: no disk"),
        (Living(down="failed"), "the application did not shut down: still busy"),
    ],
)
async def test_an_application_that_cannot_start_or_stop(app, why):
    with pytest.raises(RuntimeError, match=why):
        async with network(app):
            pass


async def test_the_bounds_of_a_lifespan():
    async def silent(_scope, _receive, _send):
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match="did not start up within 30 s"):
        await Lifespan(silent).__aenter__()
    assert now() == 30


async def test_what_an_application_raised_is_raised_at_the_end():
    with pytest.raises(ZeroDivisionError):
        async with network(App(then=raising)) as carried:
            assert (await carried.request(get())).status == 500
    with pytest.raises(KeyError):  # noqa: PT012  the caller's own error comes first
        async with network(App(then=raising)) as carried:
            await carried.request(get())
            raise KeyError
