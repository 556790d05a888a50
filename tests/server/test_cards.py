"""What the card of a served agent is made of, and what is wrong at construction."""

import asyncio
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from a2a.types import a2a_pb2
from a2a.utils.signing import create_agent_card_signer, create_signature_verifier
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from holdfast import AgentCard, connect
from holdfast.extend import HttpRequest
from holdfast.integrations.a2a_sdk import to_proto
from holdfast.server import A2AServer, Executor
from holdfast.signatures import CardVerifier
from holdfast.testing import AsgiNetwork
from holdfast.types import AgentSkill

URL = "https://agents.example/weather"


async def forecast(message):
    """Tells the weather,
    wherever it is.

    More of it.
    """


class Leading(Executor):
    """Leads."""

    async def execute(self, turn):
        await turn.complete()


def card_of(agent, card=None, **options):
    return A2AServer(agent, card=card, **options).agent_card(url=URL)


def test_a_function_gives_its_name_and_the_first_paragraph_of_its_docstring():
    card = card_of(forecast)

    assert (card.name, card.version) == ("forecast", "1.0.0")
    assert card.description == "Tells the weather, wherever it is."
    assert [(skill.id, skill.description) for skill in card.skills] == [
        ("forecast", "Tells the weather, wherever it is.")
    ]


def test_an_executor_gives_the_name_of_its_class():
    assert (card_of(Leading()).name, card_of(Leading()).description) == ("Leading", "Leads.")


def test_the_interfaces_are_those_that_are_served_in_their_order():
    server = A2AServer(forecast, versions=("1.0", "0.3"))
    bindings = ("HTTP+JSON", "JSONRPC", "GRPC")
    card = server.agent_card(url=f"{URL}/", bindings=bindings, grpc_url="agents.example:50051")

    assert [(i.url, i.protocol_binding) for i in card.supported_interfaces[:3]] == [
        (URL, "HTTP+JSON"),
        (f"{URL}/", "JSONRPC"),
        ("agents.example:50051", "GRPC"),
    ]
    versions = [interface.protocol_version for interface in card.supported_interfaces]
    assert versions == ["1.0"] * 3 + ["0.3"] * 3


CARD = {"name": "weather", "description": "Knows it.", "version": "2.1", "skills": [{"id": "now"}]}


@pytest.mark.parametrize("kind", ["json", "card", "file", "sdk", "stub"])
def test_the_card_is_taken_from_what_there_is(kind, tmp_path):
    path = tmp_path / "card.json"
    path.write_text(json.dumps(CARD))
    given = {
        "json": CARD,
        "card": AgentCard.from_dict(CARD),
        "file": path,
        "sdk": a2a_pb2.AgentCard(
            name="weather",
            description="Knows it.",
            version="2.1",
            skills=[a2a_pb2.AgentSkill(id="now")],
        ),
        "stub": SimpleNamespace(**{**CARD, "skills": [SimpleNamespace(id="now", name="now")]}),
    }[kind]

    card = card_of(forecast, given)

    assert (card.name, card.description, card.version) == ("weather", "Knows it.", "2.1")
    assert [skill.id for skill in card.skills] == ["now"]


def test_a_stub_with_an_executor_is_there_for_the_card_only():
    stub = SimpleNamespace(name="pipeline", description="Many agents.", _system_prompt=["secret"])

    card = card_of(stub, executor=Leading())

    assert (card.name, card.description) == ("pipeline", "Many agents.")
    assert "secret" not in card.to_json()


def test_a_prompt_is_no_description():
    stub = SimpleNamespace(name="agent", _system_prompt=["secret"], instructions="secret")

    assert card_of(stub, executor=Leading()).description == "agent"


def test_what_the_server_offers_is_declared():
    card = card_of(
        forecast, extensions=["urn:x"], extended_card={"name": "more"}, push=True, streaming=False
    )

    capabilities = card.capabilities
    assert (capabilities.streaming, capabilities.push_notifications) == (False, True)
    assert capabilities.extended_agent_card is True
    assert [extension.uri for extension in capabilities.extensions] == ["urn:x"]


