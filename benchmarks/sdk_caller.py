"""The official SDK as a caller: the client of a `ClientFactory`, and the events that it gives.

``--transport`` names the transport below it: ``sdk``, its own; ``retry``, a `RetryTransport`
around it, which with ``--resend-ambiguous`` also resends messages that may have been executed;
``holdfast``, that of `client_factory`, which searches for a message whose reply was lost for
``--search-timeout`` seconds.
"""

from __future__ import annotations

import argparse
import contextlib
from functools import partial
from typing import TYPE_CHECKING

import httpx
from a2a.client.client import ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest
from caller import PATIENCE, Text, run

from holdfast import ReconcilePolicy, Resilience, Timeouts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from contextlib import AbstractAsyncContextManager

    from a2a.client.client import Client
    from a2a.types.a2a_pb2 import AgentCard, StreamResponse
    from caller import Send

    Factory = AbstractAsyncContextManager[ClientFactory]


@contextlib.asynccontextmanager
async def sdk(url: str, *, factory: Callable[[], Factory]) -> AsyncIterator[Send]:
    """A client of the SDK's."""
    async with factory() as made:
        client = await made.create_from_url(url)
        try:
            yield partial(_send, client)
        finally:
            await client.close()


async def _send(client: Client, message_id: str, text: str, /) -> str:
    message = Message(message_id=message_id, role=Role.ROLE_USER, parts=[Part(text=text)])
    got = Text()
    async for event in client.send_message(SendMessageRequest(message=message)):
        _add(got, event)
    return str(got)


def _add(got: Text, event: StreamResponse) -> None:
    match event.WhichOneof("payload"):
        case "artifact_update":
            update = event.artifact_update
            artifact = update.artifact
            got.add(artifact.artifact_id, _text(artifact.parts), append=update.append)
        case "task":
            for artifact in event.task.artifacts:
                got.add(artifact.artifact_id, _text(artifact.parts), append=False)
        case _:
            pass


def _text(parts: Iterable[Part]) -> str:
    return "".join(part.text for part in parts)


@contextlib.asynccontextmanager
async def alone(_: argparse.Namespace) -> AsyncIterator[ClientFactory]:
    """The SDK's factory as it is."""
    yield ClientFactory()


@contextlib.asynccontextmanager
async def retrying(options: argparse.Namespace) -> AsyncIterator[ClientFactory]:
    """A factory with a `RetryTransport` around the SDK's own transport."""
    from holdfast.integrations.a2a_sdk import RetryTransport

    async with httpx.AsyncClient() as http:

        def transport(card: AgentCard, url: str, _: ClientConfig) -> RetryTransport:
            own = JsonRpcTransport(http, card, url)
            return RetryTransport(own, resend_ambiguous=options.resend_ambiguous)

        factory = ClientFactory(ClientConfig(httpx_client=http))
        factory.register("JSONRPC", transport)
        yield factory


@contextlib.asynccontextmanager
async def holding(options: argparse.Namespace) -> AsyncIterator[ClientFactory]:
    """The factory of Holdfast."""
    from holdfast.integrations.a2a_sdk import client_factory

    resilience = Resilience(
        timeouts=Timeouts(first_byte=PATIENCE, idle=PATIENCE),
        reconcile=ReconcilePolicy(timeout=options.search_timeout),
    )
    yield client_factory(resilience=resilience)


FACTORIES = {"sdk": alone, "retry": retrying, "holdfast": holding}


def main() -> None:
    """Make the calls that standard input requests."""
    parser = argparse.ArgumentParser(description="Call agents with the official SDK.")
    parser.add_argument("--transport", choices=FACTORIES, default="sdk")
    parser.add_argument("--resend-ambiguous", action="store_true")
    parser.add_argument("--search-timeout", type=float, default=ReconcilePolicy().timeout)
    options = parser.parse_args()
    settings, distributions = [], ["a2a-sdk", "httpx"]
    if options.transport != "sdk":
        distributions.append("holdfast")
    if options.resend_ambiguous:
        settings.append("`resend_ambiguous=True`")
    if options.transport == "holdfast":
        distributions.append("aiohttp")
        settings.append(f"`Timeouts(first_byte={PATIENCE:g}, idle={PATIENCE:g})` (120 by default)")
    if options.search_timeout != parser.get_default("search_timeout"):
        settings.append(f"`ReconcilePolicy(timeout={options.search_timeout:g})`")
    factory = partial(FACTORIES[options.transport], options)
    run(partial(sdk, factory=factory), *distributions, settings=settings)


if __name__ == "__main__":
    main()
