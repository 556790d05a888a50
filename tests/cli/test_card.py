"""``holdfast card get``: checked against the schema, extended, and by whom it is signed.

Tests carry the identifiers of the a2a-cli specification, as in `tests.cli.test_specification`.
"""

import json

import pytest
from tests.kit.card_signing import CARD, KEYS_URL, SIGNER, Net, Signer, document, page
from tests.kit.cli_harness import AGENT, holdfast

from holdfast._wire.card_schema import card_faults
from holdfast.testing import FakeAgent, FakeNetwork

WELL = document(
    skills=[{"id": "s", "name": "Skill", "description": "Does", "tags": ["t"]}],
)
BEARER = {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
KEY = {"key": {"apiKeySecurityScheme": {"location": "header", "name": "the-key"}}}


def run(*words, card=WELL, pages=None, **more):
    network = Net(FakeAgent(card=card), pages=pages)
    return holdfast(*words, engine=lambda **_: network, card=AGENT, **more)


def get(*words, **more):
    return run("card", "get", *words, **more)


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(SIGNER.jwks))
    return str(path)


# ── --validate ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["text", "json"])
def test_card_get_002_a_card_that_is_right_is_valid(form):
    done = get("--validate", "-o", form)

    assert done.exit == 0
    assert "Valid: the card conforms to the protocol's schema" in done.err
    assert "Signed" in done.out


FAULTY = {
    "description is missing, and required": {"description": None},
    "version is empty, and required": {"version": ""},
    "skills is empty, and required": {"skills": []},
    "skills[0].tags is missing, and required": {
        "skills": [{"id": "s", "name": "n", "description": "d"}]
    },
    "supportedInterfaces[0].protocolVersion is not a version such as 1.0": {
        "supportedInterfaces": [
            {"url": f"{AGENT}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "one.0"}
        ]
    },
    "securitySchemes['x'] has no member for its kind": {"securitySchemes": {"x": {}}},
    "securitySchemes['x'] is apiKeySecurityScheme and httpAuthSecurityScheme at once": {
        "securitySchemes": {"x": {**KEY["key"], **BEARER["bearer"]}}
    },
    "securityRequirements[0] asks for 'no', which securitySchemes lacks": {
        "securityRequirements": [{"schemes": {"no": {"list": []}}}]
    },
    "signatures[0].protected is missing, and required": {"signatures": [{"signature": "x"}]},
}


@pytest.mark.parametrize("fault", FAULTY)
def test_card_get_002_what_is_wrong_is_said_and_ends_it(fault):
    done = get("--validate", card={**WELL, **FAULTY[fault]})

    assert done.exit == 1
    assert f"Warning: {fault}\n" in done.err
    assert "A2ACLI_ERR_CARD_INVALID" in done.err


def test_card_get_002_each_type_is_checked():
    wrong = {
        **WELL,
        "capabilities": {"streaming": "yes", "extensions": [7]},
        "provider": "me",
        "defaultInputModes": [1],
        "securitySchemes": [],
        "iconUrl": 7,
        "skills": "many",
    }
    assert set(card_faults(wrong)) >= {
        "capabilities.streaming is not true or false",
        "capabilities.extensions[0] is not an object",
        "provider is not an object",
        "defaultInputModes[0] is not a text",
        "securitySchemes is not an object",
        "iconUrl is not a text",
        "skills is not a list",
    }


def test_card_get_002_the_faults_of_a_card_are_bounded():
    assert len(card_faults({**WELL, "skills": [{}] * 1000})) == 100


def test_card_get_002_a_card_of_03_has_a_schema_of_its_own():
    older = {
        "name": "Old",
        "description": "d",
        "url": f"{AGENT}/rpc",
        "version": "1",
        "protocolVersion": "0.3.0",
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "s", "name": "s", "description": "d", "tags": ["t"]}],
        "securitySchemes": {"b": {"type": "http", "scheme": "bearer"}},
        "security": [{"b": []}],
    }
    assert card_faults(older) == []
    assert card_faults({**older, "url": "nowhere", "security": [{"c": []}]}) == [
        "url is not an absolute address",
        "security[0] asks for 'c', which securitySchemes lacks",
    ]


# ── --extended ───────────────────────────────────────────────────────────────────────────────


def extended_card(schemes, *words, token="t0ken", **env):
    card = document(securitySchemes=schemes, securityRequirements=[])
    card["supportedInterfaces"][0]["tenant"] = None
    agent = FakeAgent(card=card, token=token)
    network = FakeNetwork(agent)
    done = holdfast(
        "card", "get", "--extended", *words, engine=lambda **_: network, card=AGENT, **env
    )
    return done, agent.calls("GetExtendedAgentCard")


@pytest.mark.parametrize("form", ["text", "json"])
def test_card_get_003_shows_the_extended_card(form):
    done, calls = extended_card(BEARER, "--bearer", "t0ken", "-o", form)

    assert (done.exit, len(calls)) == (0, 1)
    assert ", extended" in done.out
    assert calls[0].headers["authorization"] == "Bearer t0ken"


def test_card_get_003_a_card_that_offers_none_is_an_error():
    card = document(capabilities={"extendedAgentCard": False})
    done = get("--extended", card=card)

    assert done.exit == 1
    assert "Code: " in done.err


def test_card_get_003_without_credentials_the_agent_says_what_it_wants():
    done, calls = extended_card(BEARER)

    assert done.exit == 4
    assert "authorization" not in calls[0].headers


