"""Holdfast as a caller: `connect`, and the events of `stream_message`.

``--on-unknown`` sets the option of the same name; ``--search-timeout`` bounds the search for a
message whose reply was lost, in seconds.
"""

from __future__ import annotations

import argparse
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from caller import PATIENCE, Text, run

from holdfast import Message, Part, ReconcilePolicy, Resilience, Role, Timeouts, connect
from holdfast.types import Task, TaskArtifactUpdateEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from caller import Send

    from holdfast.policies import OnUnknown
    from holdfast.types import Event


@contextlib.asynccontextmanager
async def holdfast(
    url: str, *, on_unknown: OnUnknown, reconcile: ReconcilePolicy
) -> AsyncIterator[Send]:
    """A client with all layers on."""
    timeouts = Timeouts(first_byte=PATIENCE, idle=PATIENCE)
    resilience = Resilience(timeouts=timeouts, reconcile=reconcile)
    async with connect(url, resilience=resilience, on_unknown=on_unknown) as client:
        await client.agent_card()

        async def send(message_id: str, text: str) -> str:
            parts = (Part(text=text),)
            message = Message(message_id=message_id, role=Role.USER, parts=parts)
            got = Text()
            async with client.stream_message(message) as events:
                async for event in events:
                    _add(got, event)
            return str(got)

        yield send


def _add(got: Text, event: Event) -> None:
    match event:
        case TaskArtifactUpdateEvent(artifact=artifact):
            got.add(artifact.artifact_id, artifact.text, append=bool(event.append))
        case Task():
            for artifact in event.artifacts:
                got.add(artifact.artifact_id, artifact.text, append=False)
        case _:
            pass


def main() -> None:
    """Make the calls that standard input requests."""
    parser = argparse.ArgumentParser(description="Call agents with Holdfast.")
    parser.add_argument("--on-unknown", default="reconcile")
    parser.add_argument("--search-timeout", type=float, default=ReconcilePolicy().timeout)
    options = parser.parse_args()
    settings = [f"`Timeouts(first_byte={PATIENCE:g}, idle={PATIENCE:g})` (120 by default)"]
    if options.on_unknown != parser.get_default("on_unknown"):
        settings.append(f'`on_unknown="{options.on_unknown}"`')
    if options.search_timeout != parser.get_default("search_timeout"):
        settings.append(f"`ReconcilePolicy(timeout={options.search_timeout:g})`")
    reconcile = ReconcilePolicy(timeout=options.search_timeout)
    caller = partial(holdfast, on_unknown=options.on_unknown, reconcile=reconcile)
    run(caller, "holdfast", "aiohttp", settings=settings)


if __name__ == "__main__":
    main()
