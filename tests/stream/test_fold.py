"""A task from the events of its stream, beside a plain model of what servers do."""

import msgspec
import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given, json_objects, optional, tuples_of

from holdfast import Limits
from holdfast._model import codec
from holdfast._stream.fold import TaskFold, fold
from holdfast.errors import InvalidAgentResponseError, LimitExceededError
from holdfast.types import (
    Artifact,
    Message,
    Part,
    Role,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

WORKING, COMPLETED = TaskState.WORKING, TaskState.COMPLETED


def texts(*contents):
    return tuple(Part(text=text) for text in contents)


def says(text, message_id=""):
    return Message(message_id=message_id, role=Role.AGENT, parts=texts(text))


def status(state, message=None, **members):
    return TaskStatusUpdateEvent(
        task_id="t-1",
        context_id="c-1",
        status=TaskStatus(state=state, message=message),
        **members,
    )


def chunk(*contents, append=True, artifact_id="a-1", last_chunk=False, **members):
    artifact = Artifact(artifact_id=artifact_id, parts=texts(*contents), **members)
    return TaskArtifactUpdateEvent(
        task_id="t-1", context_id="c-1", artifact=artifact, append=append, last_chunk=last_chunk
    )


def whole(*contents, **members):
    return chunk(*contents, append=False, **members)


def folded(*events, task=None, **limits):
    fold = TaskFold(task, limits=Limits(**limits))
    for event in events:
        fold.add(event)
    return fold.task


NEW = Task(id="t-1", context_id="c-1", status=TaskStatus(state=TaskState.SUBMITTED))
FULL = Task(
    id="t-1",
    context_id="c-1",
    status=TaskStatus(state=COMPLETED),
    artifacts=(Artifact(artifact_id="a-1", name="answer", parts=texts("Hello, world!")),),
    history=(says("ask me", "m-1"),),
    metadata={"model": "x"},
)


# ── By the names of the scenarios ────────────────────────────────────────────────────────────


@pytest.mark.rule("S12")
def test_s12_a_full_final_task_after_statuses_is_accepted():
    assert folded(NEW, status(WORKING, says("thinking", "m-2")), FULL) == FULL


@pytest.mark.rule("S13")
@pytest.mark.parametrize("message", [b"null", b"{}", b'{"messageId":"m","parts":null}'])
def test_s13_a_status_message_may_be_null_or_without_parts(message):
    said = b'{"task":{"id":"t-1","status":{"state":"TASK_STATE_WORKING","message":%s}}}' % message
    task = folded(codec.decode(said, StreamResponse).event, whole("done"), status(COMPLETED))
    assert (task.state, task.text) == (COMPLETED, "done")


@pytest.mark.rule("S14")
def test_s14_chunks_are_the_text_once_and_then_replaced():
    chunks = [whole("Hello, "), chunk("world!")]
    assert folded(NEW, *chunks).text == "Hello, world!"
    assert folded(NEW, *chunks, whole("Hello, world!")).text == "Hello, world!"
    assert folded(NEW, *chunks, whole("Goodbye!")).text == "Goodbye!"


# ── Tasks ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("before", [(), (NEW,), (NEW, whole("other"), status(WORKING, says("x")))])
def test_a_task_replaces_whatever_was_folded_before(before):
    assert folded(*before, FULL) == FULL


def test_without_an_event_there_is_no_task():
    assert TaskFold().task is None


@pytest.mark.parametrize(
    ("event", "task"),
    [
        (
            status(WORKING),
            Task(id="t-1", context_id="c-1", status=TaskStatus(state=WORKING)),
        ),
        (
            whole("hi"),
            Task(
                id="t-1",
                context_id="c-1",
                artifacts=(Artifact(artifact_id="a-1", parts=texts("hi")),),
            ),
        ),
    ],
)
def test_a_stream_may_begin_with_an_update(event, task):
    assert folded(event) == task


def test_a_message_before_any_task_belongs_to_none():
    assert folded(says("hi", "m-1")) is None
    assert folded(says("hi", "m-1"), NEW) == NEW


@pytest.mark.parametrize(
    "telling", [status(WORKING), whole("hi"), Message(task_id="t-1", context_id="c-1")]
)
def test_ids_that_early_events_leave_out_are_learned_from_later_ones(telling):
    nameless = TaskStatusUpdateEvent(status=TaskStatus(state=WORKING))
    task = folded(nameless, telling, nameless)
    assert (task.id, task.context_id, task.state) == ("t-1", "c-1", WORKING)


def test_the_context_stays_the_first_one_that_was_named():
    elsewhere = msgspec.structs.replace(status(WORKING), context_id="c-2")
    assert folded(NEW, elsewhere).context_id == "c-1"


@pytest.mark.parametrize(
    "event",
    [
        Task(id="t-2"),
        TaskStatusUpdateEvent(task_id="t-2"),
        TaskArtifactUpdateEvent(task_id="t-2"),
        Message(task_id="t-2"),
    ],
    ids=lambda event: type(event).__name__,
)
@pytest.mark.parametrize("before", [(NEW,), (status(WORKING),), (NEW, status(WORKING))])
def test_an_event_of_another_task_is_refused_and_both_are_named(before, event):
    fold = TaskFold()
    for earlier in before:
        fold.add(earlier)
    task = fold.task
    with pytest.raises(
        InvalidAgentResponseError, match="of task t-2 in the stream of task t-1"
    ) as caught:
        fold.add(event)
    assert caught.value.executed is True
    assert fold.task is task


# ── Statuses and messages ────────────────────────────────────────────────────────────────────


def test_the_message_of_a_status_moves_to_the_history_with_the_next_status():
    task = folded(NEW, status(WORKING, says("one", "m-1")), status(WORKING, says("two", "m-2")))
    assert task.history == (says("one", "m-1"),)
    assert task.status.message == says("two", "m-2")
    assert folded(status(COMPLETED), task=task).history == (says("one", "m-1"), says("two", "m-2"))


def test_a_message_without_parts_or_id_moves_too_but_not_twice_in_a_row():
    empty = status(WORKING, Message())
    assert folded(NEW, empty, empty, status(WORKING), empty, status(COMPLETED)).history == (
        Message(),
    )
    assert folded(
        NEW, status(WORKING, says("a")), status(WORKING, says("b")), status(WORKING)
    ).history == (says("a"), says("b"))


@pytest.mark.parametrize("message", [says("one", "m-1"), says("one")])
def test_the_same_status_again_changes_nothing(message):
    once = folded(NEW, status(WORKING, message, metadata={"step": 1}))
    assert folded(status(WORKING, message, metadata={"step": 1}), task=once) == once


def test_a_message_is_in_the_history_once_as_last_received():
    growing = [status(WORKING, says(text, "m-1")) for text in ("He", "Hello")]
    task = folded(NEW, *growing, status(COMPLETED))
    assert task.history == (says("Hello", "m-1"),)
    # Some servers put the message of a status into the history at once.
    told = msgspec.structs.replace(growing[0].status, message=says("told", "m-1"))
    task = Task(id="t-1", status=told, history=(says("told", "m-1"),))
    assert folded(status(COMPLETED), task=task).history == (says("told", "m-1"),)


def test_a_message_that_follows_a_task_is_in_its_history_once():
    said = says("by the way", "m-1")
    assert folded(NEW, said, said).history == (said,)
    assert folded(NEW, said, status(WORKING, said), status(COMPLETED)).history == (said,)
    assert folded(NEW, said, says("else", "m-2"), said).history == (said, says("else", "m-2"))


def test_what_a_task_repeats_in_its_history_stays():
    task = Task(id="t-1", history=(says("a", "m-1"), says("b", "m-2"), says("a", "m-1")))
    assert folded(says("c", "m-1"), task=task).history == (*task.history[:2], says("c", "m-1"))


def test_metadata_of_a_status_is_merged_member_by_member():
    first = status(WORKING, metadata={"model": {"name": "x"}, "step": 1})
    assert folded(NEW, first, status(WORKING)).metadata == first.metadata
    assert folded(NEW, first, status(WORKING, metadata={"step": 2, "of": 3})).metadata == {
        "model": {"name": "x"},
        "step": 2,
        "of": 3,
    }
    assert folded(NEW, status(WORKING, metadata={})) == folded(NEW, status(WORKING))


# ── Artifacts ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("events", "artifacts"),
    [
        ([whole("a")], {"a-1": ["a"]}),
        ([whole("a"), whole("b")], {"a-1": ["b"]}),
        ([whole("a"), whole("b", artifact_id="a-2")], {"a-1": ["a"], "a-2": ["b"]}),
        ([whole("a"), whole("b", artifact_id="a-2"), whole("c")], {"a-1": ["c"], "a-2": ["b"]}),
        ([whole("a"), chunk("b"), chunk("c", "d")], {"a-1": ["a", "b", "c", "d"]}),
        ([whole("ha"), chunk("ha"), chunk("ha")], {"a-1": ["ha", "ha", "ha"]}),
        ([chunk("a"), chunk("b")], {"a-1": ["a", "b"]}),  # nothing there to append to
        ([whole("a"), chunk("b", artifact_id="a-2")], {"a-1": ["a"], "a-2": ["b"]}),
        ([whole("a"), chunk()], {"a-1": ["a"]}),
        ([whole(), chunk("a")], {"a-1": ["a"]}),
        ([whole("a", artifact_id=""), chunk("b", artifact_id="")], {"": ["a", "b"]}),
        ([whole("a"), chunk("b", last_chunk=True), chunk("c")], {"a-1": ["a", "b", "c"]}),
        ([whole("a"), chunk("b"), whole("c"), chunk("d")], {"a-1": ["c", "d"]}),
        ([status(COMPLETED), whole("late")], {"a-1": ["late"]}),
        ([whole("a"), NEW, chunk("b")], {"a-1": ["b"]}),
    ],
)
def test_artifacts_are_replaced_and_appended_to(events, artifacts):
    found = {a.artifact_id: [p.text for p in a.parts] for a in folded(NEW, *events).artifacts}
    assert found == artifacts
    assert list(found) == list(artifacts)


