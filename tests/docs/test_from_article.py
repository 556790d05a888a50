"""Each block and each row of docs/howto/from-article.md runs as it stands."""

import contextlib
import json
import logging
import re

import msgspec
import pytest
from tests.kit.asgi_client import request
from tests.kit.coming_from import HERE, OFF, REAL, Guide, failing

import holdfast
from holdfast.testing import (
    Fail,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Respond,
    Stall,
    bad_gateway,
    fails,
    rate_limited,
    unavailable,
    works_forever,
)

guide = Guide("from-article")
row, block = guide.row, guide.block


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
LATER = {"retryable": True, "retryAfter": 10, "detail": "the model is overloaded"}


@block("SKILL_NOT_FOUND")
async def the_articles_codes_are_kept(written, world):
    fake = FakeAgent(url=HERE)
    world.reach(fake)
    fake.inject(Fail(code=-32008, data={"detail": "no moon here"}))
    await written()
    fake.inject(Fail(code=-32006, message="Task timed out", data=LATER))
    await written()

    assert world.printed[0] == ("no such skill:", "no moon here")
    error, transient, retry_after = world.printed[1]
    assert (error.code, transient, retry_after) == (-32006, True, 10.0)
    assert "Task timed out: the model is overloaded" in str(error)
    assert (fake.pending_faults, fake.executions) == ((), {})  # each was sent once


@row("`A2AErrorCode.RATE_LIMITED`")
async def the_codes_have_names(written, world):
    assert await written() == -32004
    assert {code.name: code.value for code in holdfast.compat.ArticleErrorCode} == ARTICLE_CODES


@row("`make_error(code, message, data)`")
async def an_error_is_made(written, world):
    data = {"retryable": True, "retryAfter": 10}
    assert await written() == {"code": -32006, "message": "Task timed out", "data": data}


@row("`A2AError(code, message, data)`")
async def an_error_object_is_read(written, world):
    error = await written()
    assert type(error) is holdfast.errors.AgentError
    assert (error.code, error.transient, error.executed) == (-32006, True, None)
    assert "Task timed out" in str(error)
    not_the_articles = holdfast.A2AError.from_jsonrpc(
        holdfast.compat.make_error(-32001, "no such task")
    )
    assert type(not_the_articles) is holdfast.TaskNotFoundError


def late():
    """An error with everything that the article puts into one."""
    return Fail(code=-32004, message="Slow down", data={**LATER, "retryAfter": 90})


@row('`error["code"]`, `error["message"]`')
async def an_error_has_its_code_and_message(written, world):
    error = await failing(late(), world)
    assert await written(error=error) == holdfast.compat.ArticleErrorCode.RATE_LIMITED
    assert "Slow down" in await written(error=error)


@row('`error["data"]["retryable"]`')
async def an_error_says_whether_it_may_pass(written, world):
    for retryable in (True, False):
        fault = Fail(code=-32007, data={"retryable": retryable})
        error = await failing(fault, world, resilience=OFF)
        assert error.transient is retryable
    assert await written(error=error) is False


@row('`error["data"]["retryAfter"]`, the header `Retry-After`')
async def an_error_says_when_to_come_back(written, world):
    by_header = await failing(rate_limited(retry_after=90), world)
    assert by_header.retry_after == 90
    assert await written(error=await failing(late(), world)) == 90


@row('`error["data"]["detail"]`')
async def an_error_has_its_detail(written, world):
    error = await failing(late(), world)
    detail = await written(error=error)
    assert detail == "the model is overloaded"
    assert detail in await written(error=error)


@row("`RETRYABLE_CODES`, `NON_RETRYABLE_CODES`")
async def a_code_says_whether_it_may_pass_where_the_error_does_not(written, world):
    passing = []
    for code in [*holdfast.compat.ArticleErrorCode, -32603, -32700, -32600, -32601, -32602]:
        error = holdfast.A2AError.from_jsonrpc(
            holdfast.compat.make_error(code, "no", {"detail": "x"})
        )
        if error.transient:
            passing.append(code)
    assert passing == [-32004, -32005, -32006, -32603]
    assert await written(error=error) is False


@row("`resp.status_code == 429`")
async def http_and_the_agent_are_told_apart(written, world):
    assert await written(error=await failing(rate_limited(), world)) == 429
    assert (await failing(rate_limited(), world)).code is None
    assert await written(error=await failing(late(), world)) == -32004


