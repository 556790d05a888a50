"""Representations: one line of bounded length, with the facts that identify a value."""

import re

import pytest

from holdfast import Answer, Artifact, Message, Part, Task, TaskState, connect
from holdfast.testing import FakeAgent, FakeNetwork, works_forever
from holdfast.types import Role, TaskStatus


def said(text):
    return Message(message_id="m-1", role=Role.AGENT, parts=(Part(text=text),))


def task(text=None, *, state=TaskState.COMPLETED, says=None):
    artifacts = () if text is None else (Artifact(parts=(Part(text=text),)),)
    status = TaskStatus(state=state, message=None if says is None else said(says))
    return Task(id="t-1", status=status, artifacts=artifacts)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (task("hello"), "Task(id='t-1', state=COMPLETED, text='hello')"),
        (task(state=TaskState.FAILED, says="no"), "Task(id='t-1', state=FAILED, status='no')"),
        (
            Task(id="t-1", artifacts=(Artifact(parts=(Part(raw=b"x"),)),)),
            "Task(id='t-1', state=UNSPECIFIED, artifacts=1)",
        ),
        (
            Task(id="t-1", status=TaskStatus(state=TaskState("TASK_STATE\nNEW"))),
            r"Task(id='t-1', state=TASK_STATE\nNEW)",
        ),
        (said("a\nb"), "Message(message_id='m-1', role=AGENT, text='a b')"),
        (
            Message(parts=(Part(text="a"), Part(url="http://user:s3cret@x.test/?key=s3cret"))),
            "Message(role=UNSPECIFIED, text='a', parts=2)",
        ),
        (
            Answer(task=task("hello"), extensions=("http://x.test",)),
            "Answer(task_id='t-1', state=COMPLETED, text='hello')",
        ),
        (
            Answer(task=task(state=TaskState.INPUT_REQUIRED, says="when?")),
            "Answer(task_id='t-1', state=INPUT_REQUIRED, question='when?')",
        ),
        (
            Answer(message=said("hi")),
            "Answer(message=Message(message_id='m-1', role=AGENT, text='hi'))",
        ),
    ],
)
def test_a_value_shows_what_identifies_it(value, shown):
    assert (repr(value), str(value), value.__rich_repr__()) == (shown, shown, None)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(task=task("hello")),
        Answer(task=task(state=TaskState.INPUT_REQUIRED, says="when?")),
        Answer(message=said("hi")),
    ],
)
def test_an_answer_shows_attributes_that_it_has(answer):
    shown = re.findall(r"[(\s](\w+)=", repr(answer).partition("Message(")[0])
    assert shown
    assert [name for name in shown if not hasattr(answer, name)] == []


@pytest.mark.parametrize(
    "value", [task("x" * 10**6), said("\ud800" * 10**6), task(says="x" * 999)]
)
def test_a_long_text_is_shortened(value):
    assert len(repr(value)) < 120
    assert repr(value).isprintable()


async def test_clients_and_streams_show_where_they_are():
    agent = FakeAgent(works_forever())
    client = connect(f"{agent.url}/?key=s3cret", url=f"{agent.url}/rpc", engine=FakeNetwork(agent))
    assert repr(client).startswith("Client(agent='http://agent.test")
    assert "s3cret" not in repr(client)

    async with client.stream_message("hello") as events:
        assert repr(events) == "EventStream()"
        await anext(events)
        assert repr(events) == "EventStream(task_id='task-1', state=SUBMITTED)"
    assert repr(events).endswith("is_over=True)")

    await client.close()
    assert repr(client).endswith("is_closed=True)")
