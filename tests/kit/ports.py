"""Ports that stay free, for servers that start later and for addresses where nobody answers."""

import atexit
import contextlib
import socket

__all__ = ["reserve_port"]

_reserved = contextlib.ExitStack()
atexit.register(_reserved.close)


def reserve_port():
    """Reserves a TCP port of 127.0.0.1 until the process ends.

    A port that was only looked up can become the local port of any other connection before a
    server takes it. This one stays bound by a socket that does not listen: connections to it are
    refused, and only a server that asks for its number, with SO_REUSEADDR, can listen there.
    """
    bound = _reserved.enter_context(socket.socket())
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", 0))
    return bound.getsockname()[1]
