"""What observers get, checked: each start has one end, and the ids make a tree."""

from collections import Counter

from holdfast import observe

PAIRS = {
    observe.OperationStarted: observe.OperationFinished,
    observe.RequestStarted: observe.RequestFinished,
    observe.AttemptStarted: observe.AttemptFinished,
}


def check_tree(seen):
    """Check all observations of a client, in order, once nothing of it is in flight."""
    for started, finished in PAIRS.items():
        begun = [_id(each) for each in seen if isinstance(each, started)]
        ended = [_id(each) for each in seen if isinstance(each, finished)]
        assert len(set(begun)) == len(begun)
        assert Counter(begun) == Counter(ended)
        for each in begun:
            first = next(i for i, one in enumerate(seen) if _is(one, started, each))
            last = next(i for i, one in enumerate(seen) if _is(one, finished, each))
            assert first < last
    _check_waits(seen)
    _check_journal(seen)
    searched = Counter(each.message_id for each in of(seen, observe.ReconcileStarted))
    assert searched == Counter(each.message_id for each in of(seen, observe.Reconciled))
    operations = {each.operation_id: each for each in of(seen, observe.OperationStarted)}
    requests = {each.request_id: each for each in of(seen, observe.RequestStarted)}
    for each in seen:
        assert each.operation_id in operations
        assert each.operation == operations[each.operation_id].operation
        if isinstance(each, observe.OperationStarted | observe.OperationFinished):
            assert each.parent_id is None or each.parent_id in operations
        elif isinstance(each, observe.RequestStarted | observe.RequestFinished):
            assert each.parent_id == each.operation_id
        elif isinstance(each, observe.AttemptStarted | observe.AttemptFinished):
            assert requests[each.parent_id].operation_id == each.operation_id
        else:
            assert each.parent_id in requests.keys() | operations.keys()
    assert len({each.agent for each in seen}) <= 1
    _check_sums(seen)


def of(seen, kind, **fields):
    """Return the observations of a kind whose fields have these values."""
    return [
        each
        for each in seen
        if isinstance(each, kind)
        and all(getattr(each, name) == value for name, value in fields.items())
    ]


def _check_journal(seen):
    ended = set()  # but for operations that their callers have left, which may release their calls
    for each in seen:
        if isinstance(each, observe.OperationFinished) and each.outcome in {"succeeded", "failed"}:
            ended.add(each.operation_id)
        elif isinstance(each, observe.JournalWritten):
            assert each.operation_id not in ended


def _check_sums(seen):
    for index, ended in enumerate(seen):
        if not isinstance(ended, observe.OperationFinished):
            continue
        # A request may outlive its operation: for a card that others wait for, or of a call that
        # its caller has abandoned.
        mine = of(seen[:index], observe.Observation, operation_id=ended.operation_id)
        assert ended.requests == len(of(mine, observe.RequestStarted))
        assert ended.attempts == len(of(mine, observe.AttemptStarted))
        assert ended.retries == len(of(mine, observe.RetryScheduled))
        assert ended.reconnects == len(of(mine, observe.Reconnected))
        assert ended.has_gap == bool(of(mine, observe.GapDetected))
        assert ended.events == len(of(mine, observe.EventReceived))
        waits = of(mine, observe.WaitFinished)
        assert all(0 <= wait.duration <= ended.duration + 1e-6 for wait in waits)
        assert (ended.error is None) == (ended.outcome in {"succeeded", "left"})
    for ended in of(seen, observe.RequestFinished):
        made = of(seen, observe.AttemptStarted, request_id=ended.request_id)
        assert ended.attempts == len(made)


def _check_waits(seen):
    open_waits = Counter()
    for each in seen:
        if isinstance(each, observe.WaitStarted):
            open_waits[each.parent_id, each.reason] += 1
        elif isinstance(each, observe.WaitFinished):
            open_waits[each.parent_id, each.reason] -= 1
            assert open_waits[each.parent_id, each.reason] >= 0
    assert not +open_waits


def _id(observation):
    match observation:
        case observe.OperationStarted() | observe.OperationFinished():
            return observation.operation_id
        case observe.RequestStarted() | observe.RequestFinished():
            return observation.request_id
        case _:
            return observation.attempt_id


def _is(observation, kind, node_id):
    return isinstance(observation, kind) and _id(observation) == node_id
