"""Deliveries that are signed: which tokens count, and where their keys come from."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import sqlite3
import subprocess
import sys
import tracemalloc

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from tests.kit.asgi_client import JSON, body_of, post, request
from tests.kit.virtual_env import advance_wall

from holdfast import Task, TaskState
from holdfast.errors import A2AConnectionError
from holdfast.extend import AiohttpEngine, CallRecord, HttpReply, SqliteJournal
from holdfast.push import JwtPolicy, PushReceiver
from holdfast.types import AuthenticationInfo, TaskStatus

URL = "https://me.example/push"
KEYS = "https://agent.example/.well-known/jwks.json"
NOW = 1_800_000_000


class Clock:
    """Wall time that stands still until it is set."""

    def __init__(self):
        self.now = NOW
        self.made = 0

    def wall(self):
        return self.now

    def random(self):
        return 0.5

    def new_id(self):
        self.made += 1
        return f"id-{self.made}"


class Signer:
    """An agent that signs what it pushes."""

    def __init__(self, key=None, algorithm="ES256", kid="k-1"):
        self.key = ec.generate_private_key(ec.SECP256R1()) if key is None else key
        self.algorithm = algorithm
        self.kid = kid

    @property
    def jwk(self):
        algorithm = jwt.get_algorithm_by_name(self.algorithm)
        public = self.key.public_key() if hasattr(self.key, "public_key") else self.key
        return {**json.loads(algorithm.to_jwk(public)), "kid": self.kid, "use": "sig"}

    @property
    def jwks(self):
        return {"keys": [self.jwk]}

    def token(self, body, *, headers=(), without=(), **claims):
        digest = hashlib.sha256(body).hexdigest()
        found = {"iat": NOW, "aud": URL, "request_body_sha256": digest, **claims}
        found = {name: value for name, value in found.items() if name not in without}
        kid = {} if self.kid is None else {"kid": self.kid}
        headers = {**kid, **dict(headers)}
        return jwt.encode(found, self.key, algorithm=self.algorithm, headers=headers)


SIGNER = Signer()


def task(state=TaskState.COMPLETED, task_id="t-1"):
    return Task(id=task_id, status=TaskStatus(state=state))


BODY = body_of(task())


def expecting(keys=None, *, env=None, engine=None, journal=None, **policy):
    receiver = PushReceiver(
        URL,
        keys=SIGNER.jwks if keys is None else keys,
        jwt=JwtPolicy(**policy),
        env=env or Clock(),
        engine=engine,
        journal=journal,
    )
    return receiver, receiver.config("t-1")


async def push(receiver, config, token, body=BODY):
    return await post(receiver, body, config, authorization=f"Bearer {token}")


# ── What counts ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "signer",
    [
        SIGNER,
        Signer(ec.generate_private_key(ec.SECP384R1()), "ES384"),
        Signer(rsa.generate_private_key(65537, 2048), "RS256"),
        Signer(rsa.generate_private_key(65537, 2048), "PS256"),
        Signer(ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
    ids=lambda signer: signer.algorithm,
)
async def test_what_is_signed_is_taken(signer):
    receiver, config = expecting(signer.jwks)

    assert (await push(receiver, config, signer.token(BODY))).status == 200
    assert receiver.get_task("t-1").state is TaskState.COMPLETED


async def test_a_signature_is_enough_without_a_token():
    receiver, _ = expecting()

    assert (await push(receiver, None, SIGNER.token(BODY))).status == 200
    other = body_of(task(task_id="t-2"))
    assert (await push(receiver, None, SIGNER.token(other), other)).status == 404


async def test_a_token_is_not_enough_without_a_signature():
    receiver, config = expecting()

    for authorization in ("", "Bearer", "Bearer ", "Basic YTpi", f"Bearer {config.token}"):
        reply = await post(receiver, BODY, config, authorization=authorization)
        assert reply.status == 401
        assert reply.headers["www-authenticate"].startswith("Bearer")
    assert (await post(receiver, BODY, config)).status == 401
    assert receiver.get_task("t-1") is None


async def test_a_signature_does_not_make_up_for_a_wrong_token():
    receiver, _ = expecting()
    authorization = f"Bearer {SIGNER.token(BODY)}"

    reply = await post(
        receiver, BODY, authorization=authorization, x_a2a_notification_token="wrong"
    )

    assert reply.status == 401


async def test_the_digest_may_be_of_the_same_json_without_blanks():
    receiver, config = expecting()
    spaced = json.dumps(json.loads(BODY), indent=2).encode()

    assert (await push(receiver, config, SIGNER.token(BODY), spaced)).status == 200


async def test_a_configuration_asks_for_a_bearer_token_and_has_no_credentials():
    receiver, config = expecting()

    assert config.authentication == AuthenticationInfo(scheme="Bearer")
    with pytest.raises(ValueError, match="Authorization then holds the signed token"):
        receiver.config(authentication=AuthenticationInfo(scheme="Basic", credentials="YTpi"))


@pytest.mark.rule("P06")
@pytest.mark.parametrize(
    ("policy", "claims", "status"),
    [
        ({}, {"iat": NOW - 300 - 59}, 200),
        ({}, {"iat": NOW - 300 - 60}, 401),
        ({}, {"iat": NOW + 60}, 200),
        ({}, {"iat": NOW + 61}, 401),
        ({}, {"exp": NOW - 59}, 200),
        ({}, {"exp": NOW - 60}, 401),
        ({}, {"exp": NOW + 10**9, "iat": NOW - 10**6}, 401),
        ({}, {"nbf": NOW + 61}, 401),
        ({}, {"without": ["iat"]}, 401),
        ({}, {"request_body_sha256": "0" * 64}, 401),
        ({}, {"request_body_sha256": 5}, 401),
        ({}, {"request_body_sha256": "é"}, 401),
        ({}, {"request_body_sha256": hashlib.sha256(BODY).hexdigest().upper()}, 200),
        ({}, {"without": ["request_body_sha256"]}, 401),
        ({"body_digest": False}, {"without": ["request_body_sha256"]}, 200),
        ({"body_digest": False}, {"request_body_sha256": "0" * 64}, 401),
        ({}, {"taskId": "t-1"}, 200),
        ({}, {"taskId": "t-2"}, 404),
        ({"issuer": "agent"}, {"iss": "agent"}, 200),
        ({"issuer": "agent"}, {"iss": "other"}, 401),
        ({"issuer": "agent"}, {}, 401),
        ({"audience": "me"}, {"aud": "me"}, 200),
        ({"audience": "me"}, {"aud": ["x", "me"]}, 200),
        ({"audience": "me"}, {"aud": URL}, 401),
        ({"audience": "me"}, {"without": ["aud"]}, 401),
        ({}, {"aud": ["x", URL], "iss": "anybody"}, 200),
        ({}, {"aud": "https://other.example/push"}, 401),
        ({}, {"aud": f"{URL}/"}, 401),
        ({}, {"aud": {"x": URL}}, 401),
        ({}, {"without": ["aud"]}, 401),
        ({"audience": False}, {"aud": "https://other.example/push"}, 200),
        ({"audience": False}, {"without": ["aud"]}, 200),
        ({"max_age": 10, "leeway": 0}, {"iat": NOW - 9}, 200),
        ({"max_age": 10, "leeway": 0}, {"iat": NOW - 10}, 401),
        ({}, {"headers": {"crit": ["x"], "x": 1}.items()}, 401),
        ({}, {"headers": {"jku": "https://evil.example/keys"}.items()}, 200),
    ],
    ids=str,
)
async def test_what_a_token_says_is_checked(policy, claims, status):
    receiver, config = expecting(**policy)

    assert (await push(receiver, config, SIGNER.token(BODY, **claims))).status == status


@pytest.mark.parametrize("claim", ["iat", "exp", "nbf"])
@pytest.mark.parametrize("value", [True, 10**400, -(10**400)])
async def test_a_time_that_is_none_is_refused(claim, value):
    receiver, config = expecting()
    header = {"alg": "ES256", "kid": "k-1"}
    claims = {"iat": NOW, "request_body_sha256": hashlib.sha256(BODY).hexdigest(), claim: value}
    payload = json.dumps(claims).encode()
    token = jwt.PyJWS().encode(payload, SIGNER.key, algorithm="ES256", headers=header)

    assert (await push(receiver, config, token)).status == 401


def unsigned(token):
    head, payload, _ = token.split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none","kid":"k-1"}').rstrip(b"=").decode()
    assert head
    return f"{none}.{payload}."


@pytest.mark.parametrize(
    "token",
    [
        Signer(kid="k-1").token(BODY),
        Signer(kid="k-2").token(BODY),
        Signer("secret" * 10, "HS256").token(BODY),
        unsigned(SIGNER.token(BODY)),
        SIGNER.token(BODY)[:-4] + "AAAA",
        "a.b.c",
        "x" * 9000,
        "é.é.é",
        SIGNER.token(BODY, jti="x" * 9000),
    ],
    ids=lambda token: token[:12],
)
async def test_signature_by_an_unknown_key_is_refused(token):
    receiver, config = expecting()

    assert (await push(receiver, config, token)).status == 401
    assert receiver.get_task("t-1") is None


async def test_a_public_key_is_no_shared_secret():
    receiver, config = expecting(algorithms=("ES256", "HS256"))
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"k-1"}').rstrip(b"=").decode()
    signed = f"{header}.{SIGNER.token(BODY).split('.')[1]}"
    for secret in (json.dumps(SIGNER.jwk), SIGNER.jwk["x"], ""):
        digest = hmac.digest(secret.encode(), signed.encode(), "sha256")
        signature = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

        assert (await push(receiver, config, f"{signed}.{signature}")).status == 401


async def test_a_shared_secret_counts_where_the_caller_says_so():
    signer = Signer("secret" * 10, "HS256")
    told, config = expecting({"keys": [signer.jwk]}, algorithms=("HS256",))
    untold, other = expecting({"keys": [signer.jwk]})

    assert (await push(told, config, signer.token(BODY))).status == 200
    assert (await push(untold, other, signer.token(BODY))).status == 401


async def test_a_key_counts_for_its_own_algorithm():
    key = rsa.generate_private_key(65537, 2048)
    receiver, config = expecting({"keys": [{**Signer(key, "RS256").jwk, "alg": "RS256"}]})

    assert (await push(receiver, config, Signer(key, "PS256").token(BODY))).status == 401
    assert (await push(receiver, config, Signer(key, "RS256").token(BODY))).status == 200


async def test_a_key_that_is_not_named_is_the_only_one():
    nameless = Signer(SIGNER.key, kid=None)
    one, config = expecting()
    two, other = expecting({"keys": [SIGNER.jwk, Signer(kid="k-2").jwk]})

    assert (await push(one, config, nameless.token(BODY))).status == 200
    assert (await push(two, other, nameless.token(BODY))).status == 401


async def test_the_signature_is_verified_before_the_body_is_read():
    receiver, config = expecting()
    headers = {
        **JSON,
        "x-a2a-notification-token": config.token,
        "authorization": f"Bearer {Signer().token(BODY)}",
    }

    assert (await request(receiver, headers=headers.items(), end=None)).status == 401


# ── Once ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P06")
async def test_a_delivery_that_comes_twice_is_acknowledged_and_counts_once():
    receiver, config = expecting()
    token = SIGNER.token(BODY)

    assert (await push(receiver, config, token)).status == 200
    receiver.forget("t-1")
    config = receiver.config("t-1")
    assert (await push(receiver, config, token)).status == 200
    assert receiver.get_task("t-1") is None


@pytest.mark.rule("P06")
@pytest.mark.parametrize("name", [{}, {"jti": "j-1"}], ids=str)
async def test_a_token_is_good_for_one_body(name):
    receiver, config = expecting(body_digest=False)
    working = body_of(task(TaskState.WORKING))
    token = SIGNER.token(BODY, without=["request_body_sha256"], **name)
    assert (await push(receiver, config, token, working)).status == 200

    assert (await push(receiver, config, token)).status == 401
    if name:
        renewed = SIGNER.token(BODY, without=["request_body_sha256"], iat=NOW + 1, **name)
        assert (await push(receiver, config, renewed)).status == 401
    assert receiver.get_task("t-1").state is TaskState.WORKING


async def test_a_signature_that_is_written_otherwise_makes_no_new_token():
    receiver, config = expecting(body_digest=False)
    token = SIGNER.token(BODY, without=["request_body_sha256"])
    signed, _, signature = token.rpartition(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    other = raw[:32] + (order - int.from_bytes(raw[32:], "big")).to_bytes(32, "big")
    twin = f"{signed}.{base64.urlsafe_b64encode(other).rstrip(b'=').decode()}"
    working = body_of(task(TaskState.WORKING))

    assert (await push(receiver, config, token, working)).status == 200
    assert (await push(receiver, config, twin)).status == 401
    assert (await push(receiver, config, twin, working)).status == 200


async def test_a_token_whose_delivery_was_refused_is_not_used_up():
    receiver = PushReceiver(URL, keys=SIGNER.jwks, env=Clock())
    token = SIGNER.token(BODY)
    assert (await push(receiver, None, token)).status == 404

    config = receiver.config("t-1")

    assert (await push(receiver, config, token)).status == 200
    assert receiver.get_task("t-1").state is TaskState.COMPLETED


async def test_as_many_tokens_are_remembered_as_are_allowed_and_as_long_as_they_count():
    clock = Clock()
    receiver, config = expecting(env=clock, max_tokens=2)
    tokens = [SIGNER.token(BODY, jti=f"j-{number}") for number in range(3)]

    statuses = [(await push(receiver, config, token)).status for token in tokens]

    assert statuses == [200, 200, 503]
    clock.now += 361
    assert (await push(receiver, config, SIGNER.token(BODY, iat=clock.now))).status == 200
    assert (await push(receiver, config, tokens[0])).status == 401


# ── Once, whatever restarts ──────────────────────────────────────────────────────────────────


@pytest.mark.rule("P06")
async def test_a_used_token_stays_used_after_a_restart(tmp_path):
    journal = tmp_path / "calls.db"
    clock = Clock()
    working = body_of(task(TaskState.WORKING))
    token = SIGNER.token(BODY, without=["request_body_sha256"])
    first, config = expecting(env=clock, journal=journal, body_digest=False)
    assert (await push(first, config, token, working)).status == 200
    assert (await push(first, config, token, working)).status == 200
    # It ends without a word: nothing is closed.

    second, config = expecting(env=clock, journal=f"sqlite:///{journal}", body_digest=False)
    assert (await push(second, config, token)).status == 401
    assert (await push(second, config, token, working)).status == 200
    assert second.get_task("t-1") is None  # which was acknowledged, and did not count again
    other = SIGNER.token(BODY, without=["request_body_sha256"], jti="j-2")
    assert (await push(second, config, other)).status == 200
    assert second.get_task("t-1").state is TaskState.COMPLETED
    await first.close()
    await second.close()


@pytest.mark.rule("P06")
async def test_one_of_several_receivers_with_one_journal_takes_a_token(tmp_path):
    token = SIGNER.token(BODY)
    pairs = [expecting(journal=tmp_path / "calls.db") for _ in range(3)]
    done = await asyncio.gather(*(push(*pair, token) for pair in pairs for _ in range(2)))

    assert [reply.status for reply in done] == [200] * 6
    assert [pair[0].get_task("t-1") is None for pair in pairs].count(False) == 1
    for receiver, _ in pairs:
        await receiver.close()


async def test_a_journal_keeps_as_many_tokens_as_are_allowed_and_as_long_as_they_count(tmp_path):
    clock, journal = Clock(), SqliteJournal(tmp_path / "calls.db")
    await journal.begin(CallRecord(message_id="m-1", agent="a"))  # the same file
    pairs = [expecting(env=clock, journal=journal, max_tokens=2) for _ in range(2)]
    tokens = [SIGNER.token(BODY, jti=f"j-{number}") for number in range(3)]
    done = [
        (await push(*pair, token)).status
        for pair, token in zip([*pairs, pairs[1]], tokens, strict=True)
    ]

    assert done == [200, 200, 503]
    clock.now += 361
    advance_wall(361)  # the clock of the journal is the machine's
    assert (await push(*pairs[1], SIGNER.token(BODY, iat=clock.now))).status == 200
    with contextlib.closing(sqlite3.connect(journal.path)) as file:
        assert file.execute("SELECT count(*) FROM push_tokens").fetchone() == (1,)
    for receiver, _ in pairs:
        await receiver.close()
    assert await journal.find("m-1")  # the journal of the caller is open
    await journal.close()


async def test_a_delivery_whose_token_cannot_be_recorded_is_put_off(tmp_path, caplog):
    receiver, config = expecting(journal=tmp_path / "missing" / "calls.db")
    token = SIGNER.token(BODY)
    refusal = await push(receiver, config, token)

    assert (refusal.status, refusal.headers["retry-after"]) == (503, "10")
    assert "cannot be recorded" in caplog.text
    assert receiver.get_task("t-1") is None
    (tmp_path / "missing").mkdir()
    assert (await push(receiver, config, token)).status == 200
    assert receiver.get_task("t-1").state is TaskState.COMPLETED
    await receiver.close()


class SlowJournal:
    """Records at once, and answers when it is let."""

    def __init__(self):
        self.uses = {}
        self.answers = asyncio.Event()

    async def use_token(self, name, use, /, **_times):
        found = self.uses.setdefault(name, use)
        await self.answers.wait()
        return found

    async def close(self):
        raise AssertionError("it is the caller's")


@pytest.mark.parametrize("ends", ["cancelled", "timeout", "closed"])
async def test_a_delivery_that_ends_while_its_token_is_recorded_can_come_again(ends):
    journal = SlowJournal()
    receiver, config = expecting(journal=journal)
    token = SIGNER.token(BODY)
    first = asyncio.create_task(push(receiver, config, token))
    await asyncio.sleep(1)
    assert len(journal.uses) == 1
    if ends == "cancelled":
        first.cancel()
    elif ends == "closed":
        await receiver.close()
        journal.answers.set()
    done = (await asyncio.gather(first, return_exceptions=True))[0]
    journal.answers.set()

    if ends == "cancelled":
        assert isinstance(done, asyncio.CancelledError)
    else:
        assert done.status == 503
    if ends != "closed":
        assert (await push(receiver, config, token)).status == 200
        assert receiver.get_task("t-1").state is TaskState.COMPLETED
        await receiver.close()


async def test_a_task_that_is_forgotten_while_its_token_is_recorded_is_not_taken():
    journal = SlowJournal()
    receiver, config = expecting(journal=journal)
    delivery = asyncio.create_task(push(receiver, config, SIGNER.token(BODY)))
    await asyncio.sleep(1)
    receiver.forget("t-1")
    journal.answers.set()

    assert (await delivery).status in {401, 404}


def test_what_is_no_journal_of_tokens_is_refused():
    with pytest.raises(ValueError, match="needs keys="):
        PushReceiver(URL, journal="calls.db")
    with pytest.raises(TypeError, match="use_token"):
        PushReceiver(URL, keys=SIGNER.jwks, journal=object())
    with pytest.raises(ValueError, match="journal must be a file"):
        PushReceiver(URL, keys=SIGNER.jwks, journal="redis://x")


# ── Where keys come from ─────────────────────────────────────────────────────────────────────


class KeyServer:
    """An engine that has nothing but keys."""

    def __init__(self, *signers, headers=None):
        self.documents = {"keys": [signer.jwk for signer in signers]}
        self.headers = headers or {}
        self.asked = []
        self.failure = None
        self.hangs = False

    async def request(self, request):
        self.asked.append(request)
        if self.hangs:
            await asyncio.Event().wait()
        await asyncio.sleep(0.1)
        if isinstance(self.failure, Exception):
            raise self.failure
        if self.failure is not None:
            return self.failure
        body = json.dumps(self.documents).encode()
        return HttpReply(status=200, headers=self.headers, body=body)

    def stream(self, request):
        raise NotImplementedError

    async def close(self):
        raise AssertionError("a lent engine is not closed")


async def test_keys_are_fetched_once_and_kept():
    server = KeyServer(SIGNER)
    receiver, config = expecting(KEYS, engine=server)
    bodies = [body_of(task(TaskState.WORKING)), BODY]

    replies = await asyncio.gather(
        *(push(receiver, config, SIGNER.token(body), body) for body in bodies)
    )

    assert [reply.status for reply in replies] == [200, 200]
    assert [(request.method, request.url) for request in server.asked] == [("GET", KEYS)]
    await receiver.close()


@pytest.mark.parametrize(
    ("headers", "lifetime"),
    [
        ({}, 300),
        ({"cache-control": "max-age=1000"}, 1000),
        ({"cache-control": "no-store"}, 10),
        ({"cache-control": "max-age=99999999"}, 86400),
    ],
    ids=str,
)
async def test_keys_are_kept_as_long_as_their_server_says_within_bounds(headers, lifetime):
    server = KeyServer(SIGNER, headers=headers)
    receiver, config = expecting(KEYS, engine=server)
    await push(receiver, config, SIGNER.token(BODY))

    await asyncio.sleep(lifetime - 1)
    await push(receiver, config, SIGNER.token(BODY))
    assert len(server.asked) == 1
    await asyncio.sleep(2)
    await push(receiver, config, SIGNER.token(BODY))
    assert len(server.asked) == 2


async def test_a_new_key_is_found():
    server, rotated = KeyServer(SIGNER), Signer(kid="k-2")
    receiver, config = expecting(KEYS, engine=server)
    working = body_of(task(TaskState.WORKING))
    assert (await push(receiver, config, SIGNER.token(working), working)).status == 200
    server.documents["keys"] = [rotated.jwk]
    await asyncio.sleep(20)

    assert (await push(receiver, config, rotated.token(BODY))).status == 200
    assert len(server.asked) == 2
    assert (await push(receiver, config, SIGNER.token(BODY))).status == 401


async def test_strangers_do_not_make_keys_be_fetched_again_and_again():
    server = KeyServer(SIGNER)
    receiver, config = expecting(KEYS, engine=server)

    for number in range(50):
        stranger = Signer(SIGNER.key, kid=f"made-up-{number}")
        assert (await push(receiver, config, stranger.token(BODY))).status == 401

    assert len(server.asked) == 1


FAILURES = {
    "refused": A2AConnectionError("refused", failure="refused"),
    "failed": HttpReply(status=500),
    "moved": HttpReply(status=302, headers={"location": "https://evil.example/keys"}),
    "a page": HttpReply(status=200, body=b"<html>"),
    "a list": HttpReply(status=200, body=b"[]"),
    "no list": HttpReply(status=200, body=b'{"keys":{}}'),
    "too deep": HttpReply(status=200, body=b"[" * 1000),
    "too many": HttpReply(status=200, body=json.dumps({"keys": [SIGNER.jwk] * 101}).encode()),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_without_keys_deliveries_are_put_off(failure):
    server = KeyServer(SIGNER)
    server.failure = failure
    receiver, config = expecting(KEYS, engine=server)

    reply = await push(receiver, config, SIGNER.token(BODY))
    assert (reply.status, reply.headers["retry-after"]) == (503, "10")
    assert (await push(receiver, config, SIGNER.token(BODY))).status == 503
    assert len(server.asked) == 1

    server.failure = None
    await asyncio.sleep(10)
    assert (await push(receiver, config, SIGNER.token(BODY))).status == 200


async def test_keys_that_cannot_be_fetched_anew_count_for_a_while():
    server = KeyServer(SIGNER)
    receiver, config = expecting(KEYS, engine=server)
    await push(receiver, config, SIGNER.token(BODY))
    server.failure = HttpReply(status=500)

    await asyncio.sleep(3600)
    assert (await push(receiver, config, SIGNER.token(BODY))).status == 200
    await asyncio.sleep(86400)
    assert (await push(receiver, config, SIGNER.token(BODY))).status == 503


async def test_a_new_key_is_not_refused_because_it_cannot_be_fetched():
    server, rotated = KeyServer(SIGNER), Signer(kid="k-2")
    receiver, config = expecting(KEYS, engine=server)
    working = body_of(task(TaskState.WORKING))
    assert (await push(receiver, config, SIGNER.token(working), working)).status == 200
    server.failure = HttpReply(status=500)
    await asyncio.sleep(20)

    assert (await push(receiver, config, rotated.token(BODY))).status == 503
    server.failure, server.documents = None, rotated.jwks
    await asyncio.sleep(20)
    assert (await push(receiver, config, rotated.token(BODY))).status == 200


async def test_keys_for_something_else_do_not_count():
    encrypting = {**SIGNER.jwk, "use": "enc"}
    server = KeyServer()
    server.documents["keys"] = [encrypting, "no key", {"kid": "k-1"}, {"kty": "??", "kid": "k-1"}]
    receiver, config = expecting(KEYS, engine=server)

    assert (await push(receiver, config, SIGNER.token(BODY))).status == 401


def test_one_key_is_a_set():
    PushReceiver(URL, keys=SIGNER.jwk)


@pytest.mark.parametrize(
    ("keys", "error", "match"),
    [
        ({}, ValueError, "not a JWK set"),
        ({"keys": []}, ValueError, "keys has no key"),
        ({"keys": [{**SIGNER.jwk, "use": "enc"}]}, ValueError, "keys has no key"),
        ("agent.example/keys", ValueError, "the address of the keys .* must begin with http"),
        (5, TypeError, "keys must be Mapping"),
    ],
    ids=["empty", "no keys", "for encryption", "no address", "a number"],
)
def test_keys_that_cannot_be_right_are_refused(keys, error, match):
    with pytest.raises(error, match=match):
        PushReceiver(URL, keys=keys)


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        ({"algorithms": ()}, "algorithms must be a tuple of names"),
        ({"algorithms": "ES256"}, "algorithms must be tuple"),
        ({"algorithms": ["ES256"]}, "algorithms must be tuple"),
        ({"algorithms": ("ES256", "None")}, "must not contain"),
        ({"max_age": -1}, "max_age must be a finite number of seconds"),
        ({"leeway": float("inf")}, "leeway must be a finite number of seconds"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"max_tokens": 1.5}, "max_tokens must be a whole number"),
        ({"max_age": True}, "max_age must be a number"),
        ({"leeway": "5"}, "leeway must be a number"),
        ({"audience": ""}, "audience must not be empty; omit it"),
        ({"audience": True}, "audience must be the name of the receiver"),
        ({"audience": ["me"]}, "audience must be the name of the receiver"),
    ],
    ids=str,
)
def test_a_policy_that_cannot_be_right_is_refused(policy, match):
    with pytest.raises((ValueError, TypeError), match=match):
        JwtPolicy(**policy)


def test_without_the_extra_the_error_names_it():
    code = (
        "import sys; sys.modules['jwt'] = None\n"
        "from holdfast.push import PushReceiver\n"
        "PushReceiver('https://me.example/push').config()\n"
        "try:\n"
        "    PushReceiver('https://me.example/push', keys='https://agent.example/keys')\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert 'pip install ".[push]"' in done.stdout


# ── Races and bounds ─────────────────────────────────────────────────────────────────────────


async def test_an_early_delivery_that_only_a_signature_proves_is_put_off():
    receiver = PushReceiver(URL, keys=SIGNER.jwks, env=Clock())
    config = receiver.config()
    token = SIGNER.token(BODY)

    early = await push(receiver, None, token)
    assert (early.status, early.headers["retry-after"]) == (503, "1")
    receiver.expect("t-1", config)
    assert (await push(receiver, None, token)).status == 200
    other = body_of(task(task_id="t-2"))
    assert (await push(receiver, None, SIGNER.token(other), other)).status == 404


async def test_unexpected_tasks_leave_nothing_behind():
    receiver, config = expecting(max_tokens=1)

    for number in range(200):
        body = body_of(task(task_id=f"x-{number}"))
        for proof in (None, config):
            assert (await push(receiver, proof, SIGNER.token(body), body)).status == 404

    assert repr(receiver) == f"PushReceiver('{URL}', 1 tasks)"
    assert (await push(receiver, config, SIGNER.token(BODY))).status == 200


async def test_caller_waits_for_keys_once():
    server = KeyServer()
    server.hangs = True
    receiver, config = expecting(KEYS, engine=server)

    waiting = [asyncio.ensure_future(push(receiver, config, SIGNER.token(BODY))) for _ in range(5)]
    replies = await asyncio.gather(*waiting)

    assert {reply.status for reply in replies} == {503}
    assert asyncio.get_running_loop().time() == 20
    assert len(server.asked) == 1


async def test_who_leaves_takes_no_keys_away_from_others():
    server = KeyServer(SIGNER)
    receiver, config = expecting(KEYS, engine=server)
    first = asyncio.ensure_future(push(receiver, config, SIGNER.token(BODY)))
    await asyncio.sleep(0.05)

    first.cancel()

    assert (await push(receiver, config, SIGNER.token(BODY))).status == 200
    assert first.cancelled()
    assert len(server.asked) == 1


async def test_closing_ends_a_fetch_of_keys():
    server = KeyServer()
    server.hangs = True
    receiver, config = expecting(KEYS, engine=server)
    waiting = asyncio.ensure_future(push(receiver, config, SIGNER.token(BODY)))
    await asyncio.sleep(1)

    await receiver.close()

    assert (await waiting).status == 503
    assert asyncio.get_running_loop().time() == 1
    assert len(asyncio.all_tasks()) == 1


async def test_a_large_body_is_not_parsed_to_be_compared():
    receiver, config = expecting()
    body = b"[" + b"[]," * 500_000 + b"[]]"
    tracemalloc.start()
    try:
        assert (await push(receiver, config, SIGNER.token(BODY), body)).status == 413
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < 8 * len(body)


async def test_a_token_that_runs_out_while_the_body_is_read_counts_no_more():
    clock = Clock()
    receiver, config = expecting(env=clock)
    headers = [
        *JSON.items(),
        ("x-a2a-notification-token", config.token),
        ("authorization", f"Bearer {SIGNER.token(BODY)}"),
    ]

    async def rest():
        clock.now += 361
        return {"type": "http.request", "body": BODY[9:]}

    assert (await request(receiver, BODY[:9], headers=headers, end=rest)).status == 401
    assert receiver.get_task("t-1") is None


@pytest.mark.parametrize(
    "key",
    [
        {"kty": "EC", "crv": "P-256", "x": 5, "y": 5},
        {"kty": "EC", "crv": ["P-256"], "x": None, "y": {}},
        {"kty": "EC", "crv": "P-256", "x": "é", "y": "a"},
        {"kty": "EC", "alg": 5},
    ],
    ids=str,
)
async def test_a_key_that_cannot_be_read_hides_no_other_of_its_name(key):
    receiver, config = expecting({"keys": [{**key, "kid": "k-1"}, SIGNER.jwk]})

    assert (await push(receiver, config, SIGNER.token(BODY))).status == 200


@pytest.mark.parametrize(
    "header", [b"[" * 5000, b'{"alg":"ES256","x":' + b"[" * 5000, b'{"alg":["ES256"]}'], ids=repr
)
async def test_a_header_that_cannot_be_read_is_refused(header):
    receiver, config = expecting()
    token = f"{base64.urlsafe_b64encode(header).rstrip(b'=').decode()}.e30.AAAA"

    assert (await push(receiver, config, token)).status == 401


async def test_a_set_of_keys_of_any_size_is_not_read(caplog):
    server = KeyServer(SIGNER)
    server.documents["more"] = ["x"] * 600_000
    receiver, config = expecting(KEYS, engine=server)

    assert (await push(receiver, config, SIGNER.token(BODY))).status == 503
    assert server.asked[0].limits.body <= 1024 * 1024


def test_keys_that_others_can_exchange_are_warned_of(caplog):
    PushReceiver(URL, keys="http://agent.example/keys?x=canary", engine=KeyServer())

    assert "the address of the keys http://agent.example/keys is not https" in caplog.text
    assert "canary" not in caplog.text
    with pytest.raises(ValueError, match="has a fragment"):
        PushReceiver(URL, keys="https://agent.example/keys#k-1")


# ── Secrets ──────────────────────────────────────────────────────────────────────────────────


async def test_no_signed_token_is_shown_or_kept(caplog):
    caplog.set_level("DEBUG")
    receiver, config = expecting()
    token = SIGNER.token(BODY)
    shown = [
        str(await push(receiver, config, sent)) for sent in (token, token, Signer().token(BODY))
    ]
    shown += [caplog.text, repr(receiver), repr(vars(receiver._signatures))]

    said = "\n".join(shown)
    assert token not in said
    assert token.split(".")[1] not in said


async def test_a_journal_that_does_not_close_leaves_no_connections_open(tmp_path, monkeypatch):
    closed = []

    async def close_engine(engine):
        closed.append(engine)

    async def close_journal(journal):
        raise OSError("no")

    monkeypatch.setattr(AiohttpEngine, "close", close_engine)
    monkeypatch.setattr(SqliteJournal, "close", close_journal)
    receiver = PushReceiver(URL, keys="https://keys.example/jwks", journal=tmp_path / "used.db")

    with pytest.raises(OSError, match="no"):
        await receiver.close()
    assert len(closed) == 1
