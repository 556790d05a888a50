"""An agent of your own: one function behind the whole protocol, until Ctrl-C.

    python examples/serve.py [port, else 9999]

It asks for a city where none is named, and tells its answer word by word.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from typing import TYPE_CHECKING

from holdfast.server import A2AServer, requires_input

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast import Message


async def weather(message: Message) -> AsyncIterator[str]:
    """Tells what the weather is like in a city."""
    city = message.text.strip()
    if not city or city.lower() == "weather":
        raise requires_input("In which city?")
    for word in f"It is sunny in {city}.".split():
        yield f"{word} "
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    parser = argparse.ArgumentParser()
    parser.add_argument("port", nargs="?", type=int, default=9999, help="0 takes a free one")
    try:
        asyncio.run(A2AServer(weather).serve(port=parser.parse_args().port))
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        sys.exit(f"{error.strerror}: name another port, 0 takes a free one")
