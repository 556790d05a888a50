"""Answers: text, question, ids, and errors of unsuccessful tasks."""

import pytest

from holdfast import (
    Answer,
    Artifact,
    Message,
    Part,
    TaskFailedError,
    TaskState,
    connect,
    data_part,
)
from holdfast._client.answer import raise_for_outcome
from holdfast.errors import TaskCanceledError, TaskRejectedError
from holdfast.testing import FakeAgent, FakeNetwork, asks, completes, replies
from holdfast.types import Role, Task, TaskStatus

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


def message_text(text):
    return None if text is None else Message(role=Role.AGENT, parts=(Part(text=text),))


def task(state, *artifacts, says=None):
    return Task(
        id="t-1",
        context_id="c-1",
        status=TaskStatus(state=state, message=message_text(says)),
        artifacts=tuple(
            Artifact(artifact_id=f"a-{n}", parts=tuple(Part(text=text) for text in texts))
            for n, texts in enumerate(artifacts)
        ),
    )


COMPLETED, INPUT_REQUIRED = TaskState.COMPLETED, TaskState.INPUT_REQUIRED


@pytest.mark.parametrize("state", [COMPLETED, INPUT_REQUIRED])
def test_state_is_that_of_the_task(state):
    assert Answer(task=task(state)).state is state


def test_a_message_has_no_state():
    assert Answer(message=message_text("hi")).state is None


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer(message=message_text("hi")), "hi"),
        (Answer(message=Message(parts=(Part(text="a"), Part(text="b")))), "a\nb"),
        (Answer(message=Message()), ""),
        (Answer(task=task(COMPLETED, ["hel", "lo"])), "hello"),
        (Answer(task=task(COMPLETED, ["one"], ["two"])), "one\ntwo"),
        (Answer(task=task(COMPLETED, [], ["two"])), "two"),
        (Answer(task=task(COMPLETED, ["done"], says="all went well")), "done"),
        (Answer(task=task(COMPLETED, says="nothing to show")), "nothing to show"),
        (Answer(task=task(COMPLETED)), ""),
        (Answer(task=task(INPUT_REQUIRED, says="which one?")), ""),
        (Answer(task=task(INPUT_REQUIRED, ["so far"], says="which one?")), "so far"),
        (Answer(), ""),
    ],
)
def test_text_of_each_kind_of_answer(answer, text):
    assert answer.text == text


@pytest.mark.parametrize(
    ("answer", "needs_input", "question"),
    [
        (Answer(task=task(INPUT_REQUIRED, says="which one?")), True, "which one?"),
        (Answer(task=task(INPUT_REQUIRED)), True, ""),
        (Answer(task=task(COMPLETED, says="done")), False, ""),
        (Answer(message=message_text("hi")), False, ""),
        (Answer(), False, ""),
    ],
)
def test_question_is_not_part_of_the_text(answer, needs_input, question):
    assert (answer.needs_input, answer.question) == (needs_input, question)


@pytest.mark.parametrize(
    ("answer", "ids"),
    [
        (Answer(task=task(COMPLETED)), ("t-1", "c-1")),
        (Answer(message=Message(task_id="t-2", context_id="c-2")), ("t-2", "c-2")),
        (Answer(message=message_text("hi")), (None, None)),
        (Answer(), (None, None)),
    ],
)
def test_ids_are_those_of_the_task_or_message(answer, ids):
    assert (answer.task_id, answer.context_id) == ids


def test_an_answer_is_frozen():
    with pytest.raises(AttributeError):
        Answer().task = None


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (TaskState.FAILED, TaskFailedError),
        (TaskState.REJECTED, TaskRejectedError),
        (TaskState.CANCELED, TaskCanceledError),
    ],
)
@pytest.mark.parametrize("reason", [None, "the reason"])
def test_raise_for_outcome_raises_with_reason_and_task(state, kind, reason):
    ended = task(state, says=reason)

    with pytest.raises(kind) as caught:
        raise_for_outcome(ended, agent="http://agent.test/rpc")

    error = caught.value
    assert (error.task, error.executed, error.agent) == (ended, True, "http://agent.test/rpc")
    assert error.message == f"task t-1 ended in {state.name}" + (f": {reason}" if reason else "")


@pytest.mark.parametrize(
    ("document", "retry_after"),
    [
        ({"code": -32603, "message": "closed", "data": {"retryAfter": 60}}, 60.0),
        ({"code": "closed"}, None),
        ("closed", None),
        (["closed"], None),
    ],
)
def test_raise_for_outcome_uses_the_error_in_the_metadata_as_cause(document, retry_after):
    message = Message(parts=(Part(text="closed"),), metadata={"error": document})
    ended = Task(id="t-1", status=TaskStatus(state=TaskState.FAILED, message=message))

    with pytest.raises(TaskFailedError, match="ended in FAILED: closed") as caught:
        raise_for_outcome(ended)

    assert getattr(caught.value.__cause__, "retry_after", None) == retry_after


@pytest.mark.parametrize(
    "state",
    [s for s in TaskState if s.name not in {"FAILED", "REJECTED", "CANCELED"}]
    + [TaskState("TASK_STATE_LATER")],
)
def test_raise_for_outcome_accepts_any_other_state(state):
    raise_for_outcome(task(state))


@both_bindings
@pytest.mark.parametrize(
    ("plan", "text", "question"),
    [
        (replies("hi"), "hi", ""),
        (completes("one", "two"), "one\ntwo", ""),
        (completes(data_part({"n": 1})), "", ""),
        (asks("which one?", after=2), "", "which one?"),
    ],
)
async def test_ask_returns_the_answer(binding, plan, text, question):
    agent = FakeAgent(lambda _turn: plan)
    client = connect(agent.url, engine=FakeNetwork(agent), bindings=[binding])

    answer = await client.ask("hello")

    assert (answer.text, answer.question) == (text, question)
    assert (answer.message is None) == (answer.task is not None)
    assert answer.context_id


@both_bindings
async def test_a_question_is_answered_in_the_same_task(binding):
    def agree(turn):
        return asks("which one?") if turn.task is None else completes(turn.message.text)

    agent = FakeAgent(agree)
    client = connect(agent.url, engine=FakeNetwork(agent), bindings=[binding])
    first = await client.ask("a flight")

    second = await client.ask("the cheap one", task_id=first.task_id, context_id=first.context_id)

    assert first.needs_input
    assert second.text == "the cheap one"
    assert second.task_id == first.task_id
    assert list(agent.tasks) == [first.task_id]


@pytest.mark.parametrize(
    ("data", "missing"),
    [
        ({}, "field `task` or `message`"),
        ({"extensions": ["https://x.test"]}, "field `task` or `message`"),
        ({"message": {}}, "fields `messageId` and `parts` at message"),
        ({"task": {}}, "field `id` at task"),
    ],
)
def test_an_object_without_an_answer_names_the_missing_field(data, missing):
    with pytest.raises(ValueError, match=f"missing required {missing}$"):
        Answer.from_dict(data)