@row("`RetryConfig(max_retries, base_delay, max_delay, backoff_factor)`")
async def retries_wait_longer_and_longer(written, world):
    policy = await written()
    assert policy == holdfast.RetryPolicy()
    waits = []

    class AlwaysTheLongest:
        wall, new_id = staticmethod(lambda: 0.0), staticmethod(lambda: "id")
        random = staticmethod(lambda: 1 - 1e-9)

    told = msgspec.structs.replace(
        policy, max_retries=6, on_retry=lambda number, error, wait: waits.append(round(wait, 3))
    )
    fake = FakeAgent(url=HERE)
    fake.inject(bad_gateway(), on="GetTask", times=9)
    client = holdfast.connect(
        HERE,
        engine=FakeNetwork(fake),
        resilience=holdfast.Resilience(retry=told, budget=None, breaker=None),
        env=AlwaysTheLongest(),
    )
    with pytest.raises(holdfast.A2AHTTPError):
        await client.get_task("task-1")
    assert waits == [1, 2, 4, 8, 16, 30]


@row("`httpx.Timeout(connect=5, read=60, write=5, pool=10)`")
async def each_wait_has_its_limit(written, world):
    timeouts = await written()
    resilience = msgspec.structs.replace(OFF, timeouts=timeouts)
    for phase, limit in (("connect", 5), ("first_byte", 60), ("idle", 60)):
        error = await failing(Stall(phase=phase), world, resilience=resilience)
        assert (error.phase, error.timeout) == (phase, limit)
    assert (timeouts.write, timeouts.pool) == (5, 10)


@row("`asyncio.timeout(total_timeout)`")
async def the_whole_call_has_its_limit(written, world):
    _, names = await world.usual(works_forever())
    with pytest.raises(holdfast.DeadlineExceededError, match="90 s"):
        await written(**names)


@block("timeouts=holdfast.Timeouts(")
async def limits_are_options(written, world):
    world.reach(FakeAgent("384,400 km", url=HERE))
    names = await written()
    assert world.printed == [("384,400 km",)]
    assert names["resilience"] == holdfast.Resilience(
        timeouts=holdfast.Timeouts(connect=5, first_byte=60, idle=60, write=5, pool=10),
        retry=holdfast.RetryPolicy(max_retries=3, base_delay=1, max_delay=30, backoff_factor=2),
    )
    assert names["agent"].circuit.state == "closed"
    away = FakeAgent(url=HERE)
    away.inject(Stall(), times=99)
    world.reach(away)
    with pytest.raises(holdfast.OutcomeUnknownError, match="no reply began for 60 s"):
        await written()
    world.reach(FakeAgent(works_forever(), url=HERE))
    with pytest.raises(holdfast.DeadlineExceededError, match="90 s"):
        await written()


@pytest.mark.parametrize(
    ("fault", "is_sent_again"),
    [
        (rate_limited(retry_after=1), True),
        (unavailable(retry_after=1), True),
        (Refuse(), True),
        (Fail(code=-32603, after_execution=True, data={"retryable": True}), False),
        (bad_gateway(after_execution=True), False),
        (Respond(status=500, after_execution=True), False),
        (Stall(after_execution=True), False),
    ],
)
async def test_what_is_said_of_sending_again_is_so(fault, is_sent_again):
    fake, seen = FakeAgent("384,400 km", url=HERE, streaming=False), []
    client = REAL["connect"](HERE, engine=FakeNetwork(fake), observers=[seen.append])
    await client.agent_card()
    fake.inject(fault, on="SendMessage")

    with contextlib.suppress(holdfast.errors.InternalError):  # what the agent itself has answered
        assert (await client.ask("How far?")).text == "384,400 km"

    tries = [each for each in seen if isinstance(each, holdfast.observe.AttemptStarted)]
    sent = [each for each in tries if each.method == "SendMessage"]
    assert len(sent) == (2 if is_sent_again else 1)
    assert [len(tasks) for tasks in fake.executions.values()] == [1]
    fake.inject(fault, on="GetTask")
    assert (await client.get_task("task-1")).id == "task-1"  # a read is repeated


