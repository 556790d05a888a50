"""What the integrations with durable engines share, and their arguments."""

import importlib
import sys

import pytest

from holdfast import errors
from holdfast._integrations.durable import may_succeed_later, step_key
from holdfast.integrations.temporal import HoldfastPlugin, WorkflowAgent


@pytest.mark.parametrize(("name", "library"), [("temporal", "temporalio"), ("dbos", "dbos")])
def test_missing_extra_is_named(monkeypatch, name, library):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"holdfast.integrations.{name}", raising=False)

    with pytest.raises(ImportError, match=rf'pip install "\.\[{name}\]"'):
        importlib.import_module(f"holdfast.integrations.{name}")


def test_keys_of_steps_are_valid_and_differ_however_long_their_ids_are():
    long = "w" * 1000
    keys = [
        step_key("temporal", workflow, run, step)
        for workflow in ("w", long, f"{long}2")
        for run in ("", "r")
        for step in ("1", "2")
    ]

    assert keys[0] == "temporal/w/1"
    assert len(set(keys)) == len(keys)
    assert max(map(len, keys)) <= 512


def unknown(search_error=None):
    return errors.OutcomeUnknownError("", message_id="m", search_error=search_error)


def late():
    return errors.DeadlineExceededError(deadline="call", timeout=900)


@pytest.mark.parametrize(
    ("error", "task_id", "has_journal", "expected"),
    [
        (errors.RateLimitedError(executed=False, transient=True), None, False, True),
        (errors.PermissionDeniedError(executed=False), None, True, False),
        (errors.A2AHTTPError(executed=None, transient=True), None, True, False),
        (errors.A2AConnectionError(failure="disconnected"), None, True, False),
        (errors.A2AConnectionError(failure="disconnected"), "task-1", False, True),
        (errors.InternalError(executed=True), "task-1", True, False),
        (errors.TaskNotFoundError(task_id="task-1"), "task-1", True, False),
        (errors.JournalError(reason="held"), None, True, True),
        (errors.JournalError(reason="damaged"), None, True, False),
        (errors.KeyConflictError(key="k", executed=False, transient=True), None, True, False),
        (late(), None, True, True),
        (late(), None, False, False),
        (late(), "task-1", False, True),
        (unknown(), None, True, False),
        (unknown(errors.A2AError("unreachable")), None, True, True),
        (unknown(errors.A2AError("unreachable")), None, False, False),
    ],
)
def test_errors_are_retried_only_where_a_later_attempt_may_do_better(
    error, task_id, has_journal, expected
):
    assert may_succeed_later(error, task_id, has_journal=has_journal) is expected


def test_wrong_arguments_are_refused_before_a_worker_runs():
    with pytest.raises(ValueError, match="needs a heartbeat_timeout"):
        WorkflowAgent("agent", cancel_task=True, heartbeat_timeout=None)
    with pytest.raises(TypeError, match="start_to_close_timeout"):
        WorkflowAgent("agent", start_to_close_timeuot=None)
    with pytest.raises(ValueError, match="name of an agent"):
        WorkflowAgent("")
    with pytest.raises(TypeError, match="journal"):
        HoldfastPlugin({"agent": "http://agent.test"}, jurnal="calls.db")
    with pytest.raises(ValueError, match="agent"):
        HoldfastPlugin({"agent": "not an address"})
    assert repr(WorkflowAgent("agent")) == "WorkflowAgent('agent')"
