"""Count the functions that a call and a chunk of a stream pass through, and print the path.

    python benchmarks/walk.py [--path]

- A call: `Client.send_message`, with the card cached and everything that `connect` switches on,
  down to the engine and back.
- A stream: from `Client.stream_message` to its first event.
- A chunk: one event that has to be waited for, to the text that `EventStream.text_deltas` yields;
  once up from a fake network in place of the engine, once up from a socket, the engine included.

Counted are the calls of the library's functions that Python makes (`sys.setprofile`); how many
different functions they are, of how many modules; how often the module changes on the way; and how
often a coroutine that waited is resumed. The agent is `holdfast.testing.FakeAgent`, which is not
counted, nor is anything outside the library. ``--path`` prints each function on the way, in order.

The state of an open stream is counted too: the mutable objects of the library that belong to one
stream, from `EventStream` down to the one that reads the connection, and their attributes. Mutable
structs count, since they hold state like any other object; frozen ones are values. Printed besides
are those of these objects that are different after the next chunk: the others change for the time
of a wait, or when the stream begins, is cut or ends.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import deque
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import holdfast
from holdfast import connect
from holdfast.testing import FakeAgent, FakeNetwork, LoopbackServer, run, streams

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import CodeType, FrameType

_LIBRARY = Path(holdfast.__file__).parent
_AGENT = "_testing."
_EVERY = 0.05  # seconds between two chunks


class Walk:
    """What the library was entered at while the scope was open.

    Attributes:
        steps: Module and qualified name of each function that was called, in order.
        resumed: How often one was resumed that had waited.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []
        self.resumed = 0
        self._frames: set[FrameType] = set()  # kept, so that one that is seen again is resumed
        self._names: dict[CodeType, tuple[str, str] | None] = {}
        self._inside = 0  # frames of the agent, which uses the library too

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event not in {"call", "return"}:
            return
        code = frame.f_code
        if code not in self._names:
            self._names[code] = _name(code)
        name = self._names[code]
        if name is None:
            return
        if name[0].startswith(_AGENT):
            self._inside += 1 if event == "call" else -1
        elif event == "call" and not self._inside:
            if frame in self._frames:
                self.resumed += 1
            else:
                self._frames.add(frame)
                self.steps.append(name)

    @property
    def functions(self) -> int:
        """How many different functions there were."""
        return len(set(self.steps))

    @property
    def modules(self) -> int:
        """Of how many modules they are."""
        return len({module for module, _ in self.steps})

    @property
    def changes(self) -> int:
        """How often the module changes from one step to the next."""
        modules = [module for module, _ in self.steps]
        return sum(one != other for one, other in pairwise(modules))

    def show(self, title: str, *, path: bool) -> None:
        """Print the figures and, if requested, the path."""
        print(
            f"{title:<44}{len(self.steps):>5} calls {self.functions:>5} functions "
            f"{self.modules:>4} modules {self.changes:>5} changes of module"
            f"{self.resumed:>4} resumed"
        )
        for module, name in self.steps if path else ():
            print(f"    {module:<34}{name}")


def _name(code: CodeType) -> tuple[str, str] | None:
    """Module and name of a function of the library; None for any other."""
    path = Path(code.co_filename)
    if not path.is_relative_to(_LIBRARY):
        return None
    module = path.relative_to(_LIBRARY).with_suffix("")
    if code.co_name == "<module>":
        return None
    return ".".join(module.parts), code.co_qualname


def state_of(stream: object) -> list[Any]:
    """Find the mutable objects of an open stream.

    They are found by following the attributes of `holdfast.EventStream` down to what reads the
    connection; what belongs to the client, and is shared by all of its streams, does not count.
    """
    seen: dict[int, Any] = {}
    todo: list[Any] = [stream]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or not _is_of_a_stream(thing):
            continue
        seen[id(thing)] = thing
        todo.extend(_attributes(thing).values())
    return list(seen.values())


_OF_A_STREAM = ("_stream.", "_client.event_stream", "_client.streams", "_pipeline.", "_wire.sse")
_OF_THE_CLIENT = ("Transport", "Layer", "Core", "Binding", "Router", "Replies", "Observers")


