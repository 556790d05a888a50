"""For those who serve an agent: what its callers see when something goes wrong.

from holdfast.server import ProtocolErrors

app = ProtocolErrors(app, agent="coordinator")  # around any ASGI application
"""

from holdfast.server.errors import ProtocolErrors

__all__ = ["ProtocolErrors"]
