"""Which of two statuses is the newer one."""

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given

from holdfast import TaskState
from holdfast._stream.status_order import is_newer
from holdfast.types import TaskStatus

WORKING, COMPLETED, FAILED = TaskState.WORKING, TaskState.COMPLETED, TaskState.FAILED
EARLY, LATE = "2026-01-01T12:00:00Z", "2026-01-01T12:00:00.001Z"

statuses = st.builds(
    TaskStatus,
    state=st.sampled_from(TaskState),
    timestamp=st.sampled_from([None, "", "yesterday", EARLY, LATE, "2026-01-01T13:00:00+02:00"]),
)


@pytest.mark.parametrize(
    ("status", "known", "newer"),
    [
        ((WORKING, LATE), (WORKING, EARLY), True),
        ((WORKING, EARLY), (TaskState.SUBMITTED, LATE), False),
        ((WORKING, EARLY), (WORKING, EARLY), None),
        ((WORKING, EARLY), (TaskState.INPUT_REQUIRED, EARLY), None),
        ((WORKING, LATE), (WORKING, None), None),
        ((WORKING, "yesterday"), (WORKING, EARLY), None),
        ((WORKING, "2026-01-01T14:00:00+02:00"), (WORKING, EARLY), None),
        ((WORKING, "2026-01-01T12:00:00"), (WORKING, EARLY), None),
        ((WORKING, "0001-01-01T00:00:00+14:00"), (WORKING, EARLY), False),
        ((COMPLETED, EARLY), (WORKING, LATE), True),
        ((WORKING, LATE), (COMPLETED, EARLY), False),
        ((FAILED, LATE), (COMPLETED, EARLY), False),
        ((COMPLETED, EARLY), (FAILED, LATE), False),
        ((COMPLETED, LATE), (COMPLETED, EARLY), None),
    ],
    ids=str,
)
def test_newer_status_is_recognized_where_possible(status, known, newer):
    one, other = (TaskStatus(state=state, timestamp=at) for state, at in (status, known))

    assert is_newer(one, other) is newer


@given(one=statuses, other=statuses)
def test_no_two_are_each_newer_than_the_other(one, other):
    forth, back = is_newer(one, other), is_newer(other, one)

    assert not (forth and back)
    assert (forth is None) == (back is None)


@given(statuses=st.lists(statuses, max_size=6))
def test_whatever_comes_behind_its_end_a_task_has_one_end(statuses):
    known, ends = TaskStatus(), []
    for status in statuses:
        if is_newer(status, known) is not False:
            ends += [status.state] if status.state.is_terminal else []
            known = status

    assert len(set(ends)) <= 1
    assert not ends or known.state.is_terminal