async def test_a_predicate_says_no_to_more():
    policy = holdfast.RetryPolicy(retry_predicate=lambda error: error.http_status != 429)
    fake = FakeAgent(url=HERE)
    client = REAL["connect"](
        HERE, engine=FakeNetwork(fake), resilience=holdfast.Resilience(retry=policy)
    )
    await client.agent_card()
    fake.inject(rate_limited(retry_after=1))
    with pytest.raises(holdfast.RateLimitedError):
        await client.ask("How far?")
    fake.inject(unavailable(retry_after=1))
    assert (await client.ask("How far?")).text == "How far?"


async def several(world, *behaviours, **options):
    """A coordinator of agents at a, b, c …, and these."""
    fakes = [
        FakeAgent(behaviour, url=f"http://{name}.example.com", id_suffix=name)
        for name, behaviour in zip("abc", behaviours, strict=False)
    ]
    world.reach(*fakes, FakeAgent(url=HERE))
    return holdfast.Coordinator([fake.url for fake in fakes], **options), fakes


@row("`ResilientCoordinator(urls)`")
async def a_coordinator_has_agents(written, world):
    made, (fake,) = await several(world, "one")
    await made.close()
    async with await written(urls=[fake.url]) as coordinator:
        assert (await coordinator.delegate(fake.url, "hello")).unwrap().text == "one"
    async with await written() as coordinator:
        assert (await coordinator.delegate("moon", "hello")).unwrap().text == "hello"


@row("3 consecutive failures, 30 s")
async def a_circuit_opens_after_three_failures(written, world):
    breaker = await written()
    resilience = holdfast.Resilience(breaker=breaker, retry=holdfast.RetryPolicy(max_retries=0))
    coordinator, (fake,) = await several(world, "one", resilience=resilience)
    await coordinator.delegate(fake.url, "hello")
    fake.inject(Refuse(), times=9)
    for failures in (1, 2, 3):
        await coordinator.delegate(fake.url, "hello")
        health = coordinator.health()[fake.url]
        assert (health.consecutive_failures, health.healthy) == (failures, failures < 3)
    refused = await coordinator.delegate(fake.url, "hello")
    assert isinstance(refused.error, holdfast.CircuitOpenError)
    assert refused.error.retry_after == pytest.approx(30, rel=0.2)
    await coordinator.close()
    assert holdfast.BreakerPolicy().failures == 5


async def with_one_away(world):
    """A coordinator of one agent that is away."""
    resilience = holdfast.Resilience(
        breaker=holdfast.BreakerPolicy.simple(failures=1, open_for=30),
        retry=holdfast.RetryPolicy(max_retries=0),
    )
    coordinator, (fake,) = await several(world, "one", resilience=resilience)
    await coordinator.delegate(fake.url, "hello")
    fake.inject(Refuse(), times=9)
    await coordinator.delegate(fake.url, "hello")
    return {"coordinator": coordinator, "url": fake.url}


@row("`coordinator.is_available(url)`")
async def an_agent_that_is_away_is_not_healthy(written, world):
    names = await with_one_away(world)
    assert await written(**names) is False
    await names["coordinator"].close()


@row("`coordinator.agents[url].consecutive_failures`, `.last_failure`")
async def failures_are_counted(written, world):
    names = await with_one_away(world)
    assert await written(**names) == 1
    assert await written(**names) > 0
    await names["coordinator"].close()


@row("`coordinator.agents[url].circuit_open_until`")
async def it_is_known_when_to_come_back(written, world):
    names = await with_one_away(world)
    until = await written(**names)
    health = names["coordinator"].health()[names["url"]]
    assert health.url == names["url"]
    assert until - health.last_failure == pytest.approx(30, rel=0.2)
    await names["coordinator"].close()


@row("`coordinator.delegate(url, text)`")
async def a_result_says_why_there_is_no_answer(written, world):
    names = await with_one_away(world)
    result = await written(**names)
    assert result.answer is await written()
    assert isinstance(result.error, holdfast.CircuitOpenError)
    await names["coordinator"].close()


@row("`fan_out_resilient(urls, texts, min_results)`")
async def pairs_or_one_message_for_all(written, world):
    def shout(turn):
        return turn.message.text.upper()

    coordinator, fakes = await several(world, shout, fails("no"))
    names = {"urls": [fake.url for fake in fakes], "texts": ["one", "two"]}
    for said in ("ONE", "HELLO"):
        answered, failed = await written(coordinator=coordinator, **names)
        assert (answered.unwrap().text, type(failed.error)) == (said, holdfast.TaskFailedError)
    await coordinator.close()


