"""The transports for httpx and httpx2 as a caller's program uses them, for type checkers."""

# What must be refused is marked as ignored; an ignored line that is right is an error as well.
# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import assert_type

import aiohttp
import httpx
import httpx2

from holdfast import AiohttpEngine, Limits, Resilience
from holdfast.extend import Endpoints, Env
from holdfast.integrations.httpx import Transport
from holdfast.integrations.httpx2 import Transport as Transport2
from holdfast.observe import Observation


def watch(observation: Observation) -> None:
    assert_type(observation.operation_id, str)


async def for_httpx(env: Env, session: aiohttp.ClientSession) -> None:
    shared = Endpoints()
    async with Transport() as transport:
        assert_type(transport, Transport)
    transport = Transport(
        resilience=Resilience.off(),
        timeout=60,
        limits=Limits(body=1000),
        engine=AiohttpEngine(),
        shared=shared,
        env=env,
        observers=[watch],
    )
    lent: httpx.AsyncBaseTransport = Transport(engine=session)
    async with httpx.AsyncClient(transport=transport, mounts={"https://": lent}) as client:
        await client.get("https://agent.example.com")
    request = httpx.Request("GET", "https://agent.example.com")
    assert_type(await transport.handle_async_request(request), httpx.Response)
    await transport.aclose()
    Transport(resilience=True)  # type: ignore[arg-type]
    Transport(Resilience())  # type: ignore[call-arg]
    httpx2.AsyncClient(transport=transport)  # type: ignore[arg-type]


async def for_httpx2() -> None:
    async with httpx2.AsyncClient(transport=Transport2(timeout=60)) as client:
        await client.get("https://agent.example.com")
    request = httpx2.Request("GET", "https://agent.example.com")
    assert_type(await Transport2().handle_async_request(request), httpx2.Response)
    httpx.AsyncClient(transport=Transport2())  # type: ignore[arg-type]
