"""A credential, each place where a client can be given it, and all that could show it."""

import base64
import html
import inspect
import json
import traceback
from urllib.parse import quote, quote_plus

from holdfast import (
    A2AError,
    ReconcilePolicy,
    Resilience,
    RetryPolicy,
    SchemeCredentials,
    Timeouts,
)
from holdfast.auth import ClientCallContext, Credentials, StaticAuth
from holdfast.compat import AuthInterceptor, InMemoryContextCredentialStore
from holdfast.extend import Interceptor

CANARY = "kAnari-5f3c9b7e+tw/eet~77=="
"""Something that a token may be, and that every encoding changes."""


SPELLINGS = {
    CANARY,
    quote(CANARY),
    quote(CANARY, safe=""),
    quote_plus(CANARY),
    html.escape(CANARY),
    json.dumps(CANARY)[1:-1],
    base64.b64encode(CANARY.encode()).decode().rstrip("="),
    base64.b64encode(f"user:{CANARY}".encode()).decode().rstrip("="),
    CANARY.encode().hex(),
    *(base64.b64encode(bytes(n) + CANARY.encode()).decode()[4:-4] for n in (1, 2)),
}


HOST = "http://agent.test"


SCHEMES = {
    "bearer": ({"httpAuthSecurityScheme": {"scheme": "Bearer"}}, CANARY),
    "basic": ({"httpAuthSecurityScheme": {"scheme": "basic"}}, f"user:{CANARY}"),
    "oauth": ({"openIdConnectSecurityScheme": {"openIdConnectUrl": f"{HOST}/oidc"}}, CANARY),
    **{
        f"{place} key": (
            {"apiKeySecurityScheme": {"location": place, "name": "k"}},
            CANARY,
        )
        for place in ("header", "query", "cookie")
    },
}


class Provider:
    """Credentials in every place that there is."""

    def __init__(self):
        self.refused = []

    async def credentials(self, call):
        return Credentials(
            headers={"x-own": CANARY}, query={"own": CANARY}, cookies={"own": CANARY}
        )

    async def on_unauthorized(self, call, error):
        self.refused.append(repr(call))
        return True


def by_scheme(name):
    scheme, credential = SCHEMES[name]
    return {
        "auth": SchemeCredentials({"it": credential}),
        "card": {
            "securitySchemes": {"it": scheme},
            "securityRequirements": [{"schemes": {"it": {"list": []}}}],
        },
    }


async def by_session():
    store = InMemoryContextCredentialStore()
    await store.set_credentials("s", "it", CANARY)
    return {
        **by_scheme("bearer"),
        "auth": None,
        "interceptors": [AuthInterceptor(store)],
        "call": {"context": ClientCallContext(state={"sessionId": "s", "secret": CANARY})},
    }


PLACES = {
    "authorization": lambda: {"auth": f"Bearer {CANARY}"},
    "authorization without a scheme": lambda: {"auth": {"authorization": CANARY}},
    "headers of auth": lambda: {"auth": {"X-API-Key": CANARY}},
    "static": lambda: {"auth": StaticAuth({"x-short": CANARY})},
    "provider": lambda: {"auth": Provider()},
    "headers": lambda: {"headers": {"X-Own": CANARY}},
    "headers of a call": lambda: {"call": {"headers": {"X-Own": CANARY}}},
    "cookie": lambda: {"headers": {"Cookie": f"a=b; session={CANARY}"}},
    "query of the card": lambda: {"agent": f"{HOST}/card.json?key={quote(CANARY, safe='')}"},
    "query of the interface": lambda: {"url": f"{HOST}/rpc?key={quote(CANARY, safe='')}"},
    "session": by_session,
    **{name: lambda name=name: by_scheme(name) for name in SCHEMES},
}


async def options_for(place):
    options = PLACES[place]()
    return await options if inspect.isawaitable(options) else options


class Listening(Interceptor):
    """Notes how calls and failures present themselves."""

    def __init__(self):
        self.seen = []

    async def before(self, call):
        self.seen += [repr(call), str(call)]
        return call

    async def after(self, call, outcome):
        if isinstance(outcome, A2AError):
            self.seen += [repr(outcome), str(outcome)]
        return outcome


def everything_in(*values):
    """Whatever can be reached from values, as text."""
    left, known = list(values), {}
    while left:
        value = left.pop()
        if id(value) in known:
            continue
        known[id(value)] = value
        yield str(value)
        yield repr(value)
        if isinstance(value, BaseException):
            yield "".join(traceback.format_exception(value))
            left += [value.__cause__, value.__context__, value.args, vars(value)]
        elif isinstance(value, dict):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            left += value


def shown(texts):
    """The spellings of the canary that show in texts, with what is around the first of them."""
    whole = "\n".join(texts)
    return [
        whole[max(whole.find(spelling) - 80, 0) :][: 160 + len(spelling)]
        for spelling in SPELLINGS
        if spelling in whole
    ]


def brisk():
    return Resilience(
        retry=RetryPolicy(max_retries=1, base_delay=0.001),
        timeouts=Timeouts(connect=2, first_byte=2),
        reconcile=ReconcilePolicy(timeout=0.01),
    )