def test_an_appended_chunk_merges_metadata_and_leaves_the_rest_to_the_first():
    first = whole("a", name="first", metadata={"n": 1, "kept": True}, extensions=("urn:1",))
    more = chunk("b", name="second", description="x", metadata={"n": 2}, extensions=("urn:2",))
    (artifact,) = folded(first, more).artifacts
    assert artifact == Artifact(
        artifact_id="a-1",
        name="first",
        parts=texts("a", "b"),
        metadata={"n": 2, "kept": True},
        extensions=("urn:1",),
    )


def test_of_artifacts_with_one_id_the_first_is_meant():
    twins = tuple(Artifact(artifact_id="a-1", parts=texts(text)) for text in "ab")
    task = folded(chunk("c"), task=Task(id="t-1", artifacts=twins))
    assert [artifact.text for artifact in task.artifacts] == ["ac", "b"]


def test_the_same_whole_artifact_again_changes_nothing():
    event = whole("a", "b", name="answer", metadata={"n": 1})
    assert folded(NEW, event, event) == folded(NEW, event)


# ── What goes in and what comes out ──────────────────────────────────────────────────────────


def test_the_task_is_the_same_object_until_something_is_added():
    fold = TaskFold(NEW)
    assert fold.task is NEW
    fold.add(whole("a"))
    before = fold.task
    assert fold.task is before
    fold.add(chunk("b"))
    assert fold.task is not before
    assert (before.text, fold.task.text) == ("a", "ab")


