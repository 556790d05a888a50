"""A task from what is delivered of it, in whatever order that comes."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import strategies as st
from tests.kit.messages import fold_of
from tests.kit.strategies import given

from holdfast import Artifact, Limits, Message, Part, Role, Task, TaskState
from holdfast._push.deliveries import Deliveries
from holdfast.errors import LimitExceededError
from holdfast.types import TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent

SUBMITTED, WORKING = TaskState.SUBMITTED, TaskState.WORKING
COMPLETED, FAILED = TaskState.COMPLETED, TaskState.FAILED
INPUT_REQUIRED = TaskState.INPUT_REQUIRED


def at(second):
    return (datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=second)).isoformat()


def status(state, second=None, message=None):
    timestamp = None if second is None else at(second)
    return TaskStatusUpdateEvent(
        task_id="t-1", status=TaskStatus(state=state, timestamp=timestamp, message=message)
    )


def says(text):
    return Message(message_id=text, role=Role.AGENT, parts=(Part(text=text),))


def artifact(*texts, artifact_id="a-1"):
    return Artifact(artifact_id=artifact_id, parts=tuple(Part(text=text) for text in texts))


def chunk(*texts, append=True, **members):
    piece = artifact(*texts, **members)
    return TaskArtifactUpdateEvent(task_id="t-1", artifact=piece, append=append)


def picture(state, second=None, *texts):
    return Task(
        id="t-1",
        status=status(state, second).status,
        artifacts=(artifact(*texts),) if texts else (),
    )


def delivered(*events, **limits):
    deliveries = Deliveries(Limits(**limits))
    for number, event in enumerate(events):
        deliveries.add(event, b"%d" % number)
    return deliveries


def test_events_in_order_are_folded():
    events = (picture(SUBMITTED, 1), status(WORKING, 2), chunk("to the "), chunk("moon"))

    deliveries = delivered(*events, status(COMPLETED, 3))

    assert deliveries.task == fold_of((*events, status(COMPLETED, 3))).task
    assert deliveries.is_terminal


def test_the_same_delivery_counts_once():
    deliveries = Deliveries(Limits())

    assert deliveries.add(chunk("ha"), b"one")
    assert not deliveries.add(chunk("ha"), b"one")
    assert deliveries.add(chunk("ha"), b"another")
    assert deliveries.task.text == "haha"


def test_no_more_is_remembered_than_is_useful():
    deliveries = delivered(status(COMPLETED, 5), *[status(WORKING, 1)] * 1000)

    assert deliveries.size < 40_000


def test_what_could_not_be_taken_may_come_again():
    deliveries = Deliveries(Limits(artifacts=1))
    deliveries.add(chunk("a"), b"1")
    with pytest.raises(LimitExceededError):
        deliveries.add(chunk("b", artifact_id="a-2"), b"2")

    with pytest.raises(LimitExceededError):
        deliveries.add(chunk("b", artifact_id="a-2"), b"2")
    assert deliveries.task.text == "a"


@pytest.mark.parametrize("ended", [COMPLETED, FAILED])
@pytest.mark.parametrize(
    "late",
    [
        status(WORKING, 9),
        status(WORKING),
        status(INPUT_REQUIRED, 9),
        status(COMPLETED, 9, says("again")),
        status(FAILED, 9, says("again")),
        picture(WORKING, 9, "more", "and more"),
        picture(SUBMITTED),
    ],
    ids=str,
)
def test_a_task_that_is_over_stays_as_it_ended(ended, late):
    over = delivered(chunk("moon"), status(ended, 5, says("the end")))
    before = over.task

    assert not over.add(late, b"late")
    assert over.task == before


def test_a_task_that_is_over_does_not_end_otherwise():
    over = delivered(status(COMPLETED, 5))

    assert not over.add(picture(FAILED, 9, "more"), b"late")
    assert over.task.state is COMPLETED


def test_pieces_that_come_behind_the_end_still_count():
    deliveries = delivered(chunk("to the "), status(COMPLETED, 5), chunk("moon"))

    assert deliveries.task.text == "to the moon"


def test_behind_the_picture_of_an_ended_task_pieces_add_nothing():
    deliveries = delivered(picture(COMPLETED, 5, "to the ", "moon"), chunk("moon"))

    assert deliveries.task.text == "to the moon"


def test_the_picture_of_an_ended_task_completes_what_is_known():
    deliveries = delivered(chunk("to the "), status(COMPLETED, 5))

    assert deliveries.add(picture(COMPLETED, 5, "to the ", "moon"), b"whole")
    assert deliveries.task.text == "to the moon"


def test_an_older_status_does_not_count():
    deliveries = delivered(status(INPUT_REQUIRED, 3, says("how far?")), status(WORKING, 2))

    assert deliveries.task.state is INPUT_REQUIRED
    assert deliveries.task.status.message == says("how far?")


def test_without_readable_times_the_last_status_counts():
    unreadable = TaskStatusUpdateEvent(
        task_id="t-1", status=TaskStatus(state=INPUT_REQUIRED, timestamp="soon")
    )

    assert delivered(status(WORKING, 2), unreadable).task.state is INPUT_REQUIRED
    assert delivered(unreadable, status(WORKING, 2)).task.state is WORKING


def test_the_end_counts_whatever_its_clock_says():
    assert delivered(status(WORKING, 5), status(COMPLETED, 2)).task.state is COMPLETED
    assert delivered(picture(WORKING, 5, "a"), picture(FAILED, 2)).task == picture(FAILED, 2)


def test_an_older_picture_takes_nothing_back():
    deliveries = delivered(picture(WORKING, 2), chunk("moon"), status(INPUT_REQUIRED, 3))
    before = deliveries.task

    assert not deliveries.add(picture(WORKING, 2), b"late")
    assert not deliveries.add(picture(SUBMITTED, 1, "x", "y"), b"later")
    assert deliveries.task == before


@pytest.mark.parametrize("second", [2, None])
def test_a_picture_of_the_same_time_may_add_and_takes_nothing_back(second):
    deliveries = delivered(picture(WORKING, second), chunk("to the "), chunk("moon"))

    assert not deliveries.add(picture(WORKING, second, "to the "), b"less")
    assert deliveries.task.text == "to the moon"
    assert deliveries.add(picture(WORKING, second, "to the ", "moon", "!"), b"more")
    assert deliveries.task.text == "to the moon!"


def test_a_newer_picture_is_the_truth():
    deliveries = delivered(picture(WORKING, 2, "draft", "of it"), picture(WORKING, 3, "text"))

    assert deliveries.task == picture(WORKING, 3, "text")


def test_a_picture_that_comes_behind_its_pieces_still_says_how_the_task_stands():
    deliveries = delivered(chunk("moon"), picture(SUBMITTED, 1))

    assert deliveries.task.text == "moon"
    assert deliveries.task.state is SUBMITTED


def test_what_the_agent_says_at_the_end_is_the_truth():
    deliveries = delivered(chunk("mo"), status(FAILED, 5))

    deliveries.confirm(picture(COMPLETED, 6, "moon"))

    assert deliveries.task == picture(COMPLETED, 6, "moon")


EVENTS = st.one_of(
    st.builds(
        status,
        st.sampled_from([SUBMITTED, WORKING, INPUT_REQUIRED, COMPLETED, FAILED]),
        st.none() | st.integers(0, 5),
    ),
    st.builds(chunk, st.sampled_from("ab"), append=st.booleans()),
    st.builds(
        picture,
        st.sampled_from([SUBMITTED, WORKING, INPUT_REQUIRED, COMPLETED, FAILED]),
        st.none() | st.integers(0, 5),
    ),
    st.builds(says, st.sampled_from("xy")),
)


@given(events=st.lists(EVENTS, max_size=30))
def test_whatever_comes_a_task_that_is_over_ends_once(events):
    deliveries = Deliveries(Limits())
    ended = None
    for number, event in enumerate(events):
        deliveries.add(event, b"%d" % number)
        task = deliveries.task
        if ended is not None:
            assert task.state is ended.state
            assert deliveries.is_terminal
        if task is not None and task.state.is_terminal:
            ended = ended or task
        assert deliveries.is_terminal == (task is not None and task.state.is_terminal)


@given(events=st.lists(EVENTS, max_size=30), data=st.data())
def test_repeated_deliveries_change_nothing(events, data):
    once, often = Deliveries(Limits()), Deliveries(Limits())
    for number, event in enumerate(events):
        once.add(event, b"%d" % number)
        often.add(event, b"%d" % number)
        again = data.draw(st.integers(0, number))
        assert not often.add(events[again], b"%d" % again)
    assert often.task == once.task
