"""Cards and credentials; the contract is that of ``test_messages.py``."""

import asyncio
import json
from urllib.parse import urlsplit

import pytest
from tests.kit.contract import SOON, contract, get_json
from tests.kit.real_agents import LIMIT, TOKEN

from holdfast import (
    AgentCard,
    AuthenticationError,
    SchemeCredentials,
    connect,
)

pytestmark = [pytest.mark.sdk, pytest.mark.real_time]

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


# ── Cards ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S20", "D12")
@contract
async def test_s20_agent_is_called_at_the_address_and_in_the_version_of_its_card(agent):
    async with agent, agent.client() as client:
        before = len(await agent.requests())
        answer = await client.ask("echo hello")
        card = await client.agent_card()
        requests = [r for r in (await agent.requests())[before:] if not is_for_card(r)]

    assert answer.text == "hello"
    interfaces = {interface.protocol_binding: interface for interface in card.supported_interfaces}
    assert {i.protocol_version[:3] for i in interfaces.values()} == {agent.version}
    assert {version for _, version in requests} == {agent.version}
    if agent.binding != "GRPC":
        path = urlsplit(interfaces[agent.binding].url).path.rstrip("/")
        is_below = (agent.version, agent.binding) == ("0.3", "HTTP+JSON")
        assert all(name.startswith(f"{path}/v1" * is_below or path) for name, _ in requests)


def is_for_card(request):
    path, _version = request
    return path is not None and path.startswith("/.well-known/")


@pytest.mark.rule("S20")
@contract
@pytest.mark.parametrize("form", ["file", "dict", "card"])
async def test_s20_card_may_be_a_file_a_dict_or_an_object(agent, form, tmp_path):
    async with agent:
        document = await get_json(f"{agent.origin}/.well-known/agent-card.json")
        file = tmp_path / "card.json"
        file.write_text(json.dumps(document))
        async with agent.client() as client:
            card = await client.agent_card()
        assert isinstance(card, AgentCard)

        given = {"file": file, "dict": document, "card": card}[form]
        async with connect(given, bindings=[agent.binding]) as client:
            assert (await client.ask("echo hello")).text == "hello"


@contract
async def test_card_names_the_interfaces_in_order(agent):
    async with agent, agent.client() as client:
        card = await client.agent_card()

    named = [(i.protocol_binding, i.url) for i in card.supported_interfaces]
    assert named[:2] == [("JSONRPC", f"{agent.url}/rpc"), ("HTTP+JSON", f"{agent.url}/rest")]
    assert [binding for binding, _ in named[2:]] == ["GRPC"] * (agent.kind == "sdk")
    assert card.capabilities.extended_agent_card


@contract
async def test_extended_card_replaces_the_public_one(agent):
    async with agent, agent.client() as client:
        public = await client.agent_card()
        extended = await client.get_extended_agent_card()
        current = await client.agent_card()
        answer = await client.ask("echo hello", **SOON)

    assert extended.name == f"{public.name}, extended"
    assert current == extended
    if agent.kind != "fake":
        assert [skill.name for skill in extended.skills] == ["script", "secret"]
    assert answer.text == "hello"


# ── Credentials ──────────────────────────────────────────────────────────────────────────────


@contract
async def test_operations_need_the_right_token(agent):
    agent.token = TOKEN
    async with agent:
        async with agent.client() as client:
            card = await client.agent_card()
        addresses = {i.protocol_binding: i.url for i in card.supported_interfaces}
        # gRPC has another port, to which credentials go only on request.
        origins = [f"grpc://{addresses['GRPC']}"] if agent.binding == "GRPC" else []
        executed = len(await agent.executions())
        for auth in (None, "Bearer wrong"):
            async with agent.client(auth=auth, credential_origins=origins) as client:
                for call, argument in ((client.ask, "echo hello"), (client.get_task, "x")):
                    with pytest.raises(AuthenticationError) as caught:
                        await call(argument)
                    assert caught.value.executed is False
                    assert "wrong" not in str(caught.value)
                    if agent.binding == "GRPC":
                        continue
                    assert caught.value.http_status == 401
                    if agent.kind == "fake" or agent.is_sdk("1.0", agent.binding):
                        assert caught.value.headers.get("www-authenticate") == "Bearer"
        assert len(await agent.executions()) == executed
        async with agent.client(auth=f"Bearer {TOKEN}", credential_origins=origins) as client:
            assert (await client.ask("echo hello", **SOON)).text == "hello"
            card = await client.agent_card()

    if agent.kind == "sdk":
        (scheme,) = card.security_schemes.values()
        assert scheme.http_auth_security_scheme.scheme == "Bearer"
        assert len(card.security_requirements) == 1


SCHEMES = {
    "bearer": "bearer-token",
    "basic": "user:päss:word",
    "header": "header key",
    "query": "query&key=+ü",
    "cookie": "cookie-key",
    "oauth": "oauth-token",
    "oidc": "oidc-token",
}
"""The credentials that the agent requires, by the names of its card's schemes."""


@both_bindings
@pytest.mark.parametrize(
    ("needs", "given", "missing"),
    [
        *((scheme, [scheme], [scheme]) for scheme in SCHEMES),
        ("header+query", ["header", "query"], ["query"]),
        ("basic,cookie", ["basic"], ["basic", "cookie"]),
        ("basic,cookie", ["cookie"], ["basic", "cookie"]),
    ],
)
async def test_client_sends_the_credentials_that_the_card_requires(
    sdk_url, binding, needs, given, missing
):
    url = f"{sdk_url}/needs/{needs}"
    async with asyncio.timeout(LIMIT):
        service = SchemeCredentials({scheme: SCHEMES[scheme] for scheme in given})
        async with connect(url, bindings=[binding], auth=service) as client:
            assert (await client.ask("echo hello", **SOON)).text == "hello"
            assert (await client.list_tasks(limit=1)).tasks
        wrong = SchemeCredentials({scheme: f"{SCHEMES[scheme]}x" for scheme in given})
        async with connect(url, bindings=[binding], auth=wrong) as client:
            with pytest.raises(AuthenticationError) as caught:
                await client.ask("echo hello")
            assert (caught.value.http_status, caught.value.executed) == (401, False)
        less = SchemeCredentials({s: SCHEMES[s] for s in SCHEMES if s not in missing})
        async with connect(url, bindings=[binding], auth=less) as client:
            with pytest.raises(AuthenticationError) as caught:
                await client.ask("echo hello")
            assert caught.value.http_status is None
            assert caught.value.missing == tuple(missing)
