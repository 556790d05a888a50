"""Extended cards: each is used by those who may see it, and by nobody else."""

import json

from tests.kit.answering_network import Answering, rpc

from holdfast import connect
from holdfast.auth import ClientCallContext
from holdfast.compat import InMemoryContextCredentialStore
from holdfast.testing import FakeAgent

SPOKEN = {
    "url": "http://agent.test/rpc",
    "protocolBinding": "JSONRPC",
    "protocolVersion": "1.0",
}


async def test_the_extended_card_of_one_session_is_not_used_by_another():
    scheme = {"it": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}
    card = {
        "name": "Many",
        "supportedInterfaces": [SPOKEN],
        "capabilities": {"extendedAgentCard": True},
        "securitySchemes": scheme,
        "securityRequirements": [{"schemes": {"it": {"list": []}}}],
    }
    asked = []

    def answer(request):
        document = json.loads(request.body)
        who = request.headers["authorization"].partition(" ")[2]
        if document["method"] == "GetExtendedAgentCard":
            [own] = card["supportedInterfaces"]
            return rpc(request, result={**card, "supportedInterfaces": [{**own, "tenant": who}]})
        asked.append((who, document["params"].get("tenant")))
        task = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
        return rpc(request, result=task)

    store = InMemoryContextCredentialStore()
    for session in ("alice", "bob"):
        await store.set_credentials(session, "it", session)
    client = connect(
        "http://agent.test", engine=Answering(answer, FakeAgent(card=card)), auth=store
    )
    alice, bob = (ClientCallContext(state={"sessionId": who}) for who in ("alice", "bob"))
    await client.get_extended_agent_card(context=alice)
    await client.get_task("t", context=bob)

    assert asked == [("bob", None)]


async def test_an_extended_card_fetched_with_headers_of_one_call_is_not_used_by_others():
    own = {
        "name": "Public",
        "supportedInterfaces": [SPOKEN],
        "capabilities": {"extendedAgentCard": True},
    }
    network = Answering(lambda request: rpc(request, result={**own, "name": "Extended"}))
    client = connect(own, engine=network)

    extended = await client.get_extended_agent_card(headers={"authorization": "Bearer alice"})
    assert (extended.name, (await client.agent_card()).name) == ("Extended", "Public")

    await client.get_extended_agent_card()
    assert (await client.agent_card()).name == "Extended"
