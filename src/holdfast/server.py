"""Servers of agents: a function or an executor behind the whole A2A protocol.

Serve a function::

    from holdfast.server import A2AServer


    async def answer(message):
        return f"You said {message.text}"


    asyncio.run(A2AServer(answer).serve(port=9999))

`A2AServer` needs the extra ``holdfast[server]``. `ProtocolErrors` needs no extra; it gives proper
protocol errors to an agent that another server serves::

    app = ProtocolErrors(app, agent="coordinator")  # around any ASGI application
"""

from holdfast._public import publish
from holdfast._server.agent_server import A2AServer
from holdfast._server.agent_turns import AgentTurn, Requester
from holdfast._server.errors import ProtocolErrors
from holdfast._server.executors import Executor
from holdfast._server.outcomes import (
    AuthRequired,
    InputRequired,
    Rejected,
    TurnOutcome,
    fail,
    reject,
    requires_auth,
    requires_input,
)
from holdfast._server.running import Running, Serving
from holdfast._server.settings import Authenticate, CardModifier, Middleware, PushUrlValidator

__all__ = [
    "A2AServer",
    "AgentTurn",
    "AuthRequired",
    "Authenticate",
    "CardModifier",
    "Executor",
    "InputRequired",
    "Middleware",
    "ProtocolErrors",
    "PushUrlValidator",
    "Rejected",
    "Requester",
    "Running",
    "Serving",
    "TurnOutcome",
    "fail",
    "reject",
    "requires_auth",
    "requires_input",
]

__getattr__, __dir__ = publish(__name__)
