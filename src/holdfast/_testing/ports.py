"""Free ports, for servers that have to be told theirs."""

from __future__ import annotations

import socket

__all__ = ["pick_free_port"]


def pick_free_port(host: str = "127.0.0.1") -> int:
    """Finds a TCP port that nobody listens on.

    It is free when this returns, and somebody else may take it before it is used: a server that
    can bind port 0 and say which one it got needs no such luck. The system hands ports out in
    turn, so that in practice one is not handed out twice in a short time.

    Args:
        host: The address to listen on, IPv4 or IPv6, as in ``"::1"``; a name is looked up.

    Raises:
        OSError: There is no such address here.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.bind(address)
        port: int = probe.getsockname()[1]
        return port
