"""Push notifications: agents report progress of a task, so it need not be polled (A2A 4.3.3).

Let an agent report the end of a task::

    receiver = PushReceiver("https://me.example/push")
    config = receiver.config()
    task = await agent.send_message(
        "Tell me when it is done.", push_notification_config=config, return_immediately=True
    )
    receiver.expect(task, config)
    done = await receiver.wait(task.id, client=agent, timeout=3600)

A receiver is an ASGI application, to be served at its URL.
"""

from __future__ import annotations

from holdfast._journal.protocol import TokenJournal, TokenUse
from holdfast._public import publish
from holdfast._push.receiver import PushReceiver
from holdfast._push.signatures import JwtPolicy

__all__ = ["JwtPolicy", "PushReceiver", "TokenJournal", "TokenUse"]

__getattr__, __dir__ = publish(__name__)
