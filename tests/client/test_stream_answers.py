"""However it is asked, an agent gives one answer: streamed, streamed over cuts, or polled."""

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.kit.effort import rounds

from holdfast import Artifact, Part, TaskState, TaskTerminalError, connect
from holdfast.testing import Cut, FakeAgent, FakeNetwork, Plan, Step, Streaming, run

WORDS = st.sampled_from(["Hello, ", "world!", "ha", "ha", " ", "", "\n", "ünï"])
TIMES = st.sampled_from([0, 0, 0.5, 3, 40])


def artifact(number, text):
    return Artifact(artifact_id=f"artifact-{number}", parts=(Part(text=text),))


STEPS = st.builds(
    lambda after, state, says, pieces, append: Step(
        state=state,
        after=after,
        says=says if state else None,
        artifacts=tuple(artifact(number, text) for number, text in pieces.items()),
        append=append,
    ),
    after=TIMES,
    state=st.sampled_from([None, None, TaskState.WORKING, TaskState.AUTH_REQUIRED]),
    says=st.none() | WORDS,
    pieces=st.dictionaries(st.integers(1, 3), WORDS, max_size=2),
    append=st.booleans(),
)
ENDS = st.builds(
    lambda after, state, says: Step(after=after, state=state, says=says),
    after=TIMES,
    state=st.sampled_from(
        [
            TaskState.COMPLETED,
            TaskState.COMPLETED,
            TaskState.INPUT_REQUIRED,
            TaskState.FAILED,
            TaskState.REJECTED,
            TaskState.CANCELED,
        ]
    ),
    says=st.none() | WORDS,
)
PLANS = st.builds(
    lambda steps, end: Plan((Step(state=TaskState.SUBMITTED), *steps, end)),
    st.lists(STEPS, max_size=8),
    ENDS,
)
CUTS = st.lists(st.integers(1, 5), max_size=4)


async def outcome_of(answering):
    """An answer, or the error in its place."""
    try:
        answer = await answering
    except TaskTerminalError as error:
        return type(error), error.message, plain(error.task)
    return plain(answer.task), answer.text, answer.question, answer.needs_input


def plain(task):
    """A task without what differs by the moment of the call."""
    status = msgspec.structs.replace(task.status, timestamp=None)
    said = tuple(message.text for message in task.history)
    return task.id, status.state, status.message and status.message.text, task.artifacts, said


def asked(plan, cuts, binding, how, *, overlap=0, lag=0.0):
    """What comes of asking."""

    async def main():
        streaming = Streaming(overlap=overlap) if how != "polled" else False
        agent = FakeAgent(plan, streaming=streaming, store_lag=lag)
        for number, count in enumerate(cuts):
            operation = "SubscribeToTask" if number else "SendStreamingMessage"
            agent.inject(Cut(after_events=count, clean=count % 2 == 0), on=operation)
        network = FakeNetwork(agent)
        client = connect(agent.url, engine=network, bindings=(binding,))

        async def streamed():
            async with client.stream_message("hi") as events:
                return await events.result()

        outcome = await outcome_of(streamed() if how == "streamed" else client.ask("hi"))
        assert (network.in_flight, agent.open_streams) == (0, 0)
        assert len(agent.tasks) == 1
        return outcome

    return run(main())


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@settings(max_examples=rounds(15, 150))
@example(  # what was told of the artifact begins with what it became
    plan=Plan(
        (
            Step(state=TaskState.SUBMITTED),
            Step(state=TaskState.WORKING),
            Step(artifacts=(artifact(1, "Hello, "),)),
            Step(artifacts=(artifact(1, ""),)),
            Step(state=TaskState.INPUT_REQUIRED),
        )
    ),
    cuts=[3],
)
@given(plan=PLANS, cuts=CUTS)
def test_an_answer_is_the_same_however_it_comes(binding, plan, cuts):
    polled = asked(plan, (), binding, "polled")

    assert asked(plan, cuts, binding, "streamed") == polled
    assert asked(plan, cuts, binding, "asked") == polled


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@settings(max_examples=rounds(15, 100))
@given(
    plan=PLANS.filter(lambda plan: plan.steps[-1].state.is_terminal),
    cuts=CUTS,
    overlap=st.integers(0, 4),
    lag=st.sampled_from([0.25, 0.75, 1.2]),
)
def test_a_store_that_lags_behind_makes_no_other_answer(binding, plan, cuts, overlap, lag):
    polled = asked(plan, (), binding, "polled")
    streamed = asked(plan, cuts, binding, "streamed", overlap=overlap, lag=lag)

    assert said_in(streamed) == said_in(polled)


def said_in(outcome):
    """An outcome without the history, which a store that is behind may not have yet."""
    return [each[:-1] if isinstance(each, tuple) else each for each in outcome]