def test_the_modifier_has_the_last_word():
    seen = []

    def sign(card):
        seen.append(card)
        signature = {"protected": "p", "signature": "s"}
        return AgentCard.from_dict({**card.to_dict(), "signatures": [signature]})

    card = card_of(forecast, card_modifier=sign)

    assert seen[0].supported_interfaces == card.supported_interfaces
    assert card.signatures[0].signature == "s"


async def test_the_card_is_served_with_a_tag():
    server = A2AServer(forecast)
    network = AsgiNetwork({"http://a.test": server.app(url="http://a.test")})
    address = "http://a.test/.well-known/agent-card.json"
    first = await network.request(HttpRequest(method="GET", url=address))
    headers = {"if-none-match": first.headers["etag"]}
    again = await network.request(HttpRequest(method="GET", url=address, headers=headers))

    assert json.loads(first.body)["name"] == "forecast"
    assert (first.status, again.status, again.body) == (200, 304, b"")
    await server.close()


# ── What is wrong is said at construction ────────────────────────────────────────────────────


def none():
    pass


def keyword(message, *, needed):
    pass


@pytest.mark.parametrize(
    ("make", "kind", "says"),
    [
        (lambda: A2AServer("agent"), TypeError, "agent must be a function"),
        (lambda: A2AServer(Leading), TypeError, "not the class Leading"),
        (lambda: A2AServer(SimpleNamespace(name="x")), TypeError, "pass executor= as well"),
        (lambda: A2AServer(none), TypeError, r"none\(\) must take the message"),
        (lambda: A2AServer(keyword), TypeError, r"keyword\(\) must take the message"),
        (lambda: A2AServer(forecast, card="x.json"), TypeError, "card must be an AgentCard"),
        (lambda: A2AServer(forecast, card={"name": 1}), ValueError, "the card is not valid"),
        (lambda: A2AServer(forecast, card={}), ValueError, "the card has no name"),
        (lambda: A2AServer(forecast, versions=("2.0",)), ValueError, "must be one of 1.0, 0.3"),
        (lambda: A2AServer(forecast, versions=()), ValueError, "at least one"),
        (lambda: A2AServer(forecast, timeout=0), ValueError, "timeout must be a positive"),
        (lambda: A2AServer(forecast, max_body=0), ValueError, "max_body must be at least 1"),
        (lambda: A2AServer(forecast, keep_alive="1"), TypeError, "keep_alive must be a number"),
        (lambda: A2AServer(forecast, push_sender=1), ValueError, "need push=True"),
        (lambda: A2AServer(forecast, push=True, push_sender=1), TypeError, "send_notification"),
        (
            lambda: A2AServer(forecast, task_store={}),
            TypeError,
            "task_store must have the methods",
        ),
        (lambda: A2AServer(forecast, env=1), TypeError, "env must have the methods"),
        (lambda: A2AServer(forecast, max_body="1"), TypeError, "max_body must be a whole number"),
        (lambda: A2AServer(forecast, handler_options=[1]), TypeError, "handler_options must be"),
        (
            lambda: A2AServer(forecast).agent_card(url="http://a.test", grpc_url=1),
            TypeError,
            "grpc_url must be a string",
        ),
        (lambda: A2AServer(forecast, middleware=[1]), TypeError, "middleware must be callables"),
        (lambda: A2AServer(forecast, extensions=[1]), TypeError, "AgentExtension or a URI"),
        (lambda: A2AServer(forecast, versions="1.0"), TypeError, r"pass a list: \['1.0'\]"),
        (lambda: A2AServer(forecast, middleware=none), TypeError, r"pass a list: \[none\]"),
        (lambda: A2AServer(forecast, extensions="urn:x"), TypeError, r"pass a list: \['urn:x'\]"),
        (
            lambda: A2AServer(forecast, push="yes"),
            TypeError,
            "push must be True, False or a store",
        ),
        (lambda: A2AServer(forecast).app(url="agent"), ValueError, "url"),
        (lambda: A2AServer(forecast).app(url=URL, bindings=()), ValueError, "at least one"),
        (lambda: A2AServer(forecast).app(url=URL, bindings="GRPC"), TypeError, "a sequence"),
        (lambda: A2AServer(forecast).app(url=URL, bindings=["GRPC"]), ValueError, "not an ASGI"),
        (lambda: A2AServer(forecast).app(url=URL, bindings=["SOAP"]), ValueError, "one of"),
        (lambda: A2AServer(forecast).serving("0.0.0.0"), ValueError, "address as url="),
        (lambda: A2AServer(forecast).serving(grace=-1), ValueError, "grace"),
        (lambda: A2AServer(forecast).serving(port=70000), ValueError, "between 0 and 65535"),
        (lambda: A2AServer(forecast).serving(grpc_port=70000), ValueError, "grpc_port must be"),
        (
            lambda: A2AServer(forecast).serving(cert_file="x"),
            ValueError,
            "must be passed together",
        ),
    ],
)
def test_a_wrong_argument_is_named(make, kind, says):
    with pytest.raises(kind, match=says):
        make()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("agent_executor", r"first argument: A2AServer\(executor, card=…\)"),
        ("agent_card", "pass it as card="),
        ("extended_agent_card", "pass it as extended_card="),
        ("push_config_store", "pass it as push="),
        ("queue_manager", "pass it in handler_options="),
        ("request_context_builder", "pass it in handler_options="),
        ("context_builder", "pass authenticate= or middleware="),
        ("bindings", r"pass it to app\(\), serving\(\) or serve\(\)"),
        ("port", r"pass it to serving\(\) or serve\(\)"),
    ],
)
def test_an_argument_of_the_sdks_server_is_refused_with_what_replaces_it(name, hint):
    with pytest.raises(TypeError, match=rf"{name!r} is not an option of A2AServer; .*{hint}"):
        A2AServer(forecast, **{name: 1})


