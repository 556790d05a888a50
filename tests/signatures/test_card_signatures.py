"""Signatures of agent cards: verification, the part of a card that is used, sources of keys."""

import asyncio
import base64
import copy
import json

import jwt
import msgspec
import pytest
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.types import AgentCard as ProtobufCard
from a2a.utils.signing import create_agent_card_signer, create_signature_verifier
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from google.protobuf.json_format import ParseDict
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from tests.kit.asgi_server import serving
from tests.kit.card_signing import (
    CARD,
    DOCUMENT,
    KEYS_URL,
    SIGNER,
    Net,
    Signer,
    as_sdk_signs,
    document,
    page,
)
from tests.kit.effort import rounds
from tests.kit.real_agents import LIMIT

from holdfast import A2AConnectionError, DeadlineExceededError, SchemeCredentials, connect
from holdfast._model.card_reading import read_card
from holdfast._wire.canonical import canonical_json, signed_forms
from holdfast.errors import CardSignatureError, InvalidAgentCardError
from holdfast.observe import CardChecked
from holdfast.signatures import CardVerifier, sign_card
from holdfast.testing import FakeAgent, FakeNetwork, run
from holdfast.types import StringList

SIGNED = SIGNER.sign(DOCUMENT)
TRUSTED = CardVerifier(SIGNER.jwks)


async def judged(card, verifier=TRUSTED, **options):
    """Return the verification of a card, and the card that is used."""
    async with connect(card, card_verifier=verifier, **options) as client:
        used = await client.agent_card()
        return client.card_verification, used


async def refused(card, verifier=TRUSTED, **options):
    with pytest.raises(CardSignatureError) as caught:
        await judged(card, verifier, **options)
    assert caught.value.executed is False
    return caught.value


def entry(signer=SIGNER, payload=None, *, header=None, alg=None):
    """Return a manual signature of a document in the named form."""
    fields = {"alg": alg or signer.algorithm, "kid": signer.kid, **(header or {})}
    token = jwt.api_jws.encode(payload, signer.key, algorithm=signer.algorithm, headers=fields)
    protected, _, signature = token.split(".")
    return {"protected": protected, "signature": signature}


def with_entry(**signature):
    return document(signatures=[signature])


