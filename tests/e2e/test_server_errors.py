"""A real agent on the official SDK behind Holdfast's errors, over real sockets."""

import asyncio
import json

import pytest
from tests.kit.real_agents import LIMIT, guarded_process

from holdfast import AiohttpEngine, AuthenticationError, TaskNotFoundError, connect
from holdfast.errors import InternalError
from holdfast.extend import HttpRequest

pytestmark = [pytest.mark.sdk, pytest.mark.real_time]

everywhere = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
CALL = {"jsonrpc": "2.0", "id": "r-1", "method": "GetTask", "params": {"id": "t-1"}}


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    return tmp_path_factory.mktemp("agent") / "stderr.txt"


@pytest.fixture(scope="module")
def url(errors):
    with guarded_process(errors) as url:
        yield url


@pytest.fixture(scope="module")
def secured_url(tmp_path_factory):
    with guarded_process(tmp_path_factory.mktemp("secured") / "e.txt", "--token", "abc") as url:
        yield url


async def asked(method, url, *, body=None, **headers):
    """One request, and what came back: status, headers and JSON."""
    data = b"" if body is None else json.dumps(body).encode()
    sent = {"content-type": "application/json", "a2a-version": "1.0"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    engine = AiohttpEngine()
    try:
        async with asyncio.timeout(LIMIT):
            reply = await engine.request(
                HttpRequest(method=method, url=url, headers=sent, body=data)
            )
    finally:
        await engine.close()
    return reply.status, reply.headers, json.loads(reply.body) if reply.body else None


@everywhere
async def test_what_is_right_goes_through(url, binding):
    async with asyncio.timeout(LIMIT), connect(url, bindings=[binding]) as client:
        assert (await client.ask("echo hello")).text == "hello"
        async with client.stream_message("chunks 3") as events:
            assert (await events.result()).text == "chunk 1\nchunk 2\nchunk 3\n"


@everywhere
async def test_an_error_of_the_agents_own_goes_through(url, binding):
    async with asyncio.timeout(LIMIT), connect(url, bindings=[binding]) as client:
        with pytest.raises(TaskNotFoundError) as caught:
            await client.get_task("nobody")

    assert caught.value.task_id == "nobody"


@everywhere
async def test_caller_without_a_token_gets_a_protocol_error(secured_url, binding):
    async with asyncio.timeout(LIMIT), connect(secured_url, bindings=[binding]) as client:
        with pytest.raises(AuthenticationError) as caught:
            await client.send_message("echo hello")

    error = caught.value
    assert (error.http_status, error.executed, error.transient) == (401, False, False)
    assert error.headers["www-authenticate"] == "Bearer"
    assert error.details[0]["reason"] == "HTTP_STATUS"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/nowhere", 404), ("POST", "/.well-known/agent-card.json", 405)],
)
async def test_a_page_of_starlettes_is_a_json_rpc_error_to_a_call(url, method, path, status):
    found, headers, body = await asked(method, url + path, body=CALL, x_request_id="abc-7")

    assert (found, headers["x-request-id"]) == (status, "abc-7")
    assert (body["id"], body["jsonrpc"]) == ("r-1", "2.0")
    assert body["error"]["message"].startswith(f"HTTP {status} ")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", "/rpc", 405), ("HEAD", "/nowhere", 404)],
)
async def test_a_page_of_starlettes_is_a_status_object_to_others(url, method, path, status):
    found, headers, body = await asked(method, url + path)

    assert (found, headers["content-type"]) == (status, "application/json")
    assert body is None if method == "HEAD" else body["error"]["code"] == status


async def test_an_exception_is_in_the_log_and_nowhere_else(url, errors):
    status, headers, body = await asked("POST", f"{url}/broken", body=CALL, x_request_id="abc-8")

    assert (status, headers["x-request-id"], body["id"]) == (200, "abc-8", "r-1")
    assert body["error"]["message"] == "internal error"
    assert "hunter2" not in json.dumps(body)
    log = errors.read_text()
    assert "request abc-8 to guarded (POST /broken) failed: RuntimeError" in log
    assert "Traceback" in log


@everywhere
async def test_a_crash_that_the_sdk_catches_is_as_it_was(url, binding):
    async with asyncio.timeout(LIMIT), connect(url, bindings=[binding]) as client:
        with pytest.raises(InternalError):
            await client.send_message("crash")
