"""The agent of `sdk_agent.py` behind Holdfast's errors, as somebody serves it who uses both.

This module owns one agent process. It is the one that imports holdfast: what the SDK answers is
not what is under test here, but what becomes of it.

Rules:
- Holdfast comes from the path that is named on the command line, and needs its dependencies here.
- `POST /broken` raises an exception within Starlette, as a mistake in an agent's own routes does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
from typing import TYPE_CHECKING, NoReturn

from sdk_agent import build_app
from serving import serve
from starlette.applications import Starlette
from starlette.routing import Mount, Route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp


def broken(_: Request) -> NoReturn:
    """Fail as code fails."""
    message = "the password is hunter2"
    raise RuntimeError(message)


def guarded(url: str, token: str | None) -> ASGIApp:
    """Put the real agent, and a broken route, behind Holdfast's errors."""
    from holdfast.server import ProtocolErrors

    app = Starlette(
        routes=[
            Route("/broken", broken, methods=["POST"]),
            Mount("/", build_app(url, "jsonrpc", token, 0.0)),
        ]
    )
    return ProtocolErrors(app, agent="guarded")


def main() -> None:
    """Serve with this process's arguments and standard streams."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    parser = argparse.ArgumentParser(description="An agent on the official SDK, and Holdfast.")
    parser.add_argument("--holdfast", required=True, help="the directory that holds the package")
    parser.add_argument("--token", help="ask for this bearer token")
    options = parser.parse_args()
    sys.path.insert(0, options.holdfast)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(lambda url: guarded(url, options.token), 600.0))


if __name__ == "__main__":
    main()