# ── Verification ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "signer",
    [
        SIGNER,
        Signer("k-384", ec.generate_private_key(ec.SECP384R1()), "ES384"),
        Signer("k-rsa", rsa.generate_private_key(65537, 2048), "RS256"),
        Signer("k-ps", rsa.generate_private_key(65537, 2048), "PS256"),
        Signer("k-ed", ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
    ids=lambda signer: signer.algorithm,
)
async def test_a_card_is_verified_by_its_key(signer):
    verification, used = await judged(
        signer.sign(document()), CardVerifier(signer.jwks), require_signature=True
    )

    assert (verification.outcome, verification.key_id, verification.algorithm) == (
        "verified",
        signer.kid,
        signer.algorithm,
    )
    assert (verification.reason, verification.number, verification.unsigned) == ("", 1, ())
    assert used.name == "Signed"
    assert len(used.signatures) == 1


def pem(signer):
    return signer.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize(
    "keys",
    [
        SIGNER.jwk,
        SIGNER.jwks,
        json.dumps(SIGNER.jwks),
        {SIGNER.kid: SIGNER.jwk},
        {SIGNER.kid: pem(SIGNER).decode()},
        {SIGNER.kid: pem(SIGNER)},
        pem(SIGNER),
    ],
    ids=["key", "set", "json", "by id", "pem by id", "pem bytes by id", "pem bytes"],
)
async def test_keys_are_accepted_in_each_form(keys):
    assert (await judged(SIGNED, CardVerifier(keys)))[0].outcome == "verified"


@pytest.mark.parametrize("kind", ["ec", "rsa", "ed"])
async def test_pem_without_a_key_id_verifies_signatures_without_one(kind):
    by_name = {
        "ec": SIGNER,
        "rsa": Signer(None, rsa.generate_private_key(65537, 2048), "RS256"),
        "ed": Signer(None, ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    }[kind]
    payload = canonical_json(DOCUMENT)
    header = {"alg": by_name.algorithm}
    token = jwt.api_jws.encode(payload, by_name.key, algorithm=by_name.algorithm, headers=header)
    protected, _, signature = token.split(".")
    card = with_entry(protected=protected, signature=signature)

    verifier = CardVerifier(pem(by_name).decode())
    assert (await judged(card, verifier))[0].outcome == "verified"


async def test_a_single_pem_verifies_signatures_with_any_key_id():
    verification, _ = await judged(
        SIGNED, CardVerifier(pem(SIGNER).decode()), require_signature=True
    )
    assert (verification.outcome, verification.key_id) == ("verified", SIGNER.kid)


def without_id(signer):
    return {name: member for name, member in signer.jwk.items() if name != "kid"}


OTHER = Signer("other")
RSA = Signer("rsa", rsa.generate_private_key(65537, 2048), "RS256")

KEYS_WITHOUT_ID = {
    "pem": lambda signer: pem(signer).decode(),
    "key": without_id,
    "set": lambda signer: {"keys": [without_id(signer)]},
    "several": lambda signer: {"keys": [without_id(OTHER), without_id(signer)]},
    "mixed": lambda signer: {"keys": [OTHER.jwk, without_id(RSA), without_id(signer)]},
}


@pytest.mark.rule("P11")
@pytest.mark.parametrize("form", KEYS_WITHOUT_ID)
async def test_a_key_without_an_id_verifies_and_refuses_signatures_with_any_key_id(form):
    verifier = CardVerifier(KEYS_WITHOUT_ID[form](SIGNER))

    verification, _ = await judged(SIGNED, verifier, require_signature=True)
    assert (verification.outcome, verification.key_id) == ("verified", SIGNER.kid)

    error = await refused({**SIGNED, "name": "Somebody else"}, verifier)
    assert (error.outcome, error.key_id, error.transient) == ("invalid", "k-1", False)
    assert (
        "signature 1 does not match the card and any key without an id; key 'k-1' is not known"
    ) in str(error)


@pytest.mark.rule("P11")
async def test_a_fetched_key_without_an_id_verifies_and_refuses_signatures_with_any_key_id():
    net = Net(pages={KEYS_URL: {"keys": [without_id(SIGNER)]}})
    verifier = CardVerifier(KEYS_URL)

    verification, _ = await judged(SIGNED, verifier, engine=net, require_signature=True)
    assert verification.outcome == "verified"
    error = await refused({**SIGNED, "name": "Somebody else"}, verifier, engine=net)
    assert error.outcome == "invalid"


async def test_a_fetched_set_is_fetched_again_before_its_keys_without_an_id_are_tried():
    net = Net(pages={KEYS_URL: {"keys": [without_id(RSA), OTHER.jwk]}, CARD: OTHER.sign(DOCUMENT)})
    async with connect(
        "http://agent.test", engine=net, card_verifier=CardVerifier(KEYS_URL), card_ttl=60.0
    ) as client:
        await client.agent_card()
        net.pages = {KEYS_URL: {"keys": [without_id(OTHER), SIGNER.jwk]}, CARD: SIGNED}
        await asyncio.sleep(61)
        await client.agent_card()
        assert client.card_verification.outcome == "verified"


@pytest.mark.parametrize("form", KEYS_WITHOUT_ID)
async def test_a_second_signature_may_be_by_an_unknown_key_if_a_key_without_an_id_verifies_one(
    form,
):
    verifier = CardVerifier(KEYS_WITHOUT_ID[form](SIGNER))

    card = SIGNER.sign(Signer("stranger").sign(document()))
    verification, _ = await judged(card, verifier, require_signature=True)
    assert (verification.outcome, verification.number) == ("verified", 2)


async def test_a_key_without_an_id_of_another_kind_leaves_a_signature_unverifiable():
    verification, _ = await judged(SIGNED, CardVerifier(pem(RSA).decode()))

    assert (verification.outcome, verification.reason) == (
        "unverifiable",
        "signature 1: key 'k-1' is not known",
    )


async def test_a_key_without_an_id_refuses_nothing_while_the_signatures_own_key_is_unavailable():
    net = Net(pages={KEYS_URL: page(b"", 503)})
    verifier = CardVerifier(pem(OTHER).decode(), jku_hosts=("keys.test",))

    verification, _ = await judged(card_of(), verifier, engine=net)
    assert (verification.outcome, verification.is_for_now) == ("unverifiable", True)
    net.pages[KEYS_URL] = SIGNER.jwks
    verification, _ = await judged(card_of(), verifier, engine=net, require_signature=True)
    assert verification.outcome == "verified"
    net.pages[KEYS_URL] = OTHER.jwks
    assert (await refused(card_of(), verifier, engine=net)).outcome == "invalid"


def test_sign_card_names_an_invalid_argument():
    with pytest.raises(TypeError, match="card must be an AgentCard or its JSON object, not None"):
        sign_card(None, SIGNER.key, key_id="k")
    card = ParseDict(document(), ProtobufCard())
    with pytest.raises(
        TypeError, match=r"AgentCard of the official SDK; pass what .*MessageToDict"
    ):
        sign_card(card, SIGNER.key, key_id="k")


P384 = ec.generate_private_key(ec.SECP384R1())
IS_PUBLIC = "ES256: it is a public key; pass the private one"
NOT_PRIVATE = (
    "ES256: it is not a readable private key; pass PEM without a password, a JSON Web Key"
)


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ("no key", NOT_PRIVATE),
        (b"no key", NOT_PRIVATE),
        (7, NOT_PRIVATE),
        ({"kty": "EC"}, NOT_PRIVATE),
        (pem(SIGNER), IS_PUBLIC),
        (pem(SIGNER).decode(), IS_PUBLIC),
        (SIGNER.key.public_key(), IS_PUBLIC),
        (SIGNER.jwk, IS_PUBLIC),
        (
            rsa.generate_private_key(65537, 2048),
            "ES256: it is an RSA key; pass algorithm='RS256' or 'PS256'",
        ),
        (
            P384,
            "ES256: it is an EC key of the curve secp384r1; pass algorithm='ES384'",
        ),
        (
            P384.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            "ES256: it is an EC key of the curve secp384r1; pass algorithm='ES384'",
        ),
        (
            ed25519.Ed25519PrivateKey.generate(),
            "ES256: it is an Ed25519 or Ed448 key; pass algorithm='EdDSA'",
        ),
    ],
)
def test_sign_card_says_which_key_or_algorithm_to_pass(key, fault):
    with pytest.raises(ValueError, match=f"the key cannot sign with {fault}"):
        sign_card(document(), key, key_id="k")


async def test_one_valid_signature_is_enough():
    card = Signer("other").sign(document())
    card = SIGNER.sign(card)

    verification, _ = await judged(card, require_signature=True)
    assert (verification.outcome, verification.number) == ("verified", 2)
    verification, _ = await judged(SIGNER.sign(Signer("k-1").sign(document())))
    assert (verification.outcome, verification.number) == ("verified", 2)  # the first one is wrong


async def test_a_card_without_a_signature_is_absent_and_accepted():
    verification, used = await judged(document())

    assert (verification.outcome, used.name) == ("absent", "Signed")
    assert (await refused(document(), require_signature=True)).outcome == "absent"


async def test_without_a_verifier_nothing_is_verified():
    async with connect(SIGNED) as client:
        assert client.card_verification is None
        await client.agent_card()
        assert client.card_verification.outcome == "unverifiable"


