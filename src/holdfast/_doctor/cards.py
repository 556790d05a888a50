"""Getting an agent's card, and how its server gives it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast._doctor.facts import CardFacts
from holdfast._model import codec
from holdfast._model.operations import CARD_BINDING, WELL_KNOWN
from holdfast._pipeline.cards.fetch import CardLocation
from holdfast._pipeline.cards.files import read_card_file
from holdfast._pipeline.cards.resolver import FETCH_CARD
from holdfast._pipeline.listeners import Observers
from holdfast._pipeline.order import card_source
from holdfast._pipeline.transport import Call, CallGroup, CallProgress
from holdfast._policy.deadline import Deadline
from holdfast._wire.bindings import PROTOCOL_VERSION, protocol_headers
from holdfast._wire.http import HttpRequest, presentable
from holdfast._wire.limits import card_limits
from holdfast._wire.network_scope import NetworkReach, NetworkScope, innermost, scope_of_host
from holdfast._wire.origins import origin
from holdfast.errors import A2AError
from holdfast.types import AgentInterface

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast._doctor.probes import Caller
    from holdfast._doctor.recording_engine import Seen
    from holdfast._pipeline.cards.fetch import FetchedCard
    from holdfast._pipeline.endpoints import Endpoints
    from holdfast._wire.limits import Limits

__all__ = ["card_of_file", "fetch_card"]


async def fetch_card(
    caller: Caller, agent: str, endpoints: Endpoints, seen: Seen, *, timeout: float
) -> tuple[CardFacts, NetworkScope]:
    """Fetches the card of an agent, and asks once more whether it is still the same.

    Args:
        caller: What all requests have in common.
        agent: Where the agent is.
        endpoints: What is known of servers.
        seen: What replies have told.
        timeout: Seconds.

    Returns:
        The card, and where the host lies that has it.

    Raises:
        A2AError: There is none, or it is not usable.
    """
    location, now = CardLocation.of(agent), asyncio.get_running_loop().time()
    source = card_source(
        caller.engine,
        caller.resilience,
        caller.env,
        Observers(()),
        limits=caller.limits,
        networks=(),
    )
    server = AgentInterface(url=origin(agent), protocol_binding=CARD_BINDING)
    before = seen.unauthorized
    reply = await source.unary(
        Call(
            operation=FETCH_CARD,
            params=location,
            request_id=caller.env.new_id(),
            deadline=Deadline(name="call", timeout=timeout, at=now + timeout),
            headers=caller.headers,
            endpoint=endpoints.of(server),
            auth=caller.auth,
            progress=CallProgress(began=now, call_group=CallGroup(caller.secrets)),
        )
    )
    found: FetchedCard = reply.value
    facts = CardFacts(
        card=found.card,
        document=codec.as_object(codec.parse(reply.raw)) or {},
        url=presentable(found.url),
        moved_to=presentable(found.moved_to),
        is_at_older_path=found.url.endswith(WELL_KNOWN[1]) and len(location.urls) > 1,
        headers={name.lower(): value for name, value in reply.headers.items()},
        is_confirmed=await _is_confirmed(caller, found),
        is_guarded=seen.unauthorized > before,
    )
    return facts, found.scope


async def _is_confirmed(caller: Caller, found: FetchedCard) -> bool | None:
    """Whether the server knows that nothing has changed; asked without credentials."""
    conditions = found.caching.conditions()
    if not conditions:
        return None
    accept = {"accept": "application/json"}
    request = HttpRequest(
        method="GET",
        url=found.moved_to,
        headers={**accept, **protocol_headers(PROTOCOL_VERSION), **conditions},
        timeouts=caller.resilience.timeouts,
        limits=card_limits(caller.limits),
        reach=NetworkReach(inward=innermost((found.scope, scope_of_host(found.url)))),
    )
    try:
        reply = await caller.engine.request(request)
    except A2AError:
        return None
    return reply.status == 304 if reply.status < 400 else None


def card_of_file(path: Path, limits: Limits) -> CardFacts:
    """Reads a card from a file.

    Raises:
        A2AError: There is none, or it is not usable.
    """
    card, document = read_card_file(path, limits)
    return CardFacts(
        card=card,
        document=codec.as_object(document) or {},
        url=str(path),
        moved_to=str(path),
        is_fetched=False,
    )
