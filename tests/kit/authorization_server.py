"""An authorization server in process: an engine, a scripted one, that keeps what it was asked."""

import asyncio
import json
from urllib.parse import parse_qs, urlsplit

from holdfast._aio.env import SystemEnv
from holdfast.errors import A2AConnectionError
from holdfast.extend import HttpReply

__all__ = ["ISSUER", "FakeAuthorizationServer", "VirtualEnv", "answer", "away", "refused"]

ISSUER = "https://id.test"


class FakeAuthorizationServer:
    """Gives out tokens ``token-1``, ``token-2`` …; what is for others goes to `agents`.

    Attributes:
        asked: The parameters of each request to the token endpoint.
        requests: Every request that came.
        replies: What is answered next, in place of a token: a reply, or an error to raise.
        lifetime: Seconds that its tokens live; None for saying nothing.
        latency: Seconds until it answers.
        ended: How many requests were given up by who made them.
        guard: Answers requests to agents in their place; None lets them pass.
        at: Its origin.
    """

    def __init__(
        self, agents=None, *, lifetime=3600, latency=0.0, refreshes=False, issuer=None, at=ISSUER
    ):
        self.agents = agents
        self.at = at
        issuer = at if issuer is None else issuer
        self.lifetime = lifetime
        self.latency = latency
        self.refreshes = refreshes
        self.issuer = issuer
        self.asked = []
        self.requests = []
        self.replies = []
        self.device = {
            "device_code": "device-secret",
            "user_code": "ABCD-EFGH",
            "verification_uri": f"{at}/device",
            "expires_in": 300,
            "interval": 5,
        }
        self.metadata = {
            "issuer": issuer,
            "token_endpoint": f"{at}/token",
            "authorization_endpoint": f"{at}/authorize",
            "device_authorization_endpoint": f"{at}/device_authorization",
            "code_challenge_methods_supported": ["plain", "S256"],
        }
        self.spent = set()
        self.ended = 0
        self.count = 0
        self.scope = None
        self.guard = None

    async def request(self, request):
        if not request.url.startswith(self.at) and self.agents is not None:
            refusal = None if self.guard is None else self.guard(request)
            return await self.agents.request(request) if refusal is None else refusal
        return await self.answered(request)

    async def answered(self, request):
        self.requests.append(request)
        try:
            await asyncio.sleep(self.latency)
        except asyncio.CancelledError:
            self.ended += 1
            raise
        path = urlsplit(request.url).path
        if path.endswith(("openid-configuration", "oauth-authorization-server")):
            return answer(self.metadata) if self.metadata else answer({}, 404)
        said = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        if path == "/device_authorization":
            return answer(self.device)
        return self.token(said) if path == "/token" else answer({}, 404)

    def token(self, said):
        self.asked.append(said)
        if self.replies:
            reply = self.replies.pop(0)
            if isinstance(reply, Exception):
                raise reply
            return reply
        if said["grant_type"] == "refresh_token":
            if said["refresh_token"] in self.spent:
                return answer({"error": "invalid_grant"}, 400)
            self.spent.add(said["refresh_token"])
        self.count += 1
        token = {"access_token": f"token-{self.count}", "token_type": "bearer"}
        if self.lifetime is not None:
            token["expires_in"] = self.lifetime
        if self.refreshes:
            token["refresh_token"] = f"refresh-{self.count}"
        if self.scope is not None:
            token["scope"] = self.scope
        return answer(token)

    def stream(self, request):
        return self.agents.stream(request)

    async def close(self):
        pass


class VirtualEnv(SystemEnv):
    """Wall time that goes with the loop's clock, and can be set besides."""

    def __init__(self):
        super().__init__()
        self.offset = 1_700_000_000.0

    def wall(self):
        return self.offset + asyncio.get_running_loop().time()


def answer(document, status=200, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return HttpReply(
        status=status, headers={"content-type": "application/json", **named}, body=body
    )


def refused(error, status=400, **headers):
    return answer({"error": error, "error_description": f"said {error}"}, status, **headers)


def away():
    return A2AConnectionError("refused", failure="refused", executed=False, transient=True)
