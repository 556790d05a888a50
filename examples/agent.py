"""A fake agent on loopback, to try commands and examples with, until Ctrl-C.

    python examples/agent.py [port, else 9999]

It repeats what it is told, word by word where the answer is streamed.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
from typing import TYPE_CHECKING

from holdfast.testing import FakeAgent, LoopbackServer, streams

if TYPE_CHECKING:
    from holdfast.testing import Plan, Turn


def repeats(turn: Turn) -> Plan:
    """Tells a message back."""
    words = turn.message.text.split() or ["nothing?"]
    return streams(*(f"{word} " for word in words), every=0.2)


async def main(port: int) -> None:
    """Serves the agent."""
    # It loses its tasks when it ends: no task of the next process may have the same id.
    agent = FakeAgent(repeats, id_suffix=f"-{secrets.token_hex(4)}")
    async with LoopbackServer(agent, port=port) as server:
        print(f"An agent is at {server.url}: try holdfast send -a {server.url} hello", flush=True)
        await asyncio.Event().wait()


parser = argparse.ArgumentParser()
parser.add_argument("port", nargs="?", type=int, default=9999, help="0 takes a free one")
port = parser.parse_args().port
try:
    asyncio.run(main(port))
except ValueError as error:
    parser.error(str(error))
except OSError as error:
    sys.exit(f"cannot listen on port {port} ({error.strerror}): name another, 0 takes a free one")
except KeyboardInterrupt:
    pass