@pytest.mark.rule("P11")
async def test_a_modified_card_is_refused_even_if_no_signature_is_required():
    error = await refused({**SIGNED, "name": "Somebody else"})

    assert (error.outcome, error.key_id, error.transient) == ("invalid", "k-1", False)
    assert "signature 1 does not match the card and key 'k-1'" in str(error)


@pytest.mark.rule("P11")
async def test_an_unknown_key_makes_a_card_unverifiable():
    card = Signer("stranger").sign(document())

    verification, _ = await judged(card)
    assert (verification.outcome, verification.key_id) == ("unverifiable", "stranger")
    assert (await refused(card, require_signature=True)).outcome == "unverifiable"


HMAC = {"kty": "oct", "k": base64.urlsafe_b64encode(b"s" * 64).decode(), "kid": "k-1"}


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "HS256"},
        {"crit": ["exp"], "exp": 1},
        {"b64": False, "crit": ["b64"]},
        {"b64": False},
        {"alg": 7},
        {"alg": None},
        {"kid": 7},
        {"kid": None, "jku": "https://evil.test/keys"},
    ],
    ids=json.dumps,
)
async def test_an_unsupported_header_makes_a_card_unverifiable(header):
    fields = {"alg": "ES256", "kid": "k-1", **header}
    protected = base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()
    card = with_entry(protected=protected, signature=SIGNED["signatures"][0]["signature"])
    two = CardVerifier({"keys": [SIGNER.jwk, Signer("k-2").jwk]})

    verification, _ = await judged(card, two)
    assert verification.outcome == "unverifiable"
    assert verification.reason


@pytest.mark.rule("P11")
async def test_a_public_key_is_not_used_as_a_shared_secret():
    token = jwt.api_jws.encode(
        canonical_json(DOCUMENT), b"s" * 64, algorithm="HS256", headers={"kid": "k-1"}
    )
    protected, _, signature = token.split(".")
    card = with_entry(protected=protected, signature=signature)

    assert (await judged(card))[0].outcome == "unverifiable"
    assert (await judged(card, CardVerifier(HMAC)))[0].outcome == "unverifiable"
    named = CardVerifier(HMAC, algorithms=("HS256",))
    assert (await judged(card, named))[0].outcome == "verified"


@pytest.mark.parametrize(
    "signatures",
    ["x", {"protected": "x"}, [1], [None], [{}], [{"protected": 1, "signature": []}]],
    ids=json.dumps,
)
async def test_malformed_signatures_are_unverifiable_or_an_invalid_card(signatures):
    try:
        verification, _ = await judged(document(signatures=signatures))
    except InvalidAgentCardError:
        return
    assert verification.outcome == "unverifiable"


@settings(max_examples=rounds(20, 40))
@given(
    protected=st.one_of(
        st.text(max_size=40),
        st.binary(max_size=60).map(lambda b: base64.urlsafe_b64encode(b).decode()),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner)
            ),
            max_leaves=6,
        ).map(lambda v: base64.urlsafe_b64encode(json.dumps(v).encode()).rstrip(b"=").decode()),
    ),
    signature=st.text(max_size=30) | st.just("AAAA" * 22),
)
def test_fuzzed_signatures_raise_nothing_in_the_verifier(protected, signature):
    card = with_entry(protected=protected, signature=signature)

    async def look():
        try:
            verification, _ = await judged(card)
        except CardSignatureError as error:
            return error.outcome
        return verification.outcome

    assert run(look()) in {"unverifiable", "invalid"}


def test_invalid_options_are_refused_at_once():
    private = SIGNER.key
    key = jwt.get_algorithm_by_name("ES256").to_jwk(private, as_dict=True)
    verifier = CardVerifier({**key, "kid": "k-1"})
    assert key["d"] not in repr(vars(verifier))
    for wrong in (
        {},
        {"keys": []},
        {"keys": [{"no": "key"}]},
        "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----",
        "-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----",
        "http://keys.test/jwks.json",
        "{not json",
    ):
        with pytest.raises(ValueError, match=r"key|JWK"):
            CardVerifier(wrong)
    with pytest.raises(TypeError):
        CardVerifier(7)
    with pytest.raises(ValueError, match="jku_hosts"):
        CardVerifier()
    for host in ("http://keys.test", "keys.test/path", "https://keys.test?x=1", "a b"):
        with pytest.raises(ValueError, match=r"key"):
            CardVerifier(jku_hosts=(host,))
    with pytest.raises(TypeError):
        CardVerifier(SIGNER.jwk, jku_hosts="keys.test")
    for algorithms in ((), ("none",), ("NONE", "ES256")):
        with pytest.raises(ValueError, match="algorithms"):
            CardVerifier(SIGNER.jwk, algorithms=algorithms)
    with pytest.raises(ValueError, match="card_verifier"):
        connect("http://agent.test", require_signature=True)
    with pytest.raises(TypeError, match="card_verifier"):
        connect("http://agent.test", card_verifier=7)


# ── The signed part of a card ────────────────────────────────────────────────────────────────


def leaves(value, path=()):
    """Yield every container and key of a document."""
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from leaves(member, (*path, name))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path


def changed(value, path, to):
    copied = copy.deepcopy(value)
    container = copied
    for step in path[:-1]:
        container = container[step]
    if to is ...:
        del container[path[-1]]
    else:
        container[path[-1]] = to
    return copied


FULL = document(skills=[{"id": "s", "name": "Skill", "description": "Does", "tags": ["t"]}])


def sdk_signed():
    return agent_card_to_dict(as_sdk_signs(FULL))


SDK_SIGNED = sdk_signed()
BY_SDK, BY_US = st.just(SDK_SIGNED), st.just(SIGNER.sign(FULL))


