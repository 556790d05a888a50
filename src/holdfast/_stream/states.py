"""The states of a stream, what may happen in each, and which states may follow.

`TRANSITIONS` is the table. `holdfast._stream.machine.StreamMachine` chooses one of the states that
a row allows, and can enter no other. The state says what to do next (`State.action`), unless the
machine has to wait before (`Wait`).

First connection, whose events are all new::

    FOLLOWING --look due--> CHECKING --the task, or an event--> FOLLOWING
        |                       |
        |<--still behind the task
        | cut, or end of the connection
        v
    SUBSCRIBING --subscribed--> JOINED            SEARCHING: no event has named the task
        |
        | refused
        v
    DOUBTED, RESTING --the task--> SUBSCRIBING, POLLING or DONE
    UNSUBSCRIBABLE, POLLING --the task--> POLLING or DONE

A stream of a known task begins with SUBSCRIBING, or with POLLING if the agent offers no streams or
a subscription is not safe. POLLING also follows if subscriptions lead to nothing too often.

Any later connection, whose events may repeat, or lack, what the caller has::

    JOINED --an event, or look due--> CATCHING_UP --the task--> MERGING
    MERGING --chunks whose place is unknown--> COMPARING  --the task--> MERGING
            --look due-----------------------> RECHECKING --the task--> MERGING
            --a status that it rests with----> CONFIRMING --the task--> MERGING or DONE
            --cut, or end of the connection--> SUBSCRIBING, RESTING, POLLING

DONE follows a `Message` that comes first, a terminal state, and the end of a connection after
INPUT_REQUIRED.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TRANSITIONS", "Action", "Input", "State", "Wait"]


class Action(Enum):
    """What to do next."""

    READ = auto()
    """Read the connection: `Input.EVENT`, `END` or `CUT`; `LOOK_DUE` if nothing comes."""
    SUBSCRIBE = auto()
    """Subscribe to the task: `Input.SUBSCRIBED` or `REFUSED`."""
    GET_TASK = auto()
    """Fetch the task: `Input.TASK` or `NO_TASK`. An open connection may be read meanwhile."""
    SEARCH = auto()
    """Search for the message's task, which no event has named: `Input.FOUND`."""
    STOP = auto()
    """Nothing: everything is delivered."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Wait before the action of the state: `Input.WAITED`.

    Attributes:
        attempt: Number of the try, from 1, for the backoff; 0 for polling.
        at_least: Seconds that the agent asked to wait.
        error: The reason.
    """

    attempt: int
    at_least: float = 0.0
    error: A2AError | None = None


class State(Enum):
    """Where a stream stands, and what to do next."""

    FOLLOWING = "following", Action.READ
    """The first connection is open: each event is new."""
    CHECKING = "checking", Action.GET_TASK
    """The first connection is silent: it may be behind the task."""
    JOINED = "joined", Action.READ
    """The task was subscribed to; which events were missed is unknown yet."""
    CATCHING_UP = "catching up", Action.GET_TASK
    """The task was subscribed to, and is fetched to learn which events were missed."""
    MERGING = "merging", Action.READ
    """Events of the connection are merged with the task that was fetched."""
    COMPARING = "comparing", Action.GET_TASK
    """The connection has brought chunks whose place only the task shows."""
    RECHECKING = "rechecking", Action.GET_TASK
    """The connection is silent: more may have been missed than the task showed before."""
    CONFIRMING = "confirming", Action.GET_TASK
    """The connection says that the task rests: the task has to show it, too."""
    SUBSCRIBING = "subscribing", Action.SUBSCRIBE
    """No connection is open, at the beginning or after a cut."""
    UNSUBSCRIBABLE = "unsubscribable", Action.GET_TASK
    """The task cannot be subscribed to: it is over, or the agent does not offer that."""
    DOUBTED = "doubted", Action.GET_TASK
    """The agent failed at a subscription, perhaps because it has no such task."""
    RESTING = "resting", Action.GET_TASK
    """The connection ended as if the task waited for input."""
    POLLING = "polling", Action.GET_TASK
    """The task is fetched again and again, in place of subscriptions."""
    SEARCHING = "searching", Action.SEARCH
    """The connection was lost before an event named the task."""
    DONE = "done", Action.STOP
    """Everything is delivered."""

    def __init__(self, label: str, action: Action) -> None:
        self.label = label
        self.action = action


class Input(Enum):
    """What happens to a stream."""

    EVENT = auto()
    """The connection brought an event."""
    LOOK_DUE = auto()
    """The task is to be fetched: no event came for a time, or the task lacks events."""
    END = auto()
    """The connection ended normally."""
    CUT = auto()
    """The connection broke."""
    SUBSCRIBED = auto()
    """The task was subscribed to."""
    REFUSED = auto()
    """The task could not be subscribed to."""
    TASK = auto()
    """The agent returned the task."""
    NO_TASK = auto()
    """The agent did not return the task."""
    FOUND = auto()
    """A search found the task of the message."""
    POLL_ONLY = auto()
    """The agent offers no streams, or a subscription is not safe."""
    WAITED = auto()
    """The wait is over."""
    EXPIRED = auto()
    """The agent had enough time to act on a reply: the status of its task is the answer."""