def test_an_artifact_that_did_not_change_is_not_made_anew():
    fold = TaskFold(NEW)
    fold.add(whole("a"))
    fold.add(chunk("b"))
    before = fold.task.artifacts[0]
    fold.add(status(COMPLETED))
    assert fold.task.artifacts[0] is before


# ── Bounds ───────────────────────────────────────────────────────────────────────────────────


def refused(fold, events):
    """The error of the first event that is too much; the task must be as it was before."""
    for event in events:
        before = fold.task
        try:
            fold.add(event)
        except LimitExceededError as error:
            assert fold.task == before
            return error
    pytest.fail("everything was folded")


def many(make):
    return [make(number) for number in range(5)]


@pytest.mark.rule("P25")
@pytest.mark.parametrize(
    ("which", "events"),
    [
        ("parts", many(lambda n: chunk(str(n)))),
        ("parts", [whole("a", "b", "c", "d")]),
        ("parts", [chunk("a", "b", "c", "d")]),
        ("parts", [whole("a"), whole("a", "b", "c", "d")]),
        ("parts", [status(WORKING, Message(parts=texts("a", "b", "c", "d")))]),
        ("parts", [Message(parts=texts("a", "b", "c", "d"))]),
        ("artifacts", many(lambda n: whole("a", artifact_id=str(n)))),
        ("artifacts", many(lambda n: chunk("a", artifact_id=str(n)))),
        ("artifacts", [Task(id="t-1", artifacts=tuple(many(lambda n: Artifact())))]),
        ("history", many(lambda n: says("a", f"m-{n}"))),
        ("history", many(lambda n: status(WORKING, says(f"{n}")))),
        ("history", [Task(id="t-1", history=tuple(many(lambda n: Message())))]),
    ],
)
def test_what_is_counted_is_bounded_and_the_task_stays_as_it_was(which, events):
    fold = TaskFold(NEW, limits=Limits(**{which: 3}))
    error = refused(fold, events)
    assert (error.which, error.bound, error.executed) == (which, 3, True)