@pytest.mark.rule("P11")
@settings(max_examples=rounds(30, 120))
@given(data=st.data(), signed=st.one_of(BY_SDK, BY_US))
def test_no_signed_member_can_be_changed(data, signed):
    content = {name: member for name, member in signed.items() if name != "signatures"}
    path = data.draw(st.sampled_from(sorted(leaves(content), key=repr)))
    other = st.sampled_from(["x", "", None, True, False, 0, 7, 1.5, [], {}, ["x"], {"x": 1}, ...])
    altered = changed(signed, path, data.draw(other))

    async def look():
        try:
            return await judged(altered), await judged(signed)
        except (CardSignatureError, InvalidAgentCardError, ValueError) as error:
            return error

    outcome = run(look())
    if isinstance(outcome, Exception):  # the last two before anybody looks at signatures
        return
    (verification, used), (_, meant) = outcome
    assert verification.outcome == "verified"
    assert canonical_card(used) == canonical_card(meant)  # it says the same


def canonical_card(card):
    """Return a card without empty members."""
    (*_, lean) = signed_forms(card.to_dict())
    return lean.payload


@pytest.mark.rule("P11")
@settings(max_examples=rounds(20, 40))
@given(
    name=st.sampled_from(
        ["url", "additionalInterfaces", "security", "newMember", "preferredTransport"]
    ),
    value=st.sampled_from(
        ["http://evil.test", [{"url": "http://evil.test", "transport": "JSONRPC"}]]
    ),
    signed=st.one_of(BY_SDK, BY_US),
)
def test_no_member_that_is_used_can_be_added(name, value, signed):
    if name in signed and signed[name] == value:
        return
    altered = {**signed, name: value}

    async def look():
        try:
            return await judged(altered)
        except CardSignatureError:
            return None

    outcome = run(look())
    if outcome is not None:
        verification, used = outcome
        assert name in {path.partition("[")[0] for path in verification.unsigned}
        assert "evil" not in repr(used)


async def test_members_that_the_sdk_adds_for_older_clients_are_not_signed_and_not_used():
    older = {"url": "http://agent.test/old", "protocolBinding": "JSONRPC"}
    interfaces = [*FULL["supportedInterfaces"], {**older, "protocolVersion": "0.3"}]
    served = agent_card_to_dict(as_sdk_signs({**FULL, "supportedInterfaces": interfaces}))
    assert served["url"] == "http://agent.test/old"
    verification, used = await judged({**served, "url": "http://evil.test"})

    assert verification.outcome == "verified"
    assert {"url", "preferredTransport", "protocolVersion"} <= set(verification.unsigned)
    assert [interface.url for interface in used.supported_interfaces] == [
        "http://agent.test/rpc",
        "http://agent.test/old",
    ]
    both = SIGNER.sign(document(url="http://agent.test/rpc", protocolVersion="0.3.0"))
    verification, used = await judged(both)
    assert verification.unsigned == ()
    assert [interface.protocol_version for interface in used.supported_interfaces] == [
        "1.0",
        "0.3.0",
    ]


BEARER = {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}


async def test_requirements_without_scopes_are_used_if_their_scheme_is_signed():
    schemes = {**DOCUMENT["securitySchemes"], **BEARER}
    requirements = [
        {"schemes": {"bearer": {"list": []}}},
        {"schemes": {"bearer": {"list": []}, "oauth": {"list": ["read"]}}},
        {"schemes": {"elsewhere": {"list": []}}},
        {"schemes": {}},
    ]
    signing = {**FULL, "securitySchemes": schemes, "securityRequirements": requirements}
    card = agent_card_to_dict(as_sdk_signs(signing))

    verification, used = await judged(card)
    assert verification.outcome == "verified"
    assert "securityRequirements" in verification.unsigned
    assert [dict(requirement.schemes) for requirement in used.security_requirements] == [
        {"bearer": StringList()},
        {"bearer": StringList(), "oauth": StringList(list=("read",))},
    ]
    assert (await judged(SIGNER.sign(signing)))[0].unsigned == ()


async def test_a_client_sends_the_credentials_of_a_requirement_without_scopes():
    requirements = [{"schemes": {"bearer": {"list": []}}}]
    card = {**FULL, "securitySchemes": BEARER, "securityRequirements": requirements}
    agent = FakeAgent(card=agent_card_to_dict(as_sdk_signs(card)))
    auth = SchemeCredentials({"bearer": "t0ken"})

    async with connect(
        "http://agent.test", engine=FakeNetwork(agent), card_verifier=TRUSTED, auth=auth
    ) as client:
        await client.ask("hello")
    sent = [call.headers.get("authorization") for call in agent.received if call.body]
    assert set(sent) == {"Bearer t0ken"}


async def test_requirements_of_03_without_scopes_are_used_if_their_scheme_is_signed():
    security = [{"bearer": []}, {"key": ["read"], "bearer": []}, {"elsewhere": []}]
    payload = OLDER_SIGNED_AS_SDK.encode()
    card = {**OLDER, "security": security, "signatures": [entry(payload=payload)]}

    verification, used = await judged(card)
    assert verification.outcome == "verified"
    assert "security" in verification.unsigned
    assert [sorted(requirement.schemes) for requirement in used.security_requirements] == [
        ["bearer"],
        ["bearer", "key"],
    ]


@pytest.mark.parametrize(
    "requirements",
    [
        [{"schemes": {"evil": {"list": []}}}],
        [{"schemes": {"oauth": {"list": ["write"]}}}],
        [{"schemes": []}, 5, None, {"schemes": {"oauth": None}}, {"schemes": {"oauth": 0}}],
    ],
)
async def test_only_requirements_without_scopes_can_be_added(requirements):
    card = sdk_signed()
    card["securityRequirements"] = [*card["securityRequirements"], *requirements]
    try:
        verification, used = await judged(card)
    except (CardSignatureError, InvalidAgentCardError):
        return
    assert verification.outcome == "verified"
    assert [dict(requirement.schemes) for requirement in used.security_requirements] == [
        {"oauth": StringList(list=("read",))}
    ]


