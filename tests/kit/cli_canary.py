"""A credential of the command line, and each place where it can be given."""

from dataclasses import dataclass, field

from tests.kit.cli_harness import AGENT

from holdfast.testing import FakeAgent
from holdfast.types import AgentCard, AgentInterface, APIKeySecurityScheme, SecurityScheme

CANARY = "canary+/4bd1f0a7="
"""Reads differently in a query, where it is percent-encoded."""


@dataclass(frozen=True)
class Place:
    """Where a credential is given."""

    words: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    file: str = ""
    card: str = AGENT


PLACES = {
    "flag bearer": Place(words=("--bearer", CANARY)),
    "flag key": Place(words=("--api-key", CANARY)),
    "flag param": Place(words=("--svc-param", f"authorization:Basic {CANARY}")),
    "odd param": Place(words=("--svc-param", f"x-trace:{CANARY}")),
    "environment bearer": Place(env={"A2ACLI_BEARER": CANARY}),
    "environment key": Place(env={"A2ACLI_API_KEY": CANARY}),
    "environment param": Place(env={"A2ACLI_SVC_PARAM": f"x-my-token:{CANARY}"}),
    "file bearer": Place(file=f"A2ACLI_BEARER={CANARY}\n"),
    "file key": Place(file=f"A2ACLI_API_KEY='{CANARY}'\n"),
    "file param": Place(file=f"A2ACLI_SVC_PARAM=x-my-key:{CANARY}\n"),
    "file card": Place(file=f"A2ACLI_AGENT_CARD={AGENT}/card.json?key={CANARY}\n", card=""),
    "user": Place(card="http://canary4bd1f0a7@agent.test"),
    "password": Place(card=f"http://me:{CANARY}@agent.test"),
    "password of a bare host": Place(card=f"me:{CANARY}@agent.test"),
    "password of a file": Place(card=f"file://me:{CANARY}@agent.test/card.json"),
    "query": Place(card=f"{AGENT}/card.json?key={CANARY}"),
    "bare query": Place(card=f"{AGENT}/card.json?canary4bd1f0a7=="),
    "environment query": Place(env={"A2ACLI_AGENT_CARD": f"{AGENT}?sig={CANARY}"}, card=""),
}


def guarded(location):
    """An agent that wants an API key in some place."""
    scheme = SecurityScheme(
        api_key_security_scheme=APIKeySecurityScheme(location=location, name="the-key")
    )
    interface = AgentInterface(
        url=f"{AGENT}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
    )
    card = AgentCard(
        name="Guarded", supported_interfaces=(interface,), security_schemes={"k": scheme}
    )
    return FakeAgent(card=card)