@pytest.mark.parametrize(
    ("which", "event", "counted"),
    [
        ("parts", lambda n: chunk(str(n)), lambda task: task.artifacts[0].parts),
        ("parts", lambda n: chunk(*"ab"[: n + 1]), lambda task: task.artifacts[0].parts),
        ("artifacts", lambda n: whole("a", artifact_id=str(n)), lambda task: task.artifacts),
        ("history", lambda n: says("a", f"m-{n}"), lambda task: task.history),
    ],
)
def test_a_bound_may_be_reached(which, event, counted):
    fold = TaskFold(NEW, limits=Limits(**{which: 3}))
    refused(fold, map(event, range(5)))
    assert len(counted(fold.task)) == 3


LONG = "x" * 100


@pytest.mark.rule("P25")
@pytest.mark.parametrize(
    "event",
    [
        lambda n: chunk(LONG),
        lambda n: chunk(metadata={str(n): LONG}),
        lambda n: whole(LONG, artifact_id=str(n)),
        lambda n: whole(*[LONG] * n),
        lambda n: says(LONG, f"m-{n}"),
        lambda n: says(LONG * n, "m-1"),
        lambda n: status(WORKING, says(LONG, f"m-{n}")),
        lambda n: status(WORKING, metadata={str(n): LONG}),
        lambda n: status(WORKING, metadata={"same": LONG * n}),
        lambda n: status(WORKING, says(str(n)), metadata={str(n): LONG}),
        lambda n: chunk("\ud800" * 30),
    ],
)
def test_what_a_task_adds_up_to_is_bounded_in_bytes(event):
    fold = TaskFold(NEW, limits=Limits(body=10_000))
    error = refused(fold, map(event, range(200)))
    assert (error.which, error.bound, error.executed) == ("body", 10_000, True)
    assert "larger than 10000 bytes" in str(error)
    assert 8_000 < len(codec.encode(fold.task)) < 11_000


def test_what_a_task_begins_with_counts():
    full = Task(id="t-1", artifacts=(Artifact(artifact_id="a-1", parts=texts(LONG * 9)),))
    assert refused(TaskFold(full, limits=Limits(body=1_000)), [chunk(LONG)]).which == "body"


@pytest.mark.parametrize(
    "event",
    [
        lambda n: whole(LONG),
        lambda n: whole(LONG) if n % 2 else chunk(LONG),
        lambda n: says(LONG, "m-1"),
        lambda n: status(WORKING, says(LONG, "m-1"), metadata={"step": n}),
        lambda n: chunk(metadata={"step": n}),
    ],
)
def test_artifact_that_is_only_replaced_may_grow_forever(event):
    fold = TaskFold(NEW, limits=Limits(body=1_000, parts=2, history=1))
    for number in range(1_000):
        fold.add(event(number))


def test_plain_text_is_counted_to_the_byte_before_it_is_refused():
    fold = TaskFold(NEW, limits=Limits(body=1_200))
    for _ in range(3):
        fold.add(chunk("x" * 300))
    assert refused(fold, [chunk("x" * 300)]).which == "body"
    fold.add(chunk("x" * 20))
    fold.add(whole("y" * 1_000))
    assert fold.task.text == "y" * 1_000


def test_a_task_beyond_the_bound_may_still_shrink():
    fold = TaskFold(NEW, limits=Limits(body=1_000))
    fold.add(Task(id="t-1", artifacts=(Artifact(artifact_id="a-1", parts=texts(LONG * 20)),)))
    fold.add(whole(LONG * 15))
    assert fold.task.text == LONG * 15


# ── Whatever comes ───────────────────────────────────────────────────────────────────────────