async def test_empty_required_members_may_be_omitted():
    signed = SIGNER.sign(document(description="", skills=[]))
    bare = {name: m for name, m in signed.items() if name not in {"description", "skills"}}

    assert (await judged(bare))[0].outcome == "verified"


async def test_unknown_members_are_signed_as_received():
    signed = SIGNER.sign(document(ofTheFuture={"n": 1.0, "x": [None, ""]}))

    assert (await judged(signed))[0].unsigned == ()
    await refused(changed(signed, ("ofTheFuture", "n"), 2))


OLDER = {
    "additionalInterfaces": [{"transport": "HTTP+JSON", "url": "https://agent.test/rest"}],
    "capabilities": {
        "extensions": [{"params": {"b": 1, "a": []}, "uri": "urn:x"}],
        "pushNotifications": False,
        "streaming": True,
    },
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "description": "Old",
    "name": "Agent",
    "preferredTransport": "JSONRPC",
    "protocolVersion": "0.3.0",
    "security": [{"key": ["read"]}],
    "securitySchemes": {
        "bearer": {"scheme": "bearer", "type": "http"},
        "key": {"in": "header", "name": "X-Key", "type": "apiKey"},
        "oidc": {"openIdConnectUrl": "https://id.test/x", "type": "openIdConnect"},
    },
    "skills": [{"description": "Does", "id": "s", "name": "Skill", "tags": ["t"]}],
    "supportsAuthenticatedExtendedCard": True,
    "url": "https://agent.test/a2a",
    "version": "1.0.0",
}
OLDER_SIGNED_AS_SDK = (
    '{"additionalInterfaces":[{"transport":"HTTP+JSON","url":"https://agent.test/rest"}],'
    '"capabilities":{"extensions":[{"params":{"b":1},"uri":"urn:x"}],"pushNotifications":false,'
    '"streaming":true},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],'
    '"description":"Old","name":"Agent","security":[{"key":["read"]}],"securitySchemes":{"bearer":'
    '{"scheme":"bearer"},"key":{"in":"header","name":"X-Key"},"oidc":{"openIdConnectUrl":'
    '"https://id.test/x"}},"skills":[{"description":"Does","id":"s","name":"Skill","tags":["t"]}],'
    '"supportsAuthenticatedExtendedCard":true,"url":"https://agent.test/a2a","version":"1.0.0"}'
)
"""Apply `a2a.utils.helpers.canonicalize_agent_card` of a2a-sdk 0.3.26."""


async def test_a_card_of_03_is_verified_in_the_form_of_its_sdk_and_whole():
    by_sdk = {**OLDER, "signatures": [entry(payload=OLDER_SIGNED_AS_SDK.encode())]}
    for card in (by_sdk, SIGNER.sign(OLDER)):
        verification, used = await judged(card)
        assert verification.outcome == "verified"
        plain = msgspec.structs.replace(read_card(OLDER), signatures=used.signatures)
        if card is not by_sdk:
            assert used == plain
        assert used.security_schemes == plain.security_schemes
        assert used.supported_interfaces == plain.supported_interfaces
        for path in (("url",), ("securitySchemes", "bearer", "type"), ("protocolVersion",)):
            to = "0.3.9" if path == ("protocolVersion",) else "http://evil.test"
            await refused(changed(card, path, to))
        for name in OLDER["securitySchemes"]:
            untyped = copy.deepcopy(card)
            del untyped["securitySchemes"][name]["type"]
            await refused(untyped)


async def test_a_given_agent_card_is_verified_as_far_as_possible():
    signed = SIGNER.sign(read_card(DOCUMENT))

    assert (await judged(signed))[0].outcome == "verified"
    other = msgspec.structs.replace(signed, name="Somebody else")
    assert (await judged(other))[0].outcome == "unverifiable"
    assert (await refused(other, require_signature=True)).outcome == "unverifiable"


async def test_a_card_file_is_verified(tmp_path):
    path = tmp_path / "card.json"
    path.write_text(json.dumps(SIGNED))
    assert (await judged(path, require_signature=True))[0].outcome == "verified"
    path.write_text(json.dumps({**SIGNED, "name": "Else"}))
    await refused(path)


# ── The official SDK ─────────────────────────────────────────────────────────────────────────


def test_the_sdk_verifies_signatures_of_sign_card():
    card = document(skills=FULL["skills"])
    card["capabilities"]["extensions"][0]["params"].pop("e")
    signed = SIGNER.sign(card)

    verify = create_signature_verifier(lambda _kid, _jku: SIGNER.key.public_key(), ["ES256"])
    verify(ParseDict(signed, ProtobufCard()))


def test_sign_card_does_not_modify_its_argument():
    before = copy.deepcopy(DOCUMENT)
    signed = sign_card(DOCUMENT, SIGNER.key, key_id="k-1", key_url=KEYS_URL)

    assert before == DOCUMENT
    (signature,) = signed["signatures"]
    assert json.loads(base64.urlsafe_b64decode(signature["protected"] + "==")) == {
        "alg": "ES256",
        "typ": "JOSE",
        "kid": "k-1",
        "jku": KEYS_URL,
    }
    with pytest.raises(ValueError, match="algorithm"):
        sign_card(DOCUMENT, SIGNER.key, key_id="k-1", algorithm="HS256")
    with pytest.raises(ValueError, match="cannot sign with RS256"):
        sign_card(DOCUMENT, SIGNER.key, key_id="k-1", algorithm="RS256")
    with pytest.raises(ValueError, match="cannot sign"):
        sign_card(DOCUMENT, "no key at all", key_id="k-1")


# ── Verification by a client ─────────────────────────────────────────────────────────────────


async def test_a_refused_card_leads_to_no_request():
    agent = FakeAgent(card={**SIGNED, "name": "Somebody else"})

    async with connect(
        "http://agent.test", engine=FakeNetwork(agent), card_verifier=TRUSTED
    ) as client:
        with pytest.raises(CardSignatureError) as caught:
            await client.ask("hello")
    assert {call.method for call in agent.received} == {"GET"}
    assert caught.value.executed is False


