"""Many static agents in one process, each at a port of its own.

    fan_out_agents.py NUMBER

It prints their addresses on one line when they are ready, and stops at the end of its standard
input.
"""

from __future__ import annotations

import asyncio
import sys

from descriptors import as_many_as_there_may_be
from static_agent import StaticAgent


async def main(number: int) -> None:
    as_many_as_there_may_be()
    loop = asyncio.get_running_loop()
    urls: list[str] = []
    for place in range(number):
        # The address is known as soon as somebody listens, which is before anybody calls.
        server = await loop.create_server(
            lambda place=place: StaticAgent(urls[place]), "127.0.0.1", 0, backlog=128
        )
        host, port = server.sockets[0].getsockname()
        urls.append(f"http://{host}:{port}/")
    print(*urls, flush=True)
    over = loop.create_future()

    def on_input() -> None:
        if not sys.stdin.readline():
            loop.remove_reader(sys.stdin)
            over.set_result(None)

    loop.add_reader(sys.stdin, on_input)
    await over


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