@pytest.mark.parametrize(
    ("schemes", "flag"), [({}, "--bearer"), (KEY, "--bearer"), (BEARER, "--api-key")]
)
def test_auth_008_a_credential_without_a_declared_scheme_goes_nowhere(schemes, flag):
    done, calls = extended_card(schemes, flag, "t0ken")

    assert (done.exit, calls) == (4, [])
    assert f"declares no security scheme that takes {flag}; nothing was sent" in done.err
    assert "t0ken" not in done.err + done.out


def test_auth_008_of_two_credentials_the_declared_one_goes():
    done, calls = extended_card(BEARER, "--bearer", "t0ken", "--api-key", "k3y")

    assert done.exit == 0
    assert "k3y" not in str(calls[0].headers) + calls[0].url


def test_auth_008_the_public_card_is_asked_for_without_credentials():
    agent = FakeAgent(card=document(securitySchemes=BEARER))
    network = FakeNetwork(agent)
    done = holdfast("card", "get", "--bearer", "t0ken", engine=lambda **_: network, card=AGENT)
    assert done.exit == 0
    assert ["authorization" in call.headers for call in agent.received] == [False]


# ── Signatures ───────────────────────────────────────────────────────────────────────────────

SIGNED = SIGNER.sign(WELL)


@pytest.mark.parametrize("form", ["text", "json"])
def test_card_get_004_reports_a_verified_card(keys, form):
    done = get("--card-keys", keys, "--require-signature", "-o", form, card=SIGNED)

    assert done.exit == 0
    said = done.out if form == "text" else done.err
    assert "Signature: verified by key 'k-1'\n" in said
    if form == "json":
        assert done.json == {**done.json, "name": "Signed"}  # the protocol's own type
        assert "verified" not in done.out


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("card", "said"),
    [
        (WELL, "Signature: absent: the card is not signed\n"),
        (Signer("other").sign(WELL), "Signature: unverifiable: signature 1: key 'other'"),
    ],
    ids=["absent", "unverifiable"],
)
def test_card_get_004_reports_what_is_not_verified_and_does_not_fail(keys, card, said, form):
    done = get("--card-keys", keys, "-o", form, card=card)

    assert done.exit == 0
    assert said in (done.out if form == "text" else done.err)
    assert "Signature: verified" not in done.out + done.err


def test_card_get_004_without_keys_a_signed_card_is_unverifiable():
    done = get(card=SIGNED)

    assert done.exit == 0
    assert done.field("Signature") == "unverifiable: no card verifier is configured"


def test_card_get_004_a_wrong_signature_is_refused(keys):
    done = get("--card-keys", keys, card={**SIGNED, "name": "Else"})

    assert (done.exit, done.out) == (1, "")
    assert "A2ACLI_ERR_CARD_INVALID" in done.err


def test_card_get_004_keys_come_from_a_host_that_is_named():
    card = SIGNER.sign(WELL, key_url=KEYS_URL)
    done = get("--card-key-host", "keys.test", card=card, pages={KEYS_URL: SIGNER.jwks})
    assert done.field("Signature") == f"verified by key 'k-1' of {KEYS_URL}"
    done = get("--card-key-host", "other.test", card=card, pages={KEYS_URL: SIGNER.jwks})
    assert "its jku is not allowed" in done.field("Signature")
    done = get("--card-keys", KEYS_URL, card=SIGNED, pages={KEYS_URL: SIGNER.jwks})
    assert done.field("Signature") == "verified by key 'k-1'"


def test_card_get_004_a_key_server_that_is_away_is_no_verdict():
    away = {KEYS_URL: page(b"", 503)}
    done = get("--card-keys", KEYS_URL, card=SIGNED, pages=away)
    assert done.exit == 0
    assert "unverifiable" in done.field("Signature")
    done = get("--card-keys", KEYS_URL, "--require-signature", card=SIGNED, pages=away)
    assert done.exit == 1


def test_a_signature_may_be_required_of_every_command(keys):
    done = run("send", "hello", "--card-keys", keys, "--require-signature", card=WELL)
    assert done.exit == 1
    assert "is required, but was not verified" in done.err
    done = run("send", "hello", "--card-keys", keys, "--require-signature", card=SIGNED)
    assert done.exit == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--require-signature",),
        ("--card-keys", "/no/such/file"),
        ("--card-keys", "http://keys.test/x"),
        ("--card-key-host", "keys.test/path"),
    ],
    ids=" ".join,
)
def test_keys_that_cannot_be_are_a_usage_error(words):
    done = get(*words, pages={CARD: page(b"", 500)})

    assert done.exit == 2
    assert "A2ACLI_ERR_USAGE" in done.err
    assert words[0] in done.err


def test_a_file_that_holds_no_keys_is_not_repeated_and_not_called(tmp_path):
    for content in ("s3cret of another kind", "https://keys.test/s3cret"):
        path = tmp_path / "keys"
        path.write_text(content)
        done = get("--card-keys", str(path), card=SIGNED)

        assert (done.exit, "A2ACLI_ERR_USAGE" in done.err) == (2, True)
        assert "s3cret" not in done.err


# ── What doctor says ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("card", "level", "said"),
    [
        (SIGNED, "ok", "verified by key 'k-1'"),
        ({**SIGNED, "name": "Else"}, "problem", "signature 1 does not match the card"),
        (Signer("other").sign(WELL), "warning", "key 'other' is not known"),
        (WELL, "ok", "not signed"),
    ],
    ids=["verified", "invalid", "unverifiable", "absent"],
)
def test_doctor_says_what_the_signatures_are_worth(keys, card, level, said):
    done = run("doctor", "--card-keys", keys, "-o", "json", card=card)

    found = done.json["diagnosis"]["findings"]
    (finding,) = [one for one in found if one["check"] == "card.signatures"]
    assert finding["level"] == level
    assert said in finding["saw"]