def _is_of_a_stream(thing: object) -> bool:
    kind = type(thing)
    if kind.__name__ == "EventStream":
        return True
    is_value = isinstance(thing, Enum) or _is_frozen(kind)
    module = kind.__module__.removeprefix("holdfast.")
    is_shared = kind.__name__.endswith(_OF_THE_CLIENT)
    return module.startswith(_OF_A_STREAM) and not is_value and not is_shared


def _is_frozen(kind: type) -> bool:
    """Whether a class is a struct whose values never change."""
    config = getattr(kind, "__struct_config__", None)
    return config is not None and config.frozen


def _attributes(thing: object) -> dict[str, Any]:
    names = [*getattr(thing, "__dict__", {}), *getattr(thing, "__struct_fields__", ())]
    for kind in type(thing).__mro__:
        names += [name for name in getattr(kind, "__slots__", ()) if hasattr(thing, name)]
    return {name: getattr(thing, name) for name in names}


async def call() -> Walk:
    """Trace one SendMessage."""
    agent = FakeAgent()
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        await client.send_message("once, so that the card is there")
        with Walk() as walk:
            await client.send_message("hi")
    return walk


async def opening() -> Walk:
    """Trace a stream up to its first event."""
    agent = FakeAgent(streams("one ", "two "))
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        await client.send_message("once, so that the card is there")
        with Walk() as walk:
            async with client.stream_message("hi") as events:
                await anext(events)
                sys.setprofile(None)
    return walk


async def chunk(engine: Callable[[FakeAgent], Any], url: str, agent: FakeAgent) -> Walk:
    """Trace one chunk that arrives alone, in the middle of a stream."""
    async with (
        connect(url, engine=engine(agent)) as client,
        client.stream_message("hi") as events,
    ):
        deltas = events.text_deltas()
        for _ in range(3):
            await anext(deltas)
        with Walk() as walk:
            text = await anext(deltas)
        assert text == "word "
    return walk


def _agent() -> FakeAgent:
    return FakeAgent(streams(*["word "] * 6, every=_EVERY))


async def chunk_from_a_network() -> Walk:
    agent = _agent()
    return await chunk(FakeNetwork, agent.url, agent)


async def chunk_from_a_socket() -> Walk:
    agent = _agent()
    async with LoopbackServer(agent) as server:
        return await chunk(lambda _: None, server.url, agent)


def _content(thing: Any) -> object:
    """Describe what an object or a container holds, to be compared with what it holds later."""
    if isinstance(thing, dict):
        members = cast("dict[Any, Any]", thing)
        return [(key, _content(value)) for key, value in members.items()]
    if type(thing) in {list, deque}:
        return [_content(value) for value in thing]
    return len(thing) if type(thing) is bytearray else id(thing)


async def state() -> tuple[dict[str, int], list[str]]:
    """Count the attributes of an open stream's objects, and find those that a chunk changes."""
    agent = _agent()
    async with (
        connect(agent.url, engine=FakeNetwork(agent)) as client,
        client.stream_message("hi") as events,
    ):
        deltas = events.text_deltas()
        for _ in range(3):
            await anext(deltas)
        things = state_of(events)
        before = [_content(_attributes(thing)) for thing in things]
        await anext(deltas)
        changed = [
            type(thing).__name__
            for thing, content in zip(things, before, strict=True)
            if _content(_attributes(thing)) != content
        ]
        return {type(thing).__name__: len(_attributes(thing)) for thing in things}, changed


def main() -> None:
    parser = argparse.ArgumentParser(description="Count what a call and a chunk pass through.")
    parser.add_argument("--path", action="store_true", help="print each function on the way")
    path = parser.parse_args().path
    walks: dict[str, Callable[[], Coroutine[Any, Any, Walk]]] = {
        "send_message, to the engine and back": call,
        "stream_message, to its first event": opening,
        "a chunk that is waited for, from the engine": chunk_from_a_network,
    }
    for title, made in walks.items():
        run(made()).show(title, path=path)
    asyncio.run(chunk_from_a_socket()).show("the same, from a socket", path=path)
    objects, changed = run(state())
    sums = f"{len(objects)} objects, {sum(objects.values())} attributes"
    listed = ", ".join(f"{name} {number}" for name, number in objects.items())
    print(f"state of an open stream: {sums}\n    {listed}")
    print(f"different after a chunk: {len(changed)}, {', '.join(changed)}")


if __name__ == "__main__":
    main()
