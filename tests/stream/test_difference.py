"""The events that lead from the task that a caller has to the task as it is."""

import msgspec
import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given, json_objects, optional, tuples_of

from holdfast._stream.difference import difference
from holdfast._stream.fold import TaskFold
from holdfast.errors import InvalidAgentResponseError
from holdfast.types import (
    Artifact,
    Message,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

WORKING = TaskStatus(state=TaskState.WORKING)
COMPLETED = TaskStatus(state=TaskState.COMPLETED)


def artifact(*contents, artifact_id="a-1", **members):
    parts = tuple(Part(text=text) for text in contents)
    return Artifact(artifact_id=artifact_id, parts=parts, **members)


def task(*artifacts, status=WORKING, **members):
    return Task(id="t-1", context_id="c-1", status=status, artifacts=artifacts, **members)


def whole(artifact):
    return TaskArtifactUpdateEvent(task_id="t-1", context_id="c-1", artifact=artifact)


def last(update):
    return msgspec.structs.replace(update, last_chunk=True)


def appended(artifact):
    return msgspec.structs.replace(whole(artifact), append=True)


def status(status=WORKING, **members):
    return TaskStatusUpdateEvent(task_id="t-1", context_id="c-1", status=status, **members)


def folded(have, events):
    fold = TaskFold(have)
    for event in events:
        fold.add(event)
    return fold.task


A, B = artifact("a"), artifact("b", artifact_id="a-2")


@pytest.mark.parametrize(
    ("have", "truth", "events"),
    [
        (task(A), task(A), []),
        (task(A), task(A, history=(Message(message_id="m-1"),)), []),
        (task(), task(A, B), [whole(A), whole(B)]),
        (task(A), task(A, B), [whole(B)]),
        # More parts, and more text in a part.
        (
            task(A),
            task(artifact("a", "b", "c")),
            [appended(artifact("b")), appended(artifact("c"))],
        ),
        (task(artifact()), task(A), [appended(A)]),
        (task(artifact("Hel")), task(artifact("Hello")), [whole(artifact("Hello"))]),
        (task(artifact("Hel", "lo")), task(artifact("Hello")), [whole(artifact("Hello"))]),
        # What appending cannot do.
        (task(A), task(artifact("b")), [whole(artifact("b"))]),
        (task(artifact("a", "b")), task(A), [whole(A)]),
        (task(A), task(artifact("a", "b", name="x")), [whole(artifact("a", "b", name="x"))]),
        (task(A), task(artifact("a", metadata={})), [whole(artifact("a", metadata={}))]),
        (task(artifact("a", metadata={"n": 1})), task(A), [whole(A)]),
        (task(artifact("a", metadata={})), task(A), [whole(A)]),
        # Metadata that grew.
        (
            task(artifact("a", metadata={"n": 1, "m": 1})),
            task(artifact("a", "b", metadata={"n": 2, "m": 1})),
            [appended(artifact("b", metadata={"n": 2}))],
        ),
        (
            task(A),
            task(artifact("a", metadata={"n": None})),
            [appended(artifact(metadata={"n": None}))],
        ),
        (task(), task(metadata={"n": None}), [status(metadata={"n": None})]),
        (task(metadata={"n": 1}), task(metadata={"n": 1, "m": 2}), [status(metadata={"m": 2})]),
        # The status comes last, and nothing is added to an artifact of a task that is over.
        (task(), task(A, status=COMPLETED), [last(whole(A)), status(COMPLETED)]),
        (
            task(A),
            task(artifact("a", "b"), status=COMPLETED),
            [last(appended(artifact("b"))), status(COMPLETED)],
        ),
        (task(status=COMPLETED), task(), [status(WORKING)]),
    ],
)
def test_the_difference_is_what_changed(have, truth, events):
    assert list(difference(have, truth)) == events


@pytest.mark.parametrize(
    ("have", "truth"),
    [
        (None, task(A)),
        (task(A, B), task(B)),
        (task(A), task()),
        (task(A, B), task(B, A)),
        (task(B), task(A, B)),
        (task(), task(A, A)),
        (task(metadata={"n": 1}), task(metadata={"m": 1})),
    ],
)
def test_where_no_updates_lead_there_it_is_the_task_itself(have, truth):
    assert difference(have, truth) == (truth,)


def test_artifacts_that_share_an_id_are_no_difference_where_they_are_the_same():
    assert difference(task(A, A), task(A, A, status=COMPLETED)) == (status(COMPLETED),)


def test_two_tasks_have_no_difference():
    with pytest.raises(InvalidAgentResponseError, match="of task t-2 in the stream of task t-1"):
        difference(task(), Task(id="t-2"))


def test_an_id_that_the_caller_does_not_know_yet_comes_with_the_difference():
    nameless = Task(id="", artifacts=(A,))
    found = folded(nameless, difference(nameless, task(A, B)))
    assert found == task(A, B)


ids = st.sampled_from("xyz")
artifacts = st.builds(
    Artifact,
    artifact_id=ids,
    name=optional(ids),
    parts=tuples_of(st.builds(Part, text=st.sampled_from("ab")), max_size=2),
    metadata=optional(json_objects),
)
tasks = st.builds(
    Task,
    id=st.just("t-1"),
    status=st.builds(
        TaskStatus,
        state=st.sampled_from(TaskState),
        message=optional(st.builds(Message, message_id=ids)),
    ),
    artifacts=tuples_of(artifacts),
    metadata=optional(json_objects),
)
updates = st.builds(TaskArtifactUpdateEvent, artifact=artifacts, append=st.booleans()) | st.builds(
    TaskStatusUpdateEvent,
    status=st.builds(TaskStatus, state=st.sampled_from(TaskState)),
    metadata=optional(json_objects),
)


def outcome(task):
    return task.artifacts, task.status, task.metadata or {}


@given(have=tasks, truth=tasks, max_examples=300)
def test_folding_the_difference_gives_the_task_as_it_is(have, truth):
    assert outcome(folded(have, difference(have, truth))) == outcome(truth)


@given(have=tasks, missed=st.lists(updates, max_size=5), max_examples=200)
def test_folding_the_difference_makes_up_for_the_events_that_were_missed(have, missed):
    truth = folded(have, missed)
    events = difference(have, truth)
    assert outcome(folded(have, events)) == outcome(truth)
    assert difference(folded(have, events), truth) == ()