async def test_an_unchanged_card_is_not_verified_again():
    requested, agent = [], FakeAgent(card=SIGNED)
    observations = []

    async with connect(
        "http://agent.test",
        engine=FakeNetwork(agent),
        card_verifier=requested.append,
        card_ttl=10.0,
        observers=[observations.append],
    ) as client:
        for _ in range(3):
            await client.agent_card()
            await asyncio.sleep(11)
        assert len(requested) == 1
        agent.card = SIGNER.sign(document(name="Changed"))
        await client.agent_card()
        assert [card["name"] for card in requested] == ["Signed", "Changed"]
    checked = [observation for observation in observations if isinstance(observation, CardChecked)]
    assert [observation.verification.outcome for observation in checked] == [
        "verified",
        "verified",
    ]


async def test_an_invalid_new_card_does_not_silently_replace_the_valid_one():
    agent = FakeAgent(card=SIGNED)

    async with connect(
        "http://agent.test", engine=FakeNetwork(agent), card_verifier=TRUSTED, card_ttl=10.0
    ) as client:
        await client.agent_card()
        agent.card = {**SIGNED, "name": "Somebody else"}
        await asyncio.sleep(11)
        with pytest.raises(CardSignatureError):
            await client.agent_card()
        agent.card = SIGNED
        assert (await client.agent_card()).name == "Signed"


@pytest.mark.parametrize("kind", ["function", "coroutine function"])
async def test_a_function_can_verify_cards(kind):
    documents = []

    def verify(card):
        documents.append(card["name"])
        if card["name"] != "Signed":
            raise LookupError("no such author")

    async def slowly(card):
        await asyncio.sleep(1)
        verify(card)

    ask = verify if kind == "function" else slowly
    assert (await judged(SIGNED, ask, require_signature=True))[0].outcome == "verified"
    assert (await judged(document(), ask))[0].outcome == "absent"
    error = await refused({**SIGNED, "name": "Else"}, ask)
    assert "LookupError: no such author" in str(error)
    assert error.outcome == "invalid"
    assert documents == ["Signed", "Else"]
    await refused(SIGNED, lambda _: False)


async def test_the_sdks_verifier_can_verify_cards():
    verify = create_signature_verifier(lambda _kid, _jku: SIGNER.key.public_key(), ["ES256"])

    def ask(card):
        verify(ParseDict(card, ProtobufCard(), ignore_unknown_fields=True))

    assert (await judged(SDK_SIGNED, ask))[0].outcome == "verified"
    await refused({**SDK_SIGNED, "name": "Else"}, ask)


EXTENDED = {
    "JSONRPC": ("http://agent.test/rpc", lambda card: {"jsonrpc": "2.0", "id": 1, "result": card}),
    "HTTP+JSON": ("http://agent.test/rest/extendedAgentCard", lambda card: card),
}


@pytest.mark.parametrize("binding", EXTENDED)
async def test_the_extended_card_is_verified(binding):
    url, written = EXTENDED[binding]
    base_url = url.removesuffix("/extendedAgentCard")
    public = document()
    public["supportedInterfaces"][0] |= {"url": base_url, "protocolBinding": binding}
    extended = SIGNER.sign({**public, "name": "Extended"})
    net = Answering(url, written, pages={CARD: SIGNER.sign(public)})

    async with connect(
        "http://agent.test", engine=net, card_verifier=TRUSTED, require_signature=True
    ) as client:
        net.card = {**extended, "name": "Else"}
        with pytest.raises(CardSignatureError):
            await client.get_extended_agent_card()
        assert (await client.agent_card()).name == "Signed"
        net.card = extended
        assert (await client.get_extended_agent_card()).name == "Extended"
        assert client.card_verification.outcome == "verified"
        assert (await client.agent_card()).name == "Extended"


class Answering(Net):
    """Serves the extended card, too."""

    def __init__(self, url, written, **options):
        super().__init__(FakeAgent(), **options)
        self.url, self.written, self.card = url, written, None

    async def request(self, request):
        if request.url != self.url:
            return await super().request(request)
        answer = self.written(self.card)
        if request.body:
            answer["id"] = json.loads(request.body)["id"]
        return page(answer, **{"content-type": "application/json"})


# ── Fetched keys ─────────────────────────────────────────────────────────────────────────────


def card_of(signer=SIGNER, url=KEYS_URL, **members):
    return signer.sign(document(**members), key_url=url)


BY_JKU = CardVerifier(jku_hosts=("keys.test",))


async def test_a_key_is_fetched_from_a_jku_host():
    net = Net(pages={KEYS_URL: SIGNER.jwks})

    verification, _ = await judged(card_of(), BY_JKU, engine=net, require_signature=True)
    assert (verification.outcome, verification.key_url) == ("verified", KEYS_URL)
    assert net.urls == [KEYS_URL]


@pytest.mark.rule("P11")
@pytest.mark.parametrize(
    "url",
    [
        "https://evil.test/jwks.json",
        "http://keys.test/jwks.json",
        "https://keys.test:8443/jwks.json",
        "https://keys.test@evil.test/jwks.json",
        "https://x@keys.test/jwks.json",
        "https://sub.keys.test/jwks.json",
        "file:///etc/passwd",
        "grpcs://keys.test/jwks.json",
        "https://keys.te\tst/jwks.json",
        " https://keys.test/jwks.json",
        "https://keys.test/\ud800",
        "https://[broken",
        "",
    ],
)
async def test_no_other_host_is_requested(url):
    net = Net()

    verification, _ = await judged(card_of(url=url), BY_JKU, engine=net)
    assert verification.outcome == "unverifiable"
    assert net.urls == []