_S, _I = State, Input

_LOST = frozenset({_S.SUBSCRIBING, _S.RESTING, _S.POLLING})
"""What follows a connection that broke."""

_LOST_FIRST = _LOST | {_S.SEARCHING}
"""The same of the first connection, which may not have named its task."""

_RESUMED = {_I.EVENT: frozenset({_S.FOLLOWING, _S.DONE})}
"""What follows if the first connection was cut off as silent, and brings an event after all."""

_READ = {_I.END: _LOST, _I.CUT: _LOST}
"""What every later connection may do."""

_MERGED = frozenset({_S.MERGING, _S.COMPARING, _S.CONFIRMING, _S.DONE})
"""What follows an event that is merged."""

_AGAIN = frozenset({_S.SUBSCRIBING, _S.POLLING})
"""What follows if the task may be subscribed to again."""

_AFTER_TASK = {
    _S.UNSUBSCRIBABLE: frozenset({_S.POLLING, _S.DONE}),
    _S.DOUBTED: _AGAIN | {_S.DONE},
    _S.RESTING: _AGAIN | {_S.DONE},
    _S.POLLING: frozenset({_S.POLLING, _S.DONE}),
}
"""What follows a task that was fetched without a connection."""

TRANSITIONS: Mapping[State, Mapping[Input, frozenset[State]]] = {
    _S.FOLLOWING: {
        _I.EVENT: frozenset({_S.FOLLOWING, _S.DONE}),
        _I.LOOK_DUE: frozenset({_S.CHECKING}),
        _I.POLL_ONLY: frozenset({_S.POLLING, _S.DONE}),
        _I.FOUND: _LOST | {_S.DONE},
        _I.EXPIRED: frozenset({_S.DONE}),
        _I.END: _LOST_FIRST | {_S.DONE},
        _I.CUT: _LOST_FIRST,
    },
    _S.CHECKING: {
        _I.EVENT: frozenset({_S.FOLLOWING, _S.DONE}),
        _I.TASK: _LOST_FIRST | {_S.FOLLOWING, _S.DONE},
        _I.NO_TASK: frozenset({_S.FOLLOWING}),
        _I.END: _LOST_FIRST | {_S.DONE},
        _I.CUT: _LOST_FIRST,
    },
    _S.SUBSCRIBING: {
        **_RESUMED,
        _I.SUBSCRIBED: frozenset({_S.JOINED}),
        _I.REFUSED: frozenset(
            {_S.SUBSCRIBING, _S.UNSUBSCRIBABLE, _S.DOUBTED, _S.RESTING, _S.POLLING}
        ),
        _I.POLL_ONLY: frozenset({_S.POLLING, _S.DONE}),
        _I.WAITED: frozenset({_S.SUBSCRIBING}),
    },
    _S.JOINED: {
        _I.EVENT: frozenset({_S.CATCHING_UP, _S.DONE}),
        _I.LOOK_DUE: frozenset({_S.CATCHING_UP}),
        _I.EXPIRED: frozenset({_S.DONE}),
        **_READ,
    },
    _S.CATCHING_UP: {
        _I.EVENT: frozenset({_S.CATCHING_UP, _S.DONE}),
        _I.TASK: _MERGED,
        _I.NO_TASK: _MERGED - {_S.DONE},
        **_READ,
    },
    _S.MERGING: {
        _I.EVENT: _MERGED,
        _I.LOOK_DUE: frozenset({_S.COMPARING, _S.RECHECKING}),
        _I.EXPIRED: frozenset({_S.DONE}),
        **_READ,
    },
    _S.COMPARING: {
        _I.EVENT: _MERGED,
        _I.TASK: frozenset({_S.MERGING, _S.DONE}),
        _I.NO_TASK: frozenset({_S.MERGING}),
        **_READ,
    },
    _S.RECHECKING: {
        _I.EVENT: _MERGED,
        _I.TASK: frozenset({_S.MERGING, _S.DONE}),
        _I.NO_TASK: frozenset({_S.MERGING}),
        **_READ,
    },
    _S.CONFIRMING: {
        _I.TASK: frozenset({_S.MERGING, _S.CONFIRMING, _S.DONE}),
        _I.NO_TASK: frozenset({_S.MERGING, _S.CONFIRMING, _S.DONE}),
        _I.WAITED: frozenset({_S.CONFIRMING}),
    },
    **{
        state: {
            _I.TASK: _AFTER_TASK[state],
            # Only an agent that stores no task is then subscribed to.
            _I.NO_TASK: _AGAIN | {state},
            _I.WAITED: frozenset({state}),
            **(_RESUMED if state in _LOST else {}),
        }
        for state in _AFTER_TASK
    },
    _S.SEARCHING: {
        **_RESUMED,
        _I.FOUND: _LOST | {_S.DONE},
    },
    _S.DONE: {
        _I.POLL_ONLY: frozenset({_S.DONE}),
    },
}
"""Which states may follow each state, by what happens in it; nothing else may happen in it."""
