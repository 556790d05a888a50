"""The search for a message: for any replies, only its own task is found."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.effort import rounds

from holdfast import (
    A2AError,
    A2AHTTPError,
    AuthenticationError,
    DeadlineExceededError,
    Message,
    Part,
    RateLimitedError,
    Role,
    Task,
    TaskNotFoundError,
    TaskState,
)
from holdfast._client.reconcile_search import (
    Absent,
    Duplicate,
    Fetch,
    Found,
    GetTask,
    Inconclusive,
    ListPage,
    Reconciliation,
    RetryLater,
    SearchReport,
)
from holdfast._client.resend import found_task
from holdfast.errors import (
    DuplicateTasksError,
    InvalidParamsError,
    LimitExceededError,
    MethodNotFoundError,
    OutcomeUnknownError,
    PermissionDeniedError,
    UnsupportedOperationError,
)
from holdfast.types import ListTasksResponse, TaskStatus

SENT = 1_700_000_000.0
ID = "m-1"
LATE = DeadlineExceededError("too late", deadline="reconcile", timeout=1.0)


def message(**more):
    return Message(message_id=ID, role=Role.USER, parts=(Part(text="hi"),), **more)


def task(task_id="t", *message_ids, **more):
    history = tuple(
        Message(message_id=message_id, role=Role.USER, parts=()) for message_id in message_ids
    )
    return Task(id=task_id, history=history, **more)


def page(*tasks, token=""):
    return ListTasksResponse(tasks=tasks, next_page_token=token)


def at_second(seconds):
    return datetime.fromtimestamp(seconds, UTC)


def test_without_task_or_context_it_lists_tasks_changed_since_the_send():
    search = Reconciliation(message(), sent_at=SENT)

    assert search.step == ListPage(since=at_second(SENT - 60))


def test_a_known_clock_skew_is_applied():
    search = Reconciliation(message(), sent_at=SENT, clock_skew=-3600.0)

    assert search.step == ListPage(since=at_second(SENT - 3605))


def test_a_clock_found_to_be_behind_is_corrected_at_once():
    search = Reconciliation(message(), sent_at=SENT)

    search.listed(page(), wall=SENT + 10, agent_time=SENT - 3590)

    assert search.step == ListPage(since=at_second(SENT - 3605))
    assert search.clock_skew == -3600
    search.listed(page(), wall=SENT + 10, agent_time=SENT - 3590)
    assert search.step == RetryLater(1)


def test_a_clock_that_runs_backwards_does_not_cause_endless_requests():
    search = Reconciliation(message(), sent_at=SENT, max_pages=5)

    for number in range(5):
        assert isinstance(search.step, ListPage)
        search.listed(page(), wall=SENT, agent_time=SENT - 1000 * (number + 1))

    assert search.step == RetryLater(1)


def test_a_list_restarted_from_an_earlier_time_is_read_to_its_end():
    """Dates have whole seconds, so the measured clock skew varies by one second."""
    search = Reconciliation(message(), sent_at=SENT, clock_skew=-0.5)

    search.listed(page(token="2"), wall=SENT + 10.5, agent_time=SENT + 10)
    search.listed(page(token="3"), wall=SENT + 12, agent_time=SENT + 10)
    assert search.step == ListPage(since=at_second(SENT - 7))
    search.listed(page(token="2"), wall=SENT + 12, agent_time=SENT + 10)
    assert search.step == ListPage(since=at_second(SENT - 7), page_token="2")
    search.listed(page(), wall=SENT + 12, agent_time=SENT + 10)
    search.finish(LATE)

    assert search.step == Absent()


def test_a_task_of_the_context_is_fetched_completely():
    search = Reconciliation(message(context_id="c"), sent_at=SENT)
    assert search.step == ListPage(context_id="c")

    search.listed(page(task("a", "m-0"), task("b", "m-0", ID)), wall=SENT, agent_time=None)
    assert search.step == Fetch("b")
    complete = task("b", "m-0", ID, status=TaskStatus(state=TaskState.COMPLETED))
    search.fetched(complete)

    assert search.step == Found(complete)


def test_a_listed_task_is_used_if_it_cannot_be_fetched():
    search = Reconciliation(message(context_id="c"), sent_at=SENT)
    listed = task("b", ID)
    search.listed(page(listed), wall=SENT, agent_time=None)

    search.not_fetched(TaskNotFoundError("gone"))

    assert search.step == Found(listed)


def test_a_fetched_task_with_another_id_is_not_used():
    search = Reconciliation(message(context_id="c"), sent_at=SENT)
    listed = task("b", ID)
    search.listed(page(listed), wall=SENT, agent_time=None)

    search.fetched(task("z"))

    assert search.step == Found(listed)


def test_a_task_that_cannot_be_fetched_now_is_searched_for_again():
    search = Reconciliation(message(context_id="c"), sent_at=SENT)
    search.listed(page(task("b", ID)), wall=SENT, agent_time=None)

    search.not_fetched(A2AHTTPError("busy", http_status=503, transient=True))

    assert search.step == RetryLater(1)


def test_the_messages_task_is_requested_before_its_context():
    search = Reconciliation(message(task_id="t", context_id="c"), sent_at=SENT)
    assert search.step == GetTask("t")

    search.got(task("t", "m-0"))

    assert search.step == ListPage(context_id="c")
    search.listed(page(), wall=SENT, agent_time=None)
    assert search.searched == ("task t", "the tasks of context c")


def test_the_message_may_be_in_the_status():
    search = Reconciliation(message(task_id="t"), sent_at=SENT)
    submitted = task("t", status=TaskStatus(message=message()))

    search.got(submitted)

    assert search.step == Found(submitted)


def test_in_an_own_context_any_task_matches():
    search = Reconciliation(message(context_id="c"), sent_at=SENT, is_own_context=True)

    search.listed(page(task("t", context_id="c")), wall=SENT, agent_time=None)
    search.listed(page(task("u", context_id="d")), wall=SENT, agent_time=None)

    assert search.step == Fetch("t")


def test_in_the_list_of_a_context_only_its_tasks_match():
    search = Reconciliation(message(context_id="c"), sent_at=SENT)

    search.listed(page(task("a", ID, context_id="d"), task("b", ID)), wall=SENT, agent_time=None)

    assert search.step == Fetch("b")


def test_a_page_that_disappeared_is_requested_in_the_next_round():
    search = Reconciliation(message(context_id="c"), sent_at=SENT)
    search.listed(page(token="2"), wall=SENT, agent_time=None)

    search.failed(InvalidParamsError("the page token is none of this agent's"))

    assert search.step == RetryLater(1)
    search.waited()
    assert search.step == ListPage(context_id="c")


def test_pages_become_smaller_while_they_are_too_large():
    search = Reconciliation(message(context_id="c"), sent_at=SENT)
    large = LimitExceededError("too large", which="body", bound=1)

    for size in [100, 10, 1]:
        assert search.step == ListPage(context_id="c", size=size)
        search.failed(large)

    assert search.step == Inconclusive(large)


def test_a_clock_that_is_ahead_does_not_narrow_the_list():
    search = Reconciliation(message(), sent_at=SENT, clock_skew=8 * 3600.0)

    assert search.step == ListPage(since=at_second(SENT - 5))


def test_a_task_that_moves_between_pages_is_one_task():
    search = Reconciliation(message(context_id="c"), sent_at=SENT)

    search.listed(page(task("a", ID), token="2"), wall=SENT, agent_time=None)
    search.listed(page(task("a", ID)), wall=SENT, agent_time=None)

    assert search.step == Fetch("a")


def test_a_task_that_moves_past_the_reader_is_found_in_the_next_round():
    search = Reconciliation(message(context_id="c"), sent_at=SENT)

    search.listed(page(task("b"), token="2"), wall=SENT, agent_time=None)
    search.listed(page(task("b")), wall=SENT, agent_time=None)
    assert search.step == RetryLater(1)
    search.waited()
    search.listed(page(task("a", ID), token="2"), wall=SENT, agent_time=None)
    search.listed(page(), wall=SENT, agent_time=None)

    assert search.step == Fetch("a")


@pytest.mark.parametrize("token", [lambda number: "same", str], ids=["same", "new"])
def test_endless_pages_are_read_up_to_the_limit_and_do_not_prove_absence(token):
    search = Reconciliation(message(context_id="c"), sent_at=SENT, max_pages=7)

    request_count = 0
    while isinstance(search.step, ListPage):
        request_count += 1
        search.listed(page(token=token(request_count)), wall=SENT, agent_time=None)
    search.finish(LATE)

    assert request_count <= 7
    assert search.step == Inconclusive()
    assert search.searched == ("the tasks of context c, not all of them",)


def test_absent_is_decided_by_the_last_round():
    search = Reconciliation(message(), sent_at=SENT)
    search.listed(page(), wall=SENT, agent_time=None)
    search.waited()
    search.listed(page(), wall=SENT, agent_time=None)
    search.waited()
    busy = A2AHTTPError("busy", http_status=503, transient=True)

    search.failed(busy)
    search.finish(LATE)

    assert search.step == Inconclusive(busy)


def test_a_round_cut_by_the_deadline_keeps_earlier_results():
    search = Reconciliation(message(), sent_at=SENT)
    search.listed(page(), wall=SENT, agent_time=None)
    search.waited()

    search.failed(LATE)
    search.finish(LATE)

    assert search.step == Absent()


def test_a_task_seen_once_is_not_absent():
    search = Reconciliation(message(context_id="c"), sent_at=SENT)
    search.listed(page(task("b", ID)), wall=SENT, agent_time=None)
    search.not_fetched(A2AHTTPError("busy", http_status=503, transient=True))
    search.waited()
    search.listed(page(), wall=SENT, agent_time=None)

    search.finish(LATE)
    assert search.step == Fetch("b")
    search.not_fetched(LATE)

    assert search.step == Inconclusive(LATE)
    assert search.seen == task("b", ID)


def test_a_seen_task_is_fetched_though_not_all_pages_were_read():
    search = Reconciliation(message(context_id="c"), sent_at=SENT)
    search.listed(page(task("b", ID), token="2"), wall=SENT, agent_time=None)

    search.finish(LATE)
    assert search.step == Fetch("b")
    search.fetched(task("b", ID, "m-2"))

    assert search.step == Found(task("b", ID, "m-2"))


def test_two_seen_tasks_are_duplicates_at_the_deadline():
    search = Reconciliation(message(context_id="c"), sent_at=SENT)
    search.listed(page(task("a", ID), task("b", ID), token="2"), wall=SENT, agent_time=None)

    search.finish(LATE)

    assert search.step == Duplicate((task("a", ID), task("b", ID)))


def test_two_tasks_on_any_pages_are_duplicates():
    search = Reconciliation(message(context_id="c"), sent_at=SENT)
    first, second = task("a", ID), task("b", ID)

    search.listed(page(first, token="2"), wall=SENT, agent_time=None)
    assert search.step == ListPage(context_id="c", page_token="2")
    search.listed(page(second), wall=SENT, agent_time=None)

    assert search.step == Duplicate((first, second))


@pytest.mark.parametrize("error", [InvalidParamsError("no"), UnsupportedOperationError("no")])
def test_an_agent_that_cannot_list_by_time_is_asked_for_all_tasks(error):
    search = Reconciliation(message(), sent_at=SENT)

    search.failed(error)
    assert search.step == ListPage()
    search.listed(page(), wall=SENT, agent_time=SENT - 9999)
    assert search.step == RetryLater(1)
    search.waited()

    assert search.step == ListPage()


@pytest.mark.parametrize("error", [MethodNotFoundError("no"), A2AHTTPError("no", http_status=404)])
def test_without_a_list_the_search_ends_at_once(error):
    search = Reconciliation(message(context_id="c"), sent_at=SENT)

    search.failed(error)

    assert search.step == Inconclusive()
    assert search.searched == ("the tasks of context c (the agent has no list of tasks)",)


def test_an_agent_known_to_have_no_list_is_not_asked_for_one():
    search = Reconciliation(message(task_id="t", context_id="c"), sent_at=SENT, has_list=False)
    assert search.step == GetTask("t")

    search.failed(TaskNotFoundError("gone"))
    assert search.step == RetryLater(1)
    search.finish(LATE)

    assert search.step == Absent()
    assert search.searched == (
        "task t",
        "the tasks of context c (the agent has no list of tasks)",
    )


def test_a_request_that_timed_out_is_reported():
    search = Reconciliation(message(), sent_at=SENT)

    search.failed(LATE)
    search.finish(LATE)

    assert search.step == Inconclusive(LATE)
    assert search.searched == ("the tasks that changed since the message was sent (too late)",)


@pytest.mark.parametrize(
    ("kind", "is_asked_again"),
    [
        (A2AHTTPError, True),
        (RateLimitedError, True),
        (AuthenticationError, False),
        (PermissionDeniedError, False),
    ],
)
def test_a_permanent_refusal_ends_the_search(kind, is_asked_again):
    search = Reconciliation(message(), sent_at=SENT)
    error = kind("no")

    search.failed(error)

    assert search.step == (RetryLater(1) if is_asked_again else Inconclusive(error))


# ── Any agent ────────────────────────────────────────────────────────────────────────────────

HISTORIES = st.lists(st.sampled_from([ID, "m-0", "m-2"]), max_size=3)
number = st.integers(0, 20).map(str)
context = st.sampled_from(["c", "d"])
stores = st.lists(
    st.builds(lambda i, s, c: task(i, *s, context_id=c), number, HISTORIES, context),
    max_size=8,
    unique_by=lambda item: item.id,
)
failures = st.lists(
    st.sampled_from(
        [
            *[None] * 4,
            TaskNotFoundError("gone"),
            MethodNotFoundError("no"),
            UnsupportedOperationError("no"),
            A2AHTTPError("busy", http_status=503, transient=True),
            A2AHTTPError("forbidden", http_status=403),
        ]
    ),
    max_size=30,
)


class AnyAgent:
    """An agent with any store, which fails in any way at any time."""

    def __init__(self, store, failures, page_size):
        self.store = store
        self.failures = iter(failures)
        self.page_size = page_size

    def answer(self, search):
        """Answer the request of the search; return False if there is none."""
        step = search.step
        if not isinstance(step, GetTask | ListPage | Fetch):
            return False
        on_success, failed = search.got, search.failed
        if isinstance(step, Fetch):
            on_success, failed = search.fetched, search.not_fetched
        if (error := next(self.failures, None)) is not None:
            failed(error)
        elif isinstance(step, ListPage):
            search.listed(self.page(step), wall=SENT, agent_time=None)
        elif matches := [item for item in self.store if item.id == step.task_id]:
            on_success(matches[0])
        else:
            failed(TaskNotFoundError("gone"))
        return True

    def page(self, step):
        fits = [item for item in self.store if step.context_id in {None, item.context_id}]
        start = int(step.page_token or 0)
        end = start + self.page_size
        return page(*fits[start:end], token=str(end) if end < len(fits) else "")


agents = st.builds(AnyAgent, stores, failures, st.integers(1, 4))


def is_ours(candidate, *, is_own_context):
    if is_own_context and candidate.context_id == "c":
        return True
    return any(message.message_id == ID for message in candidate.history)


@settings(max_examples=rounds(100, 400))
@given(
    agents,
    st.sampled_from([{}, {"context_id": "c"}, {"task_id": "3", "context_id": "c"}]),
    st.integers(1, 3),
    st.booleans(),
)
def test_for_any_replies_only_tasks_of_the_message_are_found(
    agent, position, max_pages, is_own_context
):
    """For any store and any failures, a found task belongs to the message."""
    is_own_context = is_own_context and position == {"context_id": "c"}
    search = Reconciliation(
        message(**position), sent_at=SENT, max_pages=max_pages, is_own_context=is_own_context
    )

    request_count = 0
    while not isinstance(search.step, Found | Duplicate | Absent | Inconclusive):
        request_count += agent.answer(search)
        assert request_count < 200, "it never ends"
        if isinstance(search.step, RetryLater):
            search.waited() if search.step.rounds < 5 else search.finish(LATE)

    candidates = getattr(search.step, "tasks", ())
    if isinstance(search.step, Found):
        candidates = [search.step.task]
    assert all(is_ours(item, is_own_context=is_own_context) for item in candidates)
    assert all(search.searched)


# ── Consequences of a search ─────────────────────────────────────────────────────────────────


def lost_reply():
    return OutcomeUnknownError("its reply was lost", message_id=ID, agent="http://agent.test")


def report(result, seen=None):
    return SearchReport(result=result, seen=seen, searched=("task a",), summary="It was searched")


@pytest.mark.parametrize("search", [None, report(Absent()), report(Inconclusive())])
def test_found_task_is_none_if_nothing_was_found(search):
    assert found_task(lost_reply(), search) is None


def test_found_task_returns_the_task():
    expected_task = task("a", ID)

    assert found_task(lost_reply(), report(Found(expected_task), seen=task("a"))) is expected_task


def test_found_task_raises_duplicates_with_the_facts_of_the_lost_reply():
    loss, tasks = lost_reply(), (task("a", ID), task("b", ID))

    with pytest.raises(DuplicateTasksError, match=r"2 tasks of message .*: a, b") as caught:
        found_task(loss, report(Duplicate(tasks), seen=tasks[1]))

    error = caught.value
    assert (error.tasks, error.executed, error.agent) == (tasks, True, "http://agent.test")
    assert error.__cause__ is loss


@pytest.mark.parametrize(
    "search_error",
    [
        A2AError("refused"),
        DeadlineExceededError("late", deadline="wait", timeout=1.0),
    ],
)
def test_found_task_raises_the_search_error_with_a_seen_task(search_error):
    seen_task = task("a", ID)

    with pytest.raises(type(search_error), match="task a was last seen") as caught:
        found_task(lost_reply(), report(Inconclusive(search_error), seen=seen_task))

    assert (caught.value, caught.value.executed) == (search_error, True)
    assert getattr(caught.value, "task", seen_task) is seen_task