async def test_a_redirect_of_a_key_set_stays_at_its_origin():
    away = page(b"", 302, location="https://evil.test/jwks.json")
    net = Net(pages={KEYS_URL: away, "https://evil.test/jwks.json": SIGNER.jwks})

    verification, _ = await judged(card_of(), BY_JKU, engine=net)
    assert verification.outcome == "unverifiable"
    assert net.urls == [KEYS_URL]


@pytest.mark.parametrize("by", ["jku", "address"])
async def test_rotated_keys_are_fetched(by):
    old, new = Signer("old"), Signer("new")
    net = Net(pages={KEYS_URL: old.jwks, CARD: card_of(old)})
    verifier = BY_JKU if by == "jku" else CardVerifier(KEYS_URL)

    async with connect(
        "http://agent.test",
        engine=net,
        card_verifier=verifier,
        require_signature=True,
        card_ttl=60.0,
    ) as client:
        await client.agent_card()
        net.pages = {KEYS_URL: new.jwks, CARD: card_of(new, name="Rotated")}
        await asyncio.sleep(61)
        assert (await client.agent_card()).name == "Rotated"
        assert client.card_verification.key_id == "new"
    assert net.urls.count(KEYS_URL) == 2


KEPT_FOR_A_DAY = {"cache-control": "max-age=86400", "etag": '"1"'}


@pytest.mark.parametrize("source", ["jku", "address"])
@pytest.mark.parametrize("card", ["kept for a day", "unchanged", "in hand"])
async def test_a_withdrawn_key_is_accepted_while_its_set_is_fresh(source, card):
    net = Net(pages={KEYS_URL: SIGNER.jwks, CARD: card_of()})
    if card == "kept for a day":
        net.pages[CARD] = page(card_of(), **KEPT_FOR_A_DAY)

    async with connect(
        card_of() if card == "in hand" else "http://agent.test",
        engine=net,
        card_verifier=BY_JKU if source == "jku" else CardVerifier(KEYS_URL),
        require_signature=True,
    ) as client:
        await client.agent_card()
        net.pages[KEYS_URL] = Signer("new").jwks
        await asyncio.sleep(299)
        await client.agent_card()
        await asyncio.sleep(2)
        with pytest.raises(CardSignatureError, match="key 'k-1' is not known"):
            await client.agent_card()
        net.pages[KEYS_URL] = SIGNER.jwks
        await asyncio.sleep(11)
        await client.agent_card()


async def test_a_withdrawn_key_is_accepted_for_a_day_more_if_its_set_cannot_be_fetched():
    net = Net(pages={KEYS_URL: SIGNER.jwks})

    async with connect(
        card_of(), engine=net, card_verifier=BY_JKU, require_signature=True
    ) as client:
        await client.agent_card()
        net.pages[KEYS_URL] = page(b"", 503)
        await asyncio.sleep(24 * 3600 - 1)
        await client.agent_card()
        await asyncio.sleep(12)
        with pytest.raises(CardSignatureError, match="cannot be fetched"):
            await client.agent_card()


async def test_an_extended_card_with_a_withdrawn_key_is_replaced_by_the_public_one():
    other = Signer("other")
    url, written = EXTENDED["HTTP+JSON"]
    public = document()
    public["supportedInterfaces"][0] |= {
        "url": url.removesuffix("/extendedAgentCard"),
        "protocolBinding": "HTTP+JSON",
    }
    both = {"keys": [SIGNER.jwk, other.jwk]}
    net = Answering(url, written, pages={CARD: SIGNER.sign(public), KEYS_URL: both})
    net.card = other.sign({**public, "name": "Extended"})

    async with connect(
        "http://agent.test",
        engine=net,
        card_verifier=CardVerifier(KEYS_URL),
        require_signature=True,
        card_ttl=100.0,
    ) as client:
        await client.get_extended_agent_card()
        await asyncio.sleep(301)
        assert (await client.agent_card()).name == "Extended"
        net.pages[KEYS_URL] = SIGNER.jwks
        await asyncio.sleep(301)
        assert (await client.agent_card()).name == "Signed"
        assert client.card_verification.key_id == "k-1"


async def test_unknown_keys_are_fetched_at_a_bounded_rate():
    net = Net(pages={KEYS_URL: SIGNER.jwks, CARD: card_of(Signer("stranger"))})

    async with connect(
        "http://agent.test", engine=net, card_verifier=BY_JKU, card_ttl=0.0
    ) as client:
        for _ in range(20):
            await client.agent_card()
            await asyncio.sleep(1)
            net.pages[CARD] = card_of(Signer("stranger"))
    assert net.urls.count(CARD) == 20
    assert net.urls.count(KEYS_URL) == 2


async def test_concurrent_verifications_share_one_fetch():
    net = Net(pages={KEYS_URL: SIGNER.jwks, CARD: card_of()}, takes={KEYS_URL: 1.0})

    async with connect("http://agent.test", engine=net, card_verifier=BY_JKU) as client:
        cards = await asyncio.gather(*(client.agent_card() for _ in range(50)))
    assert len(cards) == 50
    assert net.urls == [CARD, KEYS_URL]


def test_a_key_is_found_while_another_event_loop_fetches_its_set():
    net = Net(pages={KEYS_URL: SIGNER.jwks}, takes={KEYS_URL: 5.0})
    client = connect(
        card_of(), engine=net, card_verifier=CardVerifier(KEYS_URL), require_signature=True
    )

    async def verify_in_two_loops():
        first = asyncio.create_task(client.agent_card())
        await asyncio.sleep(1)
        net.takes = {}
        await asyncio.to_thread(run, client.agent_card())
        assert client.card_verification.outcome == "verified"
        await first
        await client.close()

    run(verify_in_two_loops())