ids = st.sampled_from(["", "x", "y"])
short_parts = tuples_of(st.builds(Part, text=st.sampled_from("ab")), max_size=2)
few_messages = st.builds(Message, message_id=ids, parts=short_parts)
few_statuses = st.builds(
    TaskStatus, state=st.sampled_from(TaskState), message=optional(few_messages)
)
few_artifacts = st.builds(
    Artifact,
    artifact_id=ids,
    name=optional(ids),
    parts=short_parts,
    metadata=optional(json_objects),
)
few_tasks = st.builds(
    Task,
    id=st.just("t-1"),
    status=few_statuses,
    artifacts=tuples_of(few_artifacts),
    history=tuples_of(few_messages),
    metadata=optional(json_objects),
)
few_events = (
    st.builds(TaskStatusUpdateEvent, status=few_statuses, metadata=optional(json_objects))
    | st.builds(TaskArtifactUpdateEvent, artifact=few_artifacts, append=st.booleans())
    | few_messages
)
streams = st.lists(few_events | few_tasks, max_size=12)


def merged(metadata, more):
    return {**(metadata or {}), **more} if more else metadata


def recorded(history, message):
    if not message.message_id:
        nameless = [known for known in history if not known.message_id]
        return history if nameless[-1:] == [message] else (*history, message)
    places = [n for n, known in enumerate(history) if known.message_id == message.message_id]
    if not places:
        return (*history, message)
    return (*history[: places[-1]], message, *history[places[-1] + 1 :])


def with_artifact(artifacts, new, append):
    for place, old in enumerate(artifacts):
        if old.artifact_id == new.artifact_id:
            if append:
                parts = old.parts + new.parts
                metadata = merged(old.metadata, new.metadata)
                new = msgspec.structs.replace(old, parts=parts, metadata=metadata)
            return (*artifacts[:place], new, *artifacts[place + 1 :])
    return (*artifacts, new)


def plainly(task, event):
    """The same rules once more, in so many words, on copies."""
    change = msgspec.structs.replace
    match event:
        case Task():
            return event
        case Message():
            return change(task, history=recorded(task.history, event))
        case TaskArtifactUpdateEvent():
            artifacts = with_artifact(task.artifacts, event.artifact, event.append)
            return change(task, artifacts=artifacts)
        case TaskStatusUpdateEvent():
            said, now = task.status.message, event.status.message
            kept = (
                said is None
                or said == now
                or (now is not None and said.message_id == now.message_id != "")
            )
            history = task.history if kept else recorded(task.history, said)
            metadata = merged(task.metadata, event.metadata)
            return change(task, status=event.status, history=history, metadata=metadata)


@given(task=few_tasks, stream=streams, max_examples=300)
def test_a_fold_is_what_the_rules_say_however_often_it_is_asked(task, stream):
    lazy, asked, expected = TaskFold(task), TaskFold(task), task
    for event in stream:
        expected = plainly(expected, event)
        lazy.add(event)
        asked.add(event)
        assert asked.task == expected
    assert lazy.task == expected


@given(task=few_tasks, stream=streams)
def test_folding_one_by_one_is_folding_them_all(task, stream):
    expected = folded(*stream, task=task)
    for event in stream:
        task = fold(task, event)
    assert task == expected


@given(task=few_tasks, stream=streams)
def test_neither_what_goes_in_nor_what_came_out_is_changed(task, stream):
    seen = [task, *stream]
    as_they_were = [codec.encode(value) for value in seen]
    fold = TaskFold(task)
    for event in stream:
        fold.add(event)
        seen.append(fold.task)
        as_they_were.append(codec.encode(fold.task))
    assert [codec.encode(value) for value in seen] == as_they_were


@given(task=few_tasks, stream=streams, event=few_events)
def test_repeats_change_nothing_but_for_what_is_appended(task, stream, event):
    if not (isinstance(event, TaskArtifactUpdateEvent) and event.append):
        assert folded(*stream, event, event, task=task) == folded(*stream, event, task=task)


def test_returned_dictionary_is_a_copy():
    metadata = {"n": 1}
    fold = TaskFold(NEW)
    fold.add(status(WORKING, metadata=metadata))
    fold.add(whole("a", metadata=metadata))
    fold.add(chunk(metadata={"m": 2}))
    fold.task.metadata.clear()
    fold.task.artifacts[0].metadata.clear()
    fold.add(chunk(metadata={"k": 3}))
    assert metadata == {"n": 1}
    assert fold.task.metadata == {"n": 1}
    assert fold.task.artifacts[0].metadata == {"n": 1, "m": 2, "k": 3}
