"""The states of a stream, what happens to it, and which state follows: the table of the machine.

`TRANSITIONS` is that table. `holdfast._stream.machine.StreamMachine` decides between the states
that a row allows, and can enter no other. The state says what to do next (`State.action`), unless
the machine has to wait before (`Wait`).

First connection, whose events are all new::

    FOLLOWING --silence--> CHECKING --the task, or an event--> FOLLOWING
        |
        | cut, or end of the connection
        v
    RECONNECTING --subscribed--> JOINED            SEARCHING: no event has named the task
        |
        | refused
        v
    DOUBTED, RESTING --the task--> RECONNECTING, POLLING or DONE
    REFUSED, POLLING --the task--> POLLING or DONE

POLLING also follows where subscribing could do the task harm, or led to nothing too often.

Any later connection, whose events may repeat, or lack, what the caller has::

    JOINED --an event, or silence--> CATCHING_UP --the task--> MERGING
    MERGING --chunks whose place is unknown--> COMPARING  --the task--> MERGING
            --silence------------------------> RECHECKING --the task--> MERGING
            --a status that it rests with----> CONFIRMING --the task--> MERGING or DONE
            --cut, or end of the connection--> RECONNECTING, RESTING, POLLING

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
    """Read the connection: `Input.EVENT`, `END` or `CUT`; `SILENCE` where nothing comes."""
    SUBSCRIBE = auto()
    """Subscribe to the task: `Input.SUBSCRIBED` or `REFUSED`."""
    GET_TASK = auto()
    """Ask for the task: `Input.TASK` or `NO_TASK`. Where a connection is open, it may be read
    beside."""
    SEARCH = auto()
    """Search for the task that the message made, which no event has named: `Input.FOUND`."""
    STOP = auto()
    """Nothing: everything is delivered."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Wait before the action of the state: `Input.WAITED`.

    Attributes:
        attempt: Number of the try, from 1: what the backoff grows with. 0 for a look at a task
            that is polled.
        at_least: Seconds that the agent asked to wait.
        error: Why.
    """

    attempt: int
    at_least: float = 0.0
    error: A2AError | None = None


class State(Enum):
    """Where a stream stands, and what to do next there."""

    FOLLOWING = "following", Action.READ
    """The first connection: each event is new."""
    CHECKING = "checking", Action.GET_TASK
    """The same, which is silent: it may be behind the task."""
    JOINED = "joined", Action.READ
    """The task was subscribed to; what was missed is not known yet."""
    CATCHING_UP = "catching up", Action.GET_TASK
    """The same: the task shows what was missed."""
    MERGING = "merging", Action.READ
    """What the connection brings is merged into what the task has shown."""
    COMPARING = "comparing", Action.GET_TASK
    """The connection has brought chunks whose place only the task shows."""
    RECHECKING = "rechecking", Action.GET_TASK
    """The connection is silent: more may have been missed than the task showed before."""
    CONFIRMING = "confirming", Action.GET_TASK
    """The connection says that the task rests: the task has to say it too."""
    RECONNECTING = "reconnecting", Action.SUBSCRIBE
    """The connection was cut."""
    REFUSED = "refused", Action.GET_TASK
    """The task cannot be subscribed to: it is over, or the agent does not offer that."""
    DOUBTED = "doubted", Action.GET_TASK
    """The agent failed to give a subscription, which may be its way to say that."""
    RESTING = "resting", Action.GET_TASK
    """The connection ended as if the task waited for input."""
    POLLING = "polling", Action.GET_TASK
    """Subscriptions lead to nothing, or there are none."""
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
    SILENCE = auto()
    """The connection has brought nothing for as long as the machine wants to wait."""
    END = auto()
    """The connection ended in good order."""
    CUT = auto()
    """The connection broke."""
    SUBSCRIBED = auto()
    """The task was subscribed to."""
    REFUSED = auto()
    """The task could not be subscribed to."""
    TASK = auto()
    """The agent gave the task."""
    NO_TASK = auto()
    """The agent did not give the task."""
    FOUND = auto()
    """The task of the message was found, which no event of the connection had named."""
    NO_STREAMS = auto()
    """The agent offers no streams, or a subscription could do the task harm."""
    WAITED = auto()
    """The wait is over."""
    EXPIRED = auto()
    """The agent had enough time to answer a reply: what its task waits for is its answer."""


_S, _I = State, Input

_LOST = frozenset({_S.RECONNECTING, _S.RESTING, _S.POLLING})
"""What follows a connection that broke."""

_LOST_FIRST = _LOST | {_S.SEARCHING}
"""The same of the first connection, which may not have named its task."""

_RESUMED = {_I.EVENT: frozenset({_S.FOLLOWING, _S.DONE})}
"""What follows where the first connection was lost for its silence, and has an event after all."""

_READ = {_I.END: _LOST, _I.CUT: _LOST}
"""What every later connection may do."""

_MERGED = frozenset({_S.MERGING, _S.COMPARING, _S.CONFIRMING, _S.DONE})
"""What follows an event that is merged."""

_AGAIN = frozenset({_S.RECONNECTING, _S.POLLING})
"""What follows where the task may be subscribed to again."""

_AFTER_TASK = {
    _S.REFUSED: frozenset({_S.POLLING, _S.DONE}),
    _S.DOUBTED: _AGAIN | {_S.DONE},
    _S.RESTING: _AGAIN | {_S.DONE},
    _S.POLLING: frozenset({_S.POLLING, _S.DONE}),
}
"""What follows a task that was asked for without a connection."""

TRANSITIONS: Mapping[State, Mapping[Input, frozenset[State]]] = {
    _S.FOLLOWING: {
        _I.EVENT: frozenset({_S.FOLLOWING, _S.DONE}),
        _I.SILENCE: frozenset({_S.FOLLOWING, _S.CHECKING}),
        _I.NO_STREAMS: frozenset({_S.POLLING, _S.DONE}),
        _I.FOUND: _LOST | {_S.DONE},
        _I.EXPIRED: frozenset({_S.DONE}),
        _I.END: _LOST_FIRST | {_S.DONE},
        _I.CUT: _LOST_FIRST,
    },
    _S.CHECKING: {
        _I.EVENT: frozenset({_S.FOLLOWING, _S.DONE}),
        _I.TASK: _LOST_FIRST | {_S.FOLLOWING, _S.DONE},
        _I.NO_TASK: frozenset({_S.FOLLOWING}),
        _I.EXPIRED: frozenset({_S.CHECKING}),
        _I.END: _LOST_FIRST | {_S.DONE},
        _I.CUT: _LOST_FIRST,
    },
    _S.RECONNECTING: {
        **_RESUMED,
        _I.SUBSCRIBED: frozenset({_S.JOINED}),
        _I.REFUSED: frozenset({_S.RECONNECTING, _S.REFUSED, _S.DOUBTED, _S.RESTING, _S.POLLING}),
        _I.NO_STREAMS: frozenset({_S.POLLING, _S.DONE}),
        _I.WAITED: frozenset({_S.RECONNECTING}),
        _I.EXPIRED: frozenset({_S.RECONNECTING}),
    },
    _S.JOINED: {
        _I.EVENT: frozenset({_S.CATCHING_UP, _S.DONE}),
        _I.SILENCE: frozenset({_S.CATCHING_UP}),
        _I.EXPIRED: frozenset({_S.DONE}),
        **_READ,
    },
    _S.CATCHING_UP: {
        _I.EVENT: frozenset({_S.CATCHING_UP, _S.DONE}),
        _I.TASK: _MERGED,
        _I.NO_TASK: _MERGED,
        _I.EXPIRED: frozenset({_S.CATCHING_UP}),
        **_READ,
    },
    _S.MERGING: {
        _I.EVENT: _MERGED,
        _I.SILENCE: frozenset({_S.COMPARING, _S.RECHECKING}),
        _I.EXPIRED: frozenset({_S.DONE}),
        **_READ,
    },
    _S.COMPARING: {
        _I.EVENT: _MERGED,
        _I.TASK: frozenset({_S.MERGING, _S.DONE}),
        _I.NO_TASK: frozenset({_S.MERGING}),
        _I.EXPIRED: frozenset({_S.COMPARING}),
        **_READ,
    },
    _S.RECHECKING: {
        _I.EVENT: _MERGED,
        _I.TASK: frozenset({_S.MERGING, _S.DONE}),
        _I.NO_TASK: frozenset({_S.MERGING}),
        _I.EXPIRED: frozenset({_S.RECHECKING}),
        **_READ,
    },
    _S.CONFIRMING: {
        _I.TASK: frozenset({_S.MERGING, _S.CONFIRMING, _S.DONE}),
        _I.NO_TASK: frozenset({_S.MERGING, _S.CONFIRMING, _S.DONE}),
        _I.WAITED: frozenset({_S.CONFIRMING}),
        _I.EXPIRED: frozenset({_S.CONFIRMING}),
    },
    **{
        state: {
            _I.TASK: _AFTER_TASK[state],
            # Only an agent that keeps no task is then subscribed to.
            _I.NO_TASK: _AGAIN | {state},
            _I.WAITED: frozenset({state}),
            _I.EXPIRED: frozenset({state}),
            **_RESUMED,
        }
        for state in _AFTER_TASK
    },
    _S.SEARCHING: {
        **_RESUMED,
        _I.FOUND: _LOST | {_S.DONE},
    },
    _S.DONE: {
        _I.NO_STREAMS: frozenset({_S.DONE}),
        _I.EXPIRED: frozenset({_S.DONE}),
    },
}
"""Which states may follow each state, by what happens there; nothing else happens there."""
