"""Tokens of a real authorization server, django-oauth-toolkit's, on loopback."""

import asyncio
import json
from urllib.parse import urlsplit

import pytest
from tests.kit.real_agents import LIMIT, oauth_process

from holdfast import AiohttpEngine, AuthenticationError, connect
from holdfast.auth.oauth import (
    AuthorizationCode,
    AuthorizationServer,
    ClientCredentials,
    DeviceCode,
    FileTokenStore,
    MemoryTokenStore,
)
from holdfast.extend import HttpRequest
from holdfast.testing import FakeAgent, LoopbackServer

pytestmark = [pytest.mark.oauth, pytest.mark.real_time]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with oauth_process(tmp_path_factory.mktemp("oauth") / "errors") as said:
        yield said


async def get(engine, url, **headers):
    return await engine.request(HttpRequest(method="GET", url=url, headers=headers))


def device_server(at):
    return AuthorizationServer(
        token_endpoint=f"{at}/o/token/",
        device_authorization_endpoint=f"{at}/o/device-authorization/",
    )


class Guarded:
    """An engine whose agents ask the authorization server what a token is worth."""

    def __init__(self, engine, at):
        self._engine, self._at = engine, at

    async def request(self, request):
        if urlsplit(request.url).path == "/rpc":
            # Whom the token is for is compared with the address that was called (RFC 8707).
            shown = {"authorization": request.headers.get("authorization", "")}
            shown["host"] = urlsplit(request.url).netloc
            checked = await get(self._engine, f"{self._at}/check", **shown)
            if checked.status != 200:
                return checked
        return await self._engine.request(request)

    def stream(self, request):
        return self._engine.stream(request)

    async def close(self):
        pass


@pytest.mark.rule("P04")
async def test_client_credentials_by_discovery_and_one_replay_after_a_token_was_ended(server):
    at = server["url"]
    auth = ClientCredentials(f"{at}/o", "machine", server["secret"], scopes=["a2a"])
    agent = FakeAgent(streaming=False)
    async with asyncio.timeout(LIMIT), AiohttpEngine() as engine, LoopbackServer(agent) as agents:
        async with connect(agents.url, auth=auth, engine=Guarded(engine, at)) as client:
            await asyncio.gather(*(client.send_message("hello") for _ in range(5)))
            first = (await auth.token(await client.agent_card())).access_token
            await get(engine, f"{at}/revoke?token={first}")
            await client.send_message("hello")
            second = await auth.token(await client.agent_card())
        shown = {"authorization": f"Bearer {second.access_token}"}
        at_others = await get(engine, f"{at}/check", **shown, host="127.0.0.1:1")

    shown = [one.headers.get("authorization") for one in agent.received if "rpc" in one.url]
    assert shown == [f"Bearer {first}"] * 5 + [f"Bearer {second.access_token}"]
    assert second.scopes == ("a2a",)
    assert at_others.status == 401


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("machine", {"client_secret": "wrong"}, "invalid_client"),
        ("nobody", {}, "invalid_client"),
        ("machine", {"scopes": ["unheard-of"]}, "invalid_scope"),
    ],
)
async def test_what_the_server_refuses(name, change, code, server):
    options = {"client_secret": server["secret"], "scopes": ["a2a"], **change}
    auth = ClientCredentials(f"{server['url']}/o", name, **options)
    async with asyncio.timeout(LIMIT):
        with pytest.raises(AuthenticationError, match=code) as caught:
            await auth.token()

    assert caught.value.data["error"] == code
    assert server["secret"] not in str(vars(caught.value))


async def test_a_person_allows_it_in_a_browser_that_comes_to_a_port_of_ours(server, tmp_path):
    store = FileTokenStore(tmp_path)

    async def browse(url):
        browsing.append(asyncio.create_task(follow(url)))

    async def follow(url):
        async with AiohttpEngine() as engine:
            sent = await get(engine, url)
            assert sent.status == 302, sent.body
            back = sent.headers["location"]
            # A page that guesses the port does not know the state, and ends nothing.
            forged = back.replace("state=", "state=x")
            seen.append((await get(engine, forged, host="x")).status)
            seen.append((await get(engine, back)).status)

    browsing, seen = [], []
    auth = AuthorizationCode(
        f"{server['url']}/o", "browser", open_url=browse, scopes=["a2a"], store=store
    )
    async with asyncio.timeout(LIMIT):
        token = await auth.token()
        await asyncio.gather(*browsing)
        async with AiohttpEngine() as engine:
            shown = {"authorization": f"Bearer {token.access_token}"}
            assert (await get(engine, f"{server['url']}/check", **shown)).status == 200

    assert seen == [404, 200]
    assert token.refresh_token


async def test_a_device_is_allowed_and_its_token_renewed_with_rotation(server):
    at, store = server["url"], MemoryTokenStore()
    prompts = []

    async def prompt(told):
        prompts.append(told)
        async with AiohttpEngine() as engine:
            done = await get(engine, f"{at}/allow?user_code={told.user_code}")
            assert json.loads(done.body) == {"allowed": True}

    auth = DeviceCode(device_server(at), "device", prompt, scopes=["a2a"], store=store)
    async with asyncio.timeout(LIMIT):
        first = await auth.token()
        # Another one, which finds the token in its last moments.
        late = DeviceCode(
            device_server(at), "device", prompt, scopes=["a2a"], store=store, env=Later()
        )
        second = await late.token()

    assert len(prompts) == 1
    assert first.refresh_token != second.refresh_token
    assert first.access_token != second.access_token


class Later:
    """Wall time an hour later."""

    def wall(self):
        import time

        return time.time() + 3600

    def random(self):
        return 0.5

    def new_id(self):
        return "id"