async def test_a_cancelled_caller_does_not_cancel_the_shared_fetch():
    net = Net(pages={KEYS_URL: SIGNER.jwks, CARD: card_of()}, takes={KEYS_URL: 5.0})

    async with connect("http://agent.test", engine=net, card_verifier=BY_JKU) as client:
        first = asyncio.create_task(client.agent_card())
        await asyncio.sleep(1)
        second = asyncio.create_task(client.agent_card())
        await asyncio.sleep(1)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await second
        assert client.card_verification.outcome == "verified"
    assert net.urls.count(KEYS_URL) == 1


async def test_closing_cancels_a_fetch_of_keys():
    net = Net(pages={KEYS_URL: SIGNER.jwks, CARD: card_of()}, takes={KEYS_URL: 15.0})

    client = connect("http://agent.test", engine=net, card_verifier=BY_JKU)
    waiting = asyncio.create_task(client.agent_card())
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await client.close()


def away(url):
    return A2AConnectionError("refused", failure="refused", executed=False, transient=True)


@pytest.mark.parametrize("answer", [away(KEYS_URL), page(b"", 500), page(b"{"), page({"keys": 7})])
async def test_unavailable_keys_make_a_card_unverifiable_for_now(answer):
    net = Net(pages={KEYS_URL: answer, CARD: card_of()})

    async with connect("http://agent.test", engine=net, card_verifier=BY_JKU) as client:
        await client.agent_card()
        verification = client.card_verification
        assert (verification.outcome, verification.is_for_now) == ("unverifiable", True)
        net.pages[KEYS_URL] = SIGNER.jwks
        await asyncio.sleep(31)
        await client.agent_card()
        assert client.card_verification.outcome == "verified"


async def test_an_unreachable_key_server_is_a_transient_bounded_error():
    net = Net(pages={KEYS_URL: SIGNER.jwks, CARD: card_of()}, takes={KEYS_URL: 10_000})
    began = asyncio.get_running_loop().time()

    async with connect(
        "http://agent.test", engine=net, card_verifier=BY_JKU, require_signature=True
    ) as client:
        with pytest.raises(CardSignatureError) as caught:
            await client.agent_card()
        assert caught.value.transient
        assert asyncio.get_running_loop().time() - began <= 25
        await asyncio.sleep(11)
        with pytest.raises(DeadlineExceededError):
            await client.agent_card(timeout=3)
    assert set(net.urls) == {CARD, KEYS_URL}


async def test_a_verified_card_is_used_while_keys_are_unavailable():
    net = Net(pages={KEYS_URL: SIGNER.jwks, CARD: card_of()})

    async with connect(
        "http://agent.test",
        engine=net,
        card_verifier=BY_JKU,
        require_signature=True,
        card_ttl=600.0,
    ) as client:
        await client.agent_card()
        net.pages = {KEYS_URL: away(KEYS_URL), CARD: card_of(Signer("new"), name="New")}
        await asyncio.sleep(601)
        assert (await client.agent_card()).name == "Signed"


async def test_credentials_follow_the_signed_part_of_a_card():
    agent = FakeAgent(card=SIGNED)
    auth = SchemeCredentials({"oauth": "t0ken"})

    async with connect(
        "http://agent.test", engine=FakeNetwork(agent), card_verifier=TRUSTED, auth=auth
    ) as client:
        await client.ask("hello")
    sent = [call.headers.get("authorization") for call in agent.received if call.body]
    assert set(sent) == {"Bearer t0ken"}


# ── Real servers ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.real_time
async def test_a_card_that_the_sdk_serves_is_verified_with_keys_from_its_own_host():
    def application(url):
        card = document(skills=FULL["skills"])
        card["supportedInterfaces"][0]["url"] = f"{url}/rpc"
        header = {"alg": "ES256", "kid": "k-1", "typ": "JOSE", "jku": f"{url}/keys"}
        signed = create_agent_card_signer(SIGNER.key, header)(ParseDict(card, ProtobufCard()))
        keys = Route("/keys", lambda _request: JSONResponse(SIGNER.jwks))
        app = Starlette(routes=[*create_agent_card_routes(signed), keys])
        app.state.url = url
        return app

    async with asyncio.timeout(LIMIT), serving(application) as app:
        url = app.state.url
        trusting = CardVerifier(jku_hosts=(url,))
        async with connect(url, card_verifier=trusting, require_signature=True) as client:
            assert (await client.agent_card()).name == "Signed"
            assert client.card_verification.key_url == f"{url}/keys"
        async with connect(url, card_verifier=BY_JKU, require_signature=True) as client:
            with pytest.raises(CardSignatureError):
                await client.agent_card()


def test_an_invalid_verifier_is_refused():
    message = "^card_verifier must be a CardVerifier or a function, not int$"
    with pytest.raises(TypeError, match=message):
        connect("https://agent.test", card_verifier=5)


# ── Key sets with more keys, or later ones ───────────────────────────────────────────────────────


async def test_a_key_set_with_private_keys_verifies_by_the_public_ones():
    signer = Signer("k-rsa", rsa.generate_private_key(65537, 2048), "RS256")
    complete = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(signer.key))
    net = Net(pages={KEYS_URL: {"keys": [{**complete, "kid": "k-rsa"}]}})

    card = signer.sign(document())
    async with connect(card, engine=net, card_verifier=CardVerifier(KEYS_URL)) as client:
        await client.agent_card()
        assert client.card_verification.outcome == "verified"


async def test_an_unchanged_card_is_verified_once_its_key_is_published():
    net = Net(pages={KEYS_URL: Signer("old").jwks, CARD: SIGNER.sign(document())})

    verifier = CardVerifier(KEYS_URL)
    async with connect(
        "http://agent.test", engine=net, card_verifier=verifier, card_ttl=60.0
    ) as client:
        await client.agent_card()
        assert client.card_verification.outcome == "unverifiable"
        net.pages[KEYS_URL] = SIGNER.jwks
        await asyncio.sleep(61)
        await client.agent_card()
        assert client.card_verification.outcome == "verified"