def test_a_handler_option_that_the_sdk_does_not_have_is_refused_at_construction():
    with pytest.raises(
        TypeError, match=r"'request_context' is not .*\(handler_options\); did you"
    ):
        A2AServer(forecast, handler_options={"request_context": 1})


@pytest.mark.parametrize(
    ("name", "own"),
    [("task_store", "task_store="), ("push_config_store", "push="), ("agent_card", "card=")],
)
def test_a_handler_option_that_the_server_sets_is_refused_at_construction(name, own):
    with pytest.raises(ValueError, match=f"must not contain {name!r}; pass {own} of A2AServer"):
        A2AServer(forecast, handler_options={name: 1})


def test_every_handler_option_that_the_documentation_lists_is_accepted():
    names = ("queue_manager", "request_context_builder", "extended_card_modifier")
    more = ("validate_input_modes", "event_stream", "interrupted_task_timeout")
    docstring = A2AServer.__doc__
    for name in (*names, *more):
        assert f"``{name}``" in docstring
        A2AServer(forecast, handler_options={name: None}).app(url=URL)


def test_the_signer_of_the_sdk_is_a_card_modifier_whose_signature_both_verify():
    key = ec.generate_private_key(ec.SECP256R1())
    header = {"alg": "ES256", "kid": "2026", "typ": "JOSE", "jku": None}
    metadata = {
        "name": "forecast",
        "securitySchemes": {"bearerAuth": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"bearerAuth": {"list": []}}}],
    }
    card = card_of(forecast, metadata, card_modifier=create_agent_card_signer(key, header))

    verify = create_signature_verifier(lambda kid, jku: key.public_key(), ["ES256"])
    verify(to_proto(card, a2a_pb2.AgentCard))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    async def verified():
        async with connect(
            card.to_dict(), card_verifier=CardVerifier(public), require_signature=True
        ) as client:
            return (await client.agent_card()).security_requirements

    assert asyncio.run(verified()) == card.security_requirements


@pytest.mark.parametrize("missing", ["a2a", "starlette"])
def test_a_missing_package_names_the_extra(missing):
    program = (
        f"import sys; sys.modules['{missing}'] = None\n"
        "from holdfast.server import A2AServer, ProtocolErrors\n"
        "try: A2AServer(lambda message: 'x')\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert 'pip install ".[server]"' in done.stdout


def test_a_skill_may_be_a_name():
    stub = SimpleNamespace(name="x", skills=["sums", AgentSkill(id="s", name="more")])

    assert [skill.name for skill in card_of(stub, executor=Leading()).skills] == ["sums", "more"]