@row('`RuntimeError("Only 1/3 agents responded …")`')
async def too_few_answers_are_an_error(written, world):
    coordinator, fakes = await several(world, "one", fails("no"), fails("no"))
    with pytest.raises(await written()) as caught:
        await coordinator.fan_out("hello", min_results=2)
    assert len(await written(error=caught.value)) == len(fakes)
    await coordinator.close()


@block("urls = [")
async def many_are_asked_and_some_are_away(written, world):
    unused, fakes = await several(world, *(lambda turn: turn.message.text.upper(),) * 3)
    await unused.close()
    fakes[2].inject(Refuse(), on="GetAgentCard", times=99)
    await written()
    assert [words[:2] for words in world.printed[:2]] == [
        ("http://a.example.com", "ONE"),
        ("http://b.example.com", "TWO"),
    ]
    assert isinstance(world.printed[2][1], holdfast.A2AConnectionError)
    health = [words[1:] for words in world.printed[3:]]
    assert health[:2] == [(True, 0, None)] * 2
    healthy, failures, open_until = health[2]
    assert (healthy, failures >= 3, open_until is not None) == (False, True, True)


DOWNSTREAM = {"currentAgent": "A", "downstreamAgent": "B", "retryable": True}


@row("`wrap_downstream_error(agent, error, current)`")
async def an_error_is_passed_on(written, world):
    error = holdfast.A2AError.from_jsonrpc(
        holdfast.compat.make_error(-32006, "Task timed out", LATER)
    )
    told = await written(error=error)
    assert told["code"] == -32603
    assert told["data"].items() >= DOWNSTREAM.items()
    below = told["data"]["downstreamError"]
    assert (below["code"], below["data"]["retryable"], below["data"]["retryAfter"]) == (
        -32006,
        True,
        10,
    )
    assert told["message"].startswith("agent B failed")


async def asked_over_http(app):
    """The JSON-RPC error that an application answers with."""
    call = {"jsonrpc": "2.0", "id": "1", "method": "SendMessage", "params": {}}
    reply = await request(
        app, json.dumps(call).encode(), headers=[("content-type", "application/json")]
    )
    answer = json.loads(reply.text)
    assert answer["id"] == "1"
    return answer["error"]


@row("a handler that catches everything")
async def an_agent_answers_with_errors_of_the_protocol(written, world):
    async def page(scope, receive, send):
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 502, "headers": headers})
        await send({"type": "http.response.body", "body": b"<h1>secret</h1>"})

    async def crash(scope, receive, send):
        message = "secret /etc/passwd"
        raise RuntimeError(message)

    async def calls_another(scope, receive, send):
        raise holdfast.A2AConnectionError("refused", failure="refused", agent="B")

    now, apps = written.left.pop(), [page, crash, calls_another]
    for app in apps:
        written.left.append(now)
        error = await asked_over_http(await written(app=app))
        assert error["code"] in {-32000, -32603}
        assert "secret" not in json.dumps(error)
    assert error["data"]["currentAgent"] == "A"


@row("`logger.error(…)` with request ids")
async def failures_are_logged(written, world):
    logger, records = await written(), []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        error = await failing(bad_gateway(), world, resilience=holdfast.Resilience.standard())
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    failed = [line for line in records if re.search(r": attempt \d failed with \w+ after", line)]
    assert len(failed) == len(error.attempts) > 1
    for number, line in enumerate(failed, start=1):
        assert f"GetTask {error.request_id} to {HERE}/rpc: attempt {number} failed" in line


@block("ProtocolErrors")
async def an_agent_passes_on_what_went_wrong(written, world):
    fake = FakeAgent(url=HERE)
    fake.inject(Fail(code=-32006, message="Task timed out", data=LATER))
    world.reach(fake)
    names = await written()
    error = await asked_over_http(names["app"])
    assert error["data"].items() >= DOWNSTREAM.items()
    assert error["data"]["downstreamError"]["code"] == -32006
    assert error["data"]["requestId"]
    assert holdfast.A2AError.from_jsonrpc(error).hops == ("B",)


@guide.each_row
async def test_a_row_is_as_it_says(row, monkeypatch):
    await guide.run_row(row, monkeypatch)


@guide.each_block
async def test_a_block_runs_as_it_stands(text, monkeypatch):
    await guide.run_block(text, monkeypatch)


def test_every_row_and_every_block_is_checked():
    guide.check_complete()
