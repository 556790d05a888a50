"""The synchronous API: the same classes and methods as `holdfast`, which block.

    import holdfast.sync

    with holdfast.sync.connect("https://agent.example.com") as agent:
        print(agent.ask("How far is the moon?").text)

- Values, errors, options and policies are the same for both; they are in `holdfast`.
- It can be used by any number of threads, and while an event loop runs, as in a notebook. An async
  function that calls it blocks its own event loop meanwhile: await `holdfast` there.
- Plain functions that are passed as hooks (``on_input``, ``on_auth``, ``consumers``, ``on_retry``)
  and the iterator of messages of ``run`` are run by the thread that waits for the call, and only
  while it waits: they may block, ask for input, and call this API. A timeout does not interrupt
  them; it ends the call after they return. Tools run in threads, as in `holdfast`.
- Coroutine functions, observers, predicates, layers and caller-supplied objects run on one event
  loop in a thread of its own. They must not call this API; that raises a RuntimeError. `run` calls
  their methods: ``run(engine.close())``.
- Ctrl-C ends a call like a cancellation: the connection is closed, and the agent's task continues.
  A forked child can use its parent's clients, over connections of its own.
"""

# Type checkers and editors read __init__.pyi, which `python -m tests.sync_stub` writes.

from __future__ import annotations

from holdfast import doctor as diagnosis
from holdfast._client import connect as _connect
from holdfast._client.batch import BulkRun as _BulkRun
from holdfast._client.circuit import Circuit as _Circuit
from holdfast._client.client import Client as _Client
from holdfast._client.conversation import Conversation as _Conversation
from holdfast._client.coordinator import Coordinator as _Coordinator
from holdfast._client.event_stream import EventStream as _EventStream
from holdfast._client.fan_out import FanOut as _FanOut
from holdfast._client.pending import PendingCall as _PendingCall
from holdfast._compat.card_resolver import A2ACardResolver as _A2ACardResolver
from holdfast._compat.factory import ClientFactory as _ClientFactory
from holdfast._compat.task_manager import ClientTaskManager as _ClientTaskManager
from holdfast._sync.blocking import Iteration, blocking_class, blocking_function
from holdfast._sync.loop import run

__all__ = [
    "A2ACardResolver",
    "BulkRun",
    "Circuit",
    "Client",
    "ClientFactory",
    "ClientTaskManager",
    "Conversation",
    "Coordinator",
    "EventStream",
    "FanOut",
    "Iteration",
    "PendingCall",
    "ask",
    "connect",
    "diagnose",
    "run",
]

A2ACardResolver = blocking_class(_A2ACardResolver)
BulkRun = blocking_class(_BulkRun)
Circuit = blocking_class(_Circuit)
Client = blocking_class(_Client)
ClientFactory = blocking_class(_ClientFactory)
ClientTaskManager = blocking_class(_ClientTaskManager)
Conversation = blocking_class(_Conversation)
Coordinator = blocking_class(_Coordinator)
EventStream = blocking_class(_EventStream)
FanOut = blocking_class(_FanOut)
PendingCall = blocking_class(_PendingCall)

Iteration.__module__ = __name__

ask = blocking_function(_connect.ask)
connect = blocking_function(_connect.connect)
diagnose = blocking_function(diagnosis.diagnose)
