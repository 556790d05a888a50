"""Where what was built apart meets: questions, replies, cuts and cancellations."""

import asyncio

import pytest

from holdfast import A2AConnectionError, Artifact, TaskState, connect, text_part
from holdfast.testing import (
    Cut,
    FakeAgent,
    FakeNetwork,
    Plan,
    Step,
    Streaming,
    asks,
    completes,
    streams,
)

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
both_versions = pytest.mark.parametrize("version", ["1.0", "0.3"])


def now():
    return asyncio.get_running_loop().time()


def connected(agent, binding="JSONRPC", **options):
    return connect(agent.url, engine=FakeNetwork(agent), bindings=(binding,), **options)


def scripted(*behaviours, **options):
    """An agent that does one thing after another."""
    left = iter(behaviours)
    return FakeAgent(lambda _: next(left), **options)


# ── Questions on streams that stay open ──────────────────────────────────────────────────────


@both_bindings
@both_versions
@pytest.mark.parametrize("hook", [None, lambda _: None], ids=["no hook", "no reply"])
async def test_a_question_is_the_end_of_a_turn_though_its_stream_stays_open(
    hook, version, binding
):
    streaming = Streaming(stays_open=True, keep_alive=15)
    agent = scripted(
        asks("Which one?"), completes("done"), versions=(version,), streaming=streaming
    )
    chat = connected(agent, binding).conversation(on_input=hook)

    assert (await chat.ask("A pizza")).question == "Which one?"
    assert (now() < 10, agent.open_streams) == (True, 0)
    assert (await chat.ask("Margherita")).text == "done"


@both_bindings
async def test_an_iteration_over_a_turn_ends_with_the_question_though_its_stream_stays_open(
    binding,
):
    agent = scripted(asks("Which one?"), streaming=Streaming(stays_open=True, keep_alive=15))
    chat = connected(agent, binding).conversation()

    async with chat.stream_message("A pizza") as events:
        last = [event async for event in events][-1]
        assert (await events.result()).question == "Which one?"

    assert last.status.state is TaskState.INPUT_REQUIRED
    assert (now() < 10, agent.open_streams) == (True, 0)


# ── Stores that are behind ───────────────────────────────────────────────────────────────────


@both_bindings
@both_versions
@pytest.mark.parametrize("lag", [0.3, 3])
async def test_an_older_question_of_a_store_that_is_behind_does_not_replace_what_was_told(
    lag, version, binding
):
    first = streams("one", then=asks("Which one?"))
    second = Plan(
        (
            Step(state=TaskState.WORKING),
            Step(artifacts=(Artifact(artifact_id="more", parts=(text_part("two"),)),)),
            Step(state=TaskState.INPUT_REQUIRED, says="How large?"),
        )
    )
    agent = scripted(first, second, completes("done"), versions=(version,), store_lag=lag)
    chat = connected(agent, binding).conversation()

    await chat.ask("A pizza")
    await asyncio.sleep(10)
    answer = await chat.ask("Margherita")

    assert (answer.question, answer.text) == ("How large?", "one\ntwo")
    assert chat.task.status.message.text == "How large?"


@both_bindings
@both_versions
async def test_a_store_that_is_behind_takes_no_text_back_though_its_status_is_news(
    version, binding
):
    """Agents may write without saying that they work, and store that they do."""
    silent = Step(state=TaskState.WORKING)
    texts = [
        Step(
            after=4, artifacts=(Artifact(artifact_id="a", parts=(text_part(text),)),), append=True
        )
        for text in ("one ", "two ", "three")
    ]
    plan = Plan((silent, *texts, Step(state=TaskState.COMPLETED, after=1)))
    agent = scripted(
        asks("Go on?"),
        plan,
        versions=(version,),
        store_lag=3,
        streaming=Streaming(snapshot=False),
    )
    agent.inject(Cut(after_events=99), on="SendStreamingMessage")
    agent.inject(Cut(after_events=2), on="SendStreamingMessage")
    chat = connected(agent, binding).conversation()
    await chat.ask("count")
    await asyncio.sleep(10)

    async with chat.stream_message("yes") as events:
        text = "".join([text async for text in events.text_deltas()])

    assert text == "one two three"


# ── Closed while a hook replies ──────────────────────────────────────────────────────────────


@both_bindings
@both_versions
@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "polled"])
async def test_a_client_that_is_closed_while_a_hook_replies_says_what_was_not_sent(
    streaming, version, binding
):
    async def reply(_):
        await asyncio.sleep(10)
        return "Margherita"

    agent = scripted(asks("Which one?"), versions=(version,), streaming=streaming)
    client = connected(agent, binding)
    chat = client.conversation(on_input=reply)
    asking = asyncio.create_task(chat.ask("A pizza"))
    await asyncio.sleep(5)
    await client.close()

    with pytest.raises(
        A2AConnectionError, match="the reply to task task-1 was not sent"
    ) as caught:
        await asking

    assert (caught.value.failure, caught.value.executed) == ("closed", True)
    assert agent.open_streams == 0
