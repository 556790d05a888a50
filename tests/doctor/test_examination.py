"""Examining fake agents, with each defect and without it: what is found, and what was sent."""

import asyncio
import json
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import pytest
from tests.kit.stubborn_network import StubbornNetwork
from tests.kit.virtual_env import VirtualWall

from holdfast import SchemeCredentials
from holdfast._doctor.examination import Examination
from holdfast.doctor import diagnose
from holdfast.errors import A2AConnectionError, AuthenticationError, DeadlineExceededError
from holdfast.extend import HttpReply
from holdfast.testing import (
    Cut,
    Delay,
    FakeAgent,
    FakeNetwork,
    Plan,
    Reset,
    Respond,
    Stall,
    Step,
    Streaming,
    asks,
    completes,
    fails,
    rate_limited,
    replies,
    streams,
    works_forever,
)
from holdfast.types import (
    AgentCapabilities,
    AgentCard,
    AgentCardSignature,
    AgentInterface,
    AgentSkill,
    Artifact,
    HTTPAuthSecurityScheme,
    Part,
    SecurityRequirement,
    SecurityScheme,
    StringList,
    TaskState,
)

UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f-]{27}")
SLOW = streams("one ", "two ", "three", every=1.0)


@dataclass
class Between:
    """An engine that changes replies on their way."""

    inner: FakeNetwork
    change: object

    async def request(self, request):
        return self.change(request, await self.inner.request(request))

    def stream(self, request):
        return self.inner.stream(request)

    async def close(self):
        pass


async def examined(agent=None, *, engine=None, ahead=0.0, **options):
    agent = FakeAgent() if agent is None else agent
    network = engine or FakeNetwork(agent)
    return await diagnose(agent.url, engine=network, env=VirtualWall(ahead), **options)


def levels(diagnosis, check):
    """The levels of a check, each once: of several interfaces, mostly the same."""
    return {finding.level for finding in diagnosis.of(check)}


def saw(diagnosis, check):
    return " | ".join(finding.saw for finding in diagnosis.of(check))


def with_headers(**headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    def change(_request, reply):
        return msgspec.structs.replace(reply, headers={**reply.headers, **named})

    return change


def card(**changes):
    """A card that is as it should be, for an agent at agent.test, but for the changes."""
    right = AgentCard(
        name="Fake agent",
        description="Does as it is told.",
        version="1.0",
        supported_interfaces=(
            AgentInterface(
                url="http://agent.test/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
            ),
        ),
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=(AgentSkill(id="echo", name="Echo", description="Echoes.", tags=("test",)),),
    )
    return msgspec.structs.replace(right, **changes)


def interface(url="http://agent.test/rpc", binding="JSONRPC", version="1.0"):
    return AgentInterface(url=url, protocol_binding=binding, protocol_version=version)


BEARER = {
    "security_schemes": {
        "bearer": SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="Bearer"))
    }
}
REQUIRED = {
    **BEARER,
    "security_requirements": (SecurityRequirement(schemes={"bearer": StringList()}),),
}


# ── What is sent ─────────────────────────────────────────────────────────────────────────────


async def test_an_agent_that_does_as_the_protocol_says_is_healthy():
    diagnosis = await examined()

    assert diagnosis.is_healthy
    assert diagnosis.is_complete
    assert diagnosis.error is None
    assert levels(diagnosis, "errors") == {"ok"}
    worse = {f.check for f in diagnosis.findings if f.level in {"warning", "problem"}}
    assert worse == {"address.plain"}  # it has no TLS


async def test_nothing_is_executed_unless_a_message_is_named():
    agent = FakeAgent()

    diagnosis = await examined(agent)

    assert agent.executions == {}
    assert diagnosis.message_ids == ()
    sent = {received.operation for received in agent.received}
    assert not sent & {"SendMessage", "SendStreamingMessage", "CancelTask"}
    assert levels(diagnosis, "recording") == {"not measured"}
    assert levels(diagnosis, "sending") == {"not measured"}


@pytest.mark.parametrize(("resets", "level"), [(1, "ok"), (2, "problem")])
async def test_an_interface_is_probed_again_after_one_reset_and_is_a_problem_after_two(
    resets, level
):
    agent = FakeAgent(bindings=("JSONRPC",))
    agent.inject(Reset(), on="GetTask", times=resets)

    diagnosis = await examined(agent)

    assert levels(diagnosis, "bindings.answers") == {level}
    assert (diagnosis.error is None) == (level == "ok")


async def test_no_question_is_asked_twice():
    agent = FakeAgent(bindings=("JSONRPC",))
    requests = []

    def note(request, reply):
        requests.append((request.method, request.url, UUID.sub(b"", request.body)))
        return reply

    await examined(agent, engine=Between(FakeNetwork(agent), note))

    assert len(requests) == len(set(requests))
    assert len(requests) < 12


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_message_is_sent_once(streaming):
    agent = FakeAgent(SLOW, streaming=streaming)

    diagnosis = await examined(agent, send="go")

    assert [len(made) for made in agent.executions.values()] == [1]
    assert list(agent.executions) == list(diagnosis.message_ids)
    assert levels(diagnosis, "sending.twice") == {"not measured"}


async def test_a_message_is_sent_twice_where_that_is_asked_for():
    agent = FakeAgent()

    diagnosis = await examined(agent, send="go", twice=True)

    assert [len(made) for made in agent.executions.values()] == [2]
    assert len(diagnosis.message_ids) == 2
    assert len(set(diagnosis.message_ids)) == 1
    assert levels(diagnosis, "sending.twice") == {"info"}


async def test_a_message_is_not_sent_again_when_its_stream_fails():
    agent = FakeAgent(SLOW)
    agent.inject(Cut(), on="SendStreamingMessage")

    diagnosis = await examined(agent, send="go")

    assert [len(made) for made in agent.executions.values()] == [1]
    assert levels(diagnosis, "streaming.begins") == {"problem"}
    assert levels(diagnosis, "sending.answer") == {"warning"}
    assert not diagnosis.is_healthy


async def test_examination_of_a_subscription_whose_read_outlives_its_cancellation_ends(caplog):
    agent = FakeAgent(streams("a", "b", every=1000))
    network = StubbornNetwork(agent)

    diagnosis = await asyncio.wait_for(examined(agent, engine=network, send="hi"), timeout=600)

    assert diagnosis.findings
    assert any("continues although it was cancelled" in line for line in caplog.messages)
    network.released.set()
    await asyncio.sleep(1)


async def test_the_examination_leaves_no_connection_open():
    agent = FakeAgent(SLOW)
    network = FakeNetwork(agent)

    await examined(agent, engine=network, send="go")

    assert network.in_flight == 0
    assert agent.open_streams == 0


# ── The card ─────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_that_is_not_there_is_reported_as_a_finding():
    diagnosis = await diagnose("http://nobody.test", engine=FakeNetwork())

    (finding,) = diagnosis.findings
    assert (finding.check, finding.level) == ("card.reached", "problem")
    assert isinstance(diagnosis.error, A2AConnectionError)


@pytest.mark.parametrize(
    ("status", "check"),
    [(404, "card.found"), (500, "card.found"), (401, "card.found"), (403, "card.found")],
)
async def test_a_card_that_is_not_given_is_a_problem(status, check):
    agent = FakeAgent()
    agent.inject(Respond(status=status), on="GetAgentCard", times=3)

    diagnosis = await examined(agent)

    assert [(f.check, f.level) for f in diagnosis.findings] == [(check, "problem")]
    assert diagnosis.error is not None
    assert diagnosis.error.http_status == status


async def test_what_to_do_about_a_card_depends_on_why_there_is_none():
    missing, failing = FakeAgent(), FakeAgent()
    missing.inject(Respond(status=404), on="GetAgentCard", times=3)
    failing.inject(Respond(status=500), on="GetAgentCard")

    assert "well-known" in (await examined(missing)).findings[0].do
    assert "well-known" not in (await examined(failing)).findings[0].do


async def test_a_card_that_was_moved_is_reported():
    agent = FakeAgent()

    class Moved(Between):
        async def request(self, request):
            if request.url.endswith("/.well-known/agent-card.json"):
                return HttpReply(status=302, headers={"location": "/card.json"})
            there = request.url.replace("/card.json", "/.well-known/agent-card.json")
            return await self.inner.request(msgspec.structs.replace(request, url=there))

    diagnosis = await examined(agent, engine=Moved(FakeNetwork(agent), None))

    assert levels(diagnosis, "card.moved") == {"info"}
    assert "http://agent.test/card.json" in saw(diagnosis, "card.moved")
    assert levels(await examined(agent), "card.moved") == set()


@pytest.mark.parametrize("shown", ["hello", [], {"name": "x"}, {"supportedInterfaces": []}])
async def test_a_card_that_is_none_is_a_problem(shown):
    diagnosis = await examined(FakeAgent(card=shown))

    assert levels(diagnosis, "card.valid") == {"problem"}
    assert len(diagnosis.findings) == 1


async def test_html_in_place_of_a_card_is_a_problem():
    agent = FakeAgent()
    page = Respond(status=200, headers={"content-type": "text/html"}, body=b"<html>Hi</html>")
    agent.inject(page, on="GetAgentCard")

    assert levels(await examined(agent), "card.valid") == {"problem"}


async def test_a_card_at_the_older_path_is_a_warning():
    agent = FakeAgent()
    network = FakeNetwork(agent)

    class Older(Between):
        async def request(self, request):
            if request.url.endswith("agent-card.json"):
                return HttpReply(status=404)
            newer = request.url.replace("agent.json", "agent-card.json")
            return await self.inner.request(msgspec.structs.replace(request, url=newer))

    older = await examined(agent, engine=Older(network, None))

    assert levels(older, "card.found") == {"warning"}
    assert levels(await examined(agent), "card.found") == {"ok"}


async def test_what_a_card_lacks_is_a_warning():
    lacking = card().to_dict()
    del lacking["description"], lacking["skills"][0]["tags"]
    del lacking["supportedInterfaces"][0]["protocolVersion"]

    diagnosis = await examined(FakeAgent(card=lacking))

    assert levels(diagnosis, "card.members") == {"warning"}
    for member in ("description", "skills[0].tags", "supportedInterfaces[0].protocolVersion"):
        assert member in saw(diagnosis, "card.members")
    assert levels(diagnosis, "versions.spoken") == {"warning"}
    assert levels(await examined(FakeAgent(card=card())), "card.members") == {"ok"}


async def test_a_card_without_skills_is_reported():
    diagnosis = await examined(FakeAgent(card=card().to_dict() | {"skills": []}))

    assert levels(diagnosis, "card.members") == {"info"}


async def test_a_huge_card_makes_no_huge_diagnosis():
    huge = card(name="x" * 100_000, supported_interfaces=(interface(),) * 500).to_dict()
    agent = FakeAgent(card=huge | {"skills": [{}] * 1000})

    diagnosis = await examined(agent)

    assert len(json.dumps(diagnosis.to_dict())) < 50_000
    assert levels(diagnosis, "bindings.many") == {"info"}
    assert len(agent.received) < 80


async def test_an_interface_that_is_named_twice_is_reported():
    twice = card(supported_interfaces=(interface(), interface()))

    assert levels(await examined(FakeAgent(card=twice)), "card.repeats") == {"info"}
    assert levels(await examined(FakeAgent(card=card())), "card.repeats") == set()


async def test_signatures_are_reported_as_not_verified():
    signed = card(signatures=(AgentCardSignature(protected="e30", signature="c2ln"),))

    diagnosis = await examined(FakeAgent(card=signed))

    assert levels(diagnosis, "card.signatures") == {"info"}
    assert "not verified" in saw(diagnosis, "card.signatures")
    assert levels(await examined(), "card.signatures") == {"ok"}


@pytest.mark.parametrize(
    ("headers", "status", "level"),
    [
        ({}, 200, "info"),
        ({"etag": '"1"', "cache-control": "max-age=60"}, 200, "info"),
        ({"etag": '"1"', "cache-control": "max-age=60"}, 304, "ok"),
        ({"etag": '"1"'}, 304, "info"),
    ],
)
async def test_how_a_card_may_be_kept(headers, status, level):
    def change(request, reply):
        if "agent-card" not in request.url:
            return reply
        if "if-none-match" in request.headers and status == 304:
            return HttpReply(status=304, headers=headers)
        return msgspec.structs.replace(reply, headers={**reply.headers, **headers})

    agent = FakeAgent()

    diagnosis = await examined(agent, engine=Between(FakeNetwork(agent), change))

    assert levels(diagnosis, "card.caching") == {level}


async def test_a_card_of_another_content_type_is_a_warning():
    agent = FakeAgent()
    between = Between(FakeNetwork(agent), with_headers(content_type="text/plain"))

    assert levels(await examined(agent, engine=between), "card.type") == {"warning"}
    assert levels(await examined(agent), "card.type") == set()


async def test_a_card_can_be_a_file(tmp_path):
    path = tmp_path / "card.json"
    path.write_text(card().to_json())
    agent = FakeAgent()

    diagnosis = await diagnose(path, engine=FakeNetwork(agent), env=VirtualWall())

    assert levels(diagnosis, "card.found") == {"ok"}
    assert levels(diagnosis, "bindings.answers") == {"ok"}
    assert levels(diagnosis, "card.caching") == set()


@pytest.mark.parametrize(
    ("content", "check"), [(None, "card.found"), ("{", "card.valid"), ("{}", "card.valid")]
)
async def test_a_file_that_is_no_card_is_a_problem(tmp_path, content, check):
    path = tmp_path / "card.json"
    if content is not None:
        path.write_text(content)

    diagnosis = await diagnose(path, engine=FakeNetwork())

    assert [(f.check, f.level) for f in diagnosis.findings] == [(check, "problem")]


# ── Addresses, clocks, limits ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("url", "level"),
    [
        ("http://agent.test/rpc", "ok"),
        ("http://other.test/rpc", "warning"),
        ("http://localhost/rpc", "problem"),
        ("http://0.0.0.0:8000/rpc", "problem"),
        ("http://10.1.2.3/rpc", "problem"),
        ("http://169.254.169.254/rpc", "problem"),
    ],
)
async def test_the_address_of_an_interface(url, level):
    elsewhere = card(supported_interfaces=(interface(url),))

    diagnosis = await examined(FakeAgent(card=elsewhere))

    assert levels(diagnosis, "address.interface") == {level}


async def test_nothing_is_sent_to_an_address_that_cannot_be_meant():
    local = FakeAgent(url="http://localhost:9000")
    agent = FakeAgent(card=card(supported_interfaces=(interface("http://localhost:9000/rpc"),)))

    diagnosis = await examined(agent, engine=FakeNetwork(agent, local))

    assert local.received == []
    assert levels(diagnosis, "bindings.answers") == {"not measured"}


async def test_credentials_do_not_go_to_another_origin():
    other = FakeAgent(url="http://other.test")
    agent = FakeAgent(card=card(supported_interfaces=(interface("http://other.test/rpc"),)))

    diagnosis = await examined(
        agent,
        engine=FakeNetwork(agent, other),
        auth="Bearer secret-token",
        headers={"x-own": "mine"},
        send="go",
    )

    assert other.received
    for received in other.received:
        assert not {"authorization", "x-own"} & received.headers.keys()
    assert levels(diagnosis, "authentication.accepted") == {"not measured"}


async def test_plain_http_to_this_machine_is_no_finding():
    agent = FakeAgent(url="http://localhost:8000")

    assert levels(await examined(agent), "address.plain") == set()


@pytest.mark.parametrize(
    ("ahead", "level"), [(0, "ok"), (-3, "ok"), (60, "info"), (-60, "info"), (4000, "warning")]
)
async def test_clocks_that_differ(ahead, level):
    assert levels(await examined(ahead=ahead), "clock.skew") == {level}


async def test_hints_about_limits_are_reported():
    agent = FakeAgent()
    between = Between(FakeNetwork(agent), with_headers(ratelimit_limit="10", x_other="1"))

    diagnosis = await examined(agent, engine=between)

    assert levels(diagnosis, "limits.rate") == {"info"}
    assert saw(diagnosis, "limits.rate") == "ratelimit-limit: 10"
    assert levels(await examined(), "limits.rate") == {"ok"}


async def test_an_agent_that_is_called_too_often_is_a_warning_and_is_not_asked_again():
    agent = FakeAgent(bindings=("JSONRPC",))
    agent.inject(rate_limited(30), on="ListTasks")

    diagnosis = await examined(agent)

    assert levels(diagnosis, "limits.rate") == {"warning"}
    assert len(agent.calls("ListTasks")) == 0  # the fault answered for it, once


# ── Interfaces and versions ──────────────────────────────────────────────────────────────────


async def test_interface_without_an_answer_is_a_problem():
    two = card(supported_interfaces=(interface(), interface("http://gone.test/rpc")))
    agent = FakeAgent(card=two)

    diagnosis = await examined(agent)

    assert [f.level for f in diagnosis.of("bindings.answers")] == ["ok", "problem"]
    assert diagnosis.error is None


async def test_no_more_than_some_interfaces_are_examined():
    many = tuple(interface(f"http://agent.test/rpc?n={number}") for number in range(8))

    diagnosis = await examined(FakeAgent(card=card(supported_interfaces=many)))

    found = [f.level for f in diagnosis.of("bindings.answers")]
    assert found == ["ok"] * 6 + ["not measured"] * 2


async def test_a_card_in_a_file_may_name_this_machine(tmp_path):
    path = tmp_path / "card.json"
    agent = FakeAgent(url="http://localhost:8000")
    path.write_text(card(supported_interfaces=(interface("http://localhost:8000/rpc"),)).to_json())

    diagnosis = await diagnose(
        path, engine=FakeNetwork(agent), env=VirtualWall(), auth="Bearer x1"
    )

    assert levels(diagnosis, "address") == {"ok"}
    assert levels(diagnosis, "bindings.answers") == {"ok"}
    assert agent.calls("ListTasks")[0].headers["authorization"] == "Bearer x1"


async def test_no_interface_that_answers_is_what_calls_fail_with():
    agent = FakeAgent(card=card(supported_interfaces=(interface("http://gone.test/rpc"),)))

    diagnosis = await examined(agent)

    assert isinstance(diagnosis.error, A2AConnectionError)


async def test_a_page_where_an_agent_should_be_is_a_problem():
    agent = FakeAgent(bindings=("JSONRPC",))
    page = Respond(status=200, headers={"content-type": "text/html"}, body=b"<html>Hi</html>")
    agent.inject(page, times=20)

    diagnosis = await examined(agent)

    assert levels(diagnosis, "bindings.answers") == {"problem"}
    assert levels(diagnosis, "errors") == set()


@pytest.mark.parametrize(
    ("binding", "level"), [("urn:pigeon", "problem"), ("GRPC", "not measured")]
)
async def test_bindings_that_are_not_examined_are_not_measured(binding, level):
    foreign = card(
        supported_interfaces=(
            interface("agent.test:50051", binding),
            interface(version="7.0"),
        )
    )

    diagnosis = await examined(FakeAgent(card=foreign))

    assert levels(diagnosis, "bindings.answers") == {"not measured"}
    assert levels(diagnosis, "bindings.known") == {level}


@pytest.mark.parametrize(
    ("versions", "spoken"),
    [
        (("1.0",), "answers in 1.0"),
        (("0.3",), "answers in 0.3"),
        (("1.0", "0.3"), "answers in 1.0 and 0.3"),
    ],
)
async def test_the_versions_that_are_spoken(versions, spoken):
    diagnosis = await examined(FakeAgent(versions=versions, bindings=("JSONRPC",)))

    assert levels(diagnosis, "versions.spoken") == {"ok"}
    assert spoken in saw(diagnosis, "versions.spoken")


async def test_a_version_that_is_declared_and_not_spoken_is_a_problem():
    agent = FakeAgent(versions=("0.3",), card=card())

    diagnosis = await examined(agent)

    assert levels(diagnosis, "versions.spoken") == {"problem"}
    [finding] = diagnosis.of("versions.spoken")
    assert (finding.binding, finding.version) == ("JSONRPC", "0.3")
    assert finding.about.startswith("JSONRPC 1.0 ")


async def test_findings_about_an_interface_or_a_message_name_binding_and_version():
    both = FakeAgent(versions=("1.0", "0.3"), bindings=("JSONRPC", "HTTP+JSON"))

    diagnosis = await examined(both, send="go")

    spoken = {(f.binding, f.version) for f in diagnosis.of("errors.task")}
    assert spoken == {(b, v) for b in ("JSONRPC", "HTTP+JSON") for v in ("1.0", "0.3")}
    about = {finding.about for finding in diagnosis.of("errors.task")}
    assert len(about) == 4  # also where two of them have one address
    for check in ("sending", "recording", "streaming.begins", "subscribe.finished"):
        assert {(f.binding, f.version) for f in diagnosis.of(check)} == {("JSONRPC", "1.0")}
    assert {(f.binding, f.version) for f in diagnosis.of("card")} == {("", "")}


async def test_a_message_goes_out_only_in_the_version_that_is_asked_for():
    agent = FakeAgent(versions=("0.3",))

    refused = await examined(agent, send="go", protocol_version="1.0")
    assert agent.executions == {}
    assert levels(refused, "sending.answer") == {"not measured"}

    sent = await examined(agent, send="go", protocol_version="0.3")
    assert len(agent.executions) == 1
    assert levels(sent, "sending.answer") == {"ok"}


async def test_a_message_goes_over_the_binding_that_is_preferred():
    agent = FakeAgent()

    await examined(agent, send="go", bindings=["HTTP+JSON"])

    (received,) = agent.calls("SendStreamingMessage")
    assert received.url.endswith("/rest/message:stream")


# ── Authentication ───────────────────────────────────────────────────────────────────────────


def guarded(challenge="Bearer", status=401, **changes):
    """An agent that wants a token, and a proxy that answers those who have none."""
    agent = FakeAgent(card=card(**changes))

    def change(request, reply):
        if "/rpc" not in request.url or request.headers.get("authorization") == "Bearer right":
            return reply
        headers = {"www-authenticate": challenge} if challenge else {}
        return HttpReply(status=status, headers=headers)

    return agent, Between(FakeNetwork(agent), change)


async def test_credentials_that_are_asked_for_and_given_are_fine():
    agent, engine = guarded(**REQUIRED)

    diagnosis = await examined(agent, engine=engine, auth="Bearer right")

    assert levels(diagnosis, "authentication") == {"ok"}
    assert diagnosis.error is None
    assert "Bearer right" not in repr(diagnosis.to_dict())


@pytest.mark.parametrize("auth", [None, "Bearer wrong-one"])
async def test_credentials_that_are_missing_or_wrong_are_a_problem(auth):
    agent, engine = guarded(**REQUIRED)

    diagnosis = await examined(agent, engine=engine, auth=auth, send="go")

    assert levels(diagnosis, "authentication.asked") == {"ok"}
    assert levels(diagnosis, "authentication.accepted") == {"problem"}
    assert isinstance(diagnosis.error, AuthenticationError)
    assert agent.executions == {}
    assert "wrong-one" not in repr(diagnosis.to_dict()) + repr(diagnosis.error)


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({"challenge": ""}, "warning"),
        ({"status": 403}, "warning"),
        ({"status": 500}, "warning"),
        ({}, "ok"),
    ],
)
async def test_how_credentials_are_asked_for(options, level):
    agent, engine = guarded(**options, **REQUIRED)

    diagnosis = await examined(agent, engine=engine, auth="Bearer right")

    assert levels(diagnosis, "authentication.asked") == {level}


async def test_an_agent_that_asks_for_credentials_and_looks_at_none_is_a_problem():
    diagnosis = await examined(FakeAgent(card=card(**REQUIRED)), auth="Bearer right")

    assert levels(diagnosis, "authentication.asked") == {"problem"}
    assert levels(diagnosis, "authentication.accepted") == {"info"}


async def test_credentials_are_chosen_as_the_card_asks():
    agent, engine = guarded(**REQUIRED)

    diagnosis = await examined(agent, engine=engine, auth=SchemeCredentials({"bearer": "right"}))

    assert levels(diagnosis, "authentication") == {"ok"}


async def test_credentials_for_something_else_are_a_problem():
    agent, engine = guarded(**REQUIRED)

    diagnosis = await examined(agent, engine=engine, auth=SchemeCredentials({"other": "right"}))

    (accepted,) = diagnosis.of("authentication.accepted")
    assert (accepted.level, "'bearer'" in accepted.saw) == ("problem", True)
    assert levels(diagnosis, "bindings.answers") == {"ok"}
    assert isinstance(diagnosis.error, AuthenticationError)


async def test_a_refusal_in_the_words_of_the_protocol_is_a_refusal():
    error = json.dumps({"jsonrpc": "2.0", "error": {"code": -32000, "message": "no"}}).encode()
    refusal = HttpReply(status=401, headers={"www-authenticate": "Bearer"}, body=error)
    agent = FakeAgent(card=card(**REQUIRED))
    between = Between(FakeNetwork(agent), answers(lambda r: "/rpc" in r.url, refusal))

    diagnosis = await examined(agent, engine=between, send="go")

    assert levels(diagnosis, "authentication.accepted") == {"problem"}
    assert levels(diagnosis, "errors") == set()
    assert agent.executions == {}


async def test_an_error_that_hides_what_is_missing_is_a_warning():
    agent = FakeAgent(card=card(**REQUIRED))
    between = Between(FakeNetwork(agent), answers(lambda r: "/rpc" in r.url, rpc_error(-32603)))

    diagnosis = await examined(agent, engine=between)

    assert levels(diagnosis, "authentication.asked") == {"warning"}


@pytest.mark.parametrize("auth", [None, "Bearer wrong-one", "Bearer right"])
@pytest.mark.parametrize("declared", [{}, BEARER])
async def test_credentials_that_the_card_does_not_ask_for_are_a_warning(auth, declared):
    agent, engine = guarded(**declared)

    diagnosis = await examined(agent, engine=engine, auth=auth)

    (finding,) = diagnosis.of("authentication.declared")
    assert finding.level == "warning"
    assert finding.saw.endswith(", but the agent does")
    assert levels(diagnosis, "authentication.asked") == {"ok"}


@pytest.mark.parametrize(
    ("declared", "passing", "checking"),
    [
        ({}, "a token or an API key", "its card does not declare their kind"),
        (
            BEARER,
            "the credentials that the card declares",
            "of a kind that its card declares",
        ),
        (
            REQUIRED,
            "the credentials that the card requires",
            "of the kind that its card requires",
        ),
    ],
)
async def test_what_to_do_for_want_of_credentials_goes_by_what_the_card_says(
    declared, passing, checking
):
    agent, engine = guarded(**declared)

    (missing,) = (await examined(agent, engine=engine)).of("authentication.accepted")
    assert missing.do.startswith(f"pass {passing} (--bearer, --api-key; auth=)")

    wrong = await examined(agent, engine=engine, auth="Bearer wrong-one")
    (refused,) = wrong.of("authentication.accepted")
    assert refused.do.endswith(checking)


async def test_what_a_card_declares_and_does_not_require_is_reported():
    diagnosis = await examined(FakeAgent(card=card(**BEARER)))

    assert levels(diagnosis, "authentication.declared") == {"info"}


async def test_what_a_card_requires_and_does_not_declare_is_a_warning():
    undeclared = card(security_requirements=REQUIRED["security_requirements"])

    diagnosis = await examined(FakeAgent(card=undeclared))

    (finding,) = diagnosis.of("authentication.declared")
    assert finding.level == "warning"
    assert finding.saw == "the card asks for 'bearer', which the card does not declare"


async def test_the_requirements_of_a_card_are_described_with_all_alternatives():
    either = (*REQUIRED["security_requirements"], SecurityRequirement(schemes={}))
    agent, engine = guarded(**{**REQUIRED, "security_requirements": either})

    diagnosis = await examined(agent, engine=engine, auth="Bearer right")

    (finding,) = diagnosis.of("authentication.declared")
    assert finding.level == "ok"
    assert finding.saw == "the card asks for the bearer token 'bearer', or nothing"


# ── Errors ───────────────────────────────────────────────────────────────────────────────────


def answers(matches, reply):
    """What stands between, and answers some requests in the agent's place."""

    def change(request, right):
        return reply if matches(request) else right

    return change


def rpc_error(code):
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "no"}})
    return HttpReply(status=200, headers={"content-type": "application/json"}, body=body.encode())


HTML = HttpReply(status=500, headers={"content-type": "text/html"}, body=b"<html>Oops</html>")


@pytest.mark.parametrize(
    ("check", "matches"),
    [
        ("errors.method", lambda request: b"NoSuchMethod" in request.body),
        ("errors.params", lambda request: b"not" in request.body and b"an id" in request.body),
        ("errors.broken", lambda request: request.body.endswith(b'"method": ')),
    ],
)
@pytest.mark.parametrize(("reply", "level"), [(rpc_error(-32603), "info"), (HTML, "warning")])
async def test_errors_that_say_something_else(check, matches, reply, level):
    agent = FakeAgent(bindings=("JSONRPC",))
    between = Between(FakeNetwork(agent), answers(matches, reply))

    diagnosis = await examined(agent, engine=between)

    assert levels(diagnosis, check) == {level}
    assert levels(await examined(agent), check) == {"ok"}


@pytest.mark.parametrize(("status", "level"), [(404, "ok"), (200, "warning"), (500, "ok")])
async def test_an_unknown_path(status, level):
    agent = FakeAgent()
    page = HttpReply(status=status, headers={"content-type": "text/html"}, body=b"<html/>")
    between = Between(
        FakeNetwork(agent), answers(lambda request: "asks-for-nothing" in request.url, page)
    )

    assert levels(await examined(agent, engine=between), "errors.path") == {level}


@pytest.mark.parametrize(("version", "found"), [("1.0", {"ok"}), ("0.3", set())])
async def test_impossible_parameters_over_http_json(version, found):
    agent = FakeAgent(bindings=("HTTP+JSON",), versions=(version,))

    assert levels(await examined(agent), "errors.params") == found


async def test_tls_is_not_measured_where_the_engine_does_not_tell():
    agent = FakeAgent(url="https://agent.test")

    assert levels(await examined(agent), "tls.version") == {"not measured"}
    assert levels(await examined(agent), "address.plain") == set()


async def test_a_task_that_there_is_not_and_that_is_answered_is_a_problem():
    agent = FakeAgent(bindings=("HTTP+JSON",))
    task = HttpReply(
        status=200,
        headers={"content-type": "application/json"},
        body=b'{"id":"x","status":{"state":"TASK_STATE_WORKING"}}',
    )
    between = Between(
        FakeNetwork(agent), answers(lambda request: "/tasks/holdfast" in request.url, task)
    )

    assert levels(await examined(agent, engine=between), "errors.task") == {"problem"}


# ── The list of tasks ────────────────────────────────────────────────────────────────────────


async def with_a_task(**options):
    agent = FakeAgent(bindings=("JSONRPC",), **options)
    await examined(agent, send="go")
    return agent


async def test_a_list_that_filters_and_has_history_is_fine():
    diagnosis = await examined(await with_a_task())

    assert levels(diagnosis, "list") == {"ok"}


async def test_a_list_without_messages_is_reported():
    diagnosis = await examined(await with_a_task(records_messages=False))

    assert levels(diagnosis, "list.history") == {"info"}


async def test_an_agent_without_a_list_is_a_warning():
    diagnosis = await examined(FakeAgent(lists_tasks=False))

    assert levels(diagnosis, "list.there") == {"warning"}


@pytest.mark.parametrize("ignored", ["contextId", "statusTimestampAfter"])
async def test_a_filter_that_is_ignored_is_a_warning(ignored):
    agent = await with_a_task()
    network = FakeNetwork(agent)

    class Ignoring(Between):
        async def request(self, request):
            if b'"ListTasks"' in request.body:
                document = json.loads(request.body)
                document["params"].pop(ignored, None)
                body = json.dumps(document).encode()
                request = msgspec.structs.replace(request, body=body)
            return await self.inner.request(request)

    diagnosis = await examined(agent, engine=Ignoring(network, None))

    check = {"contextId": "list.context", "statusTimestampAfter": "list.time"}[ignored]
    assert levels(diagnosis, check) == {"warning"}


async def test_the_list_is_looked_at_again_when_there_is_something_in_it():
    diagnosis = await examined(FakeAgent(bindings=("JSONRPC",)), send="go")

    assert levels(diagnosis, "list") == {"ok"}


# ── Streams ──────────────────────────────────────────────────────────────────────────────────


async def test_a_stream_that_comes_as_things_happen_is_fine():
    diagnosis = await examined(FakeAgent(SLOW), send="go")

    assert levels(diagnosis, "streaming") == {"ok", "not measured"}
    assert levels(diagnosis, "streaming.flushed") == {"ok"}
    assert levels(diagnosis, "subscribe") == {"ok"}


async def test_a_stream_that_is_held_back_until_the_end_is_a_problem():
    agent = FakeAgent(SLOW)

    class Buffering(Between):
        def stream(self, request):
            return Buffered(self.inner.stream(request))

    class Buffered:
        def __init__(self, context):
            self._context = context

        async def __aenter__(self):
            self._reply = await self._context.__aenter__()
            return self

        async def __aexit__(self, *error):
            return await self._context.__aexit__(*error)

        status = property(lambda self: self._reply.status)
        headers = property(lambda self: self._reply.headers)

        async def chunks(self):
            pieces = [piece async for piece in self._reply.chunks()]
            yield b"".join(pieces)

        async def read(self):
            return await self._reply.read()

    diagnosis = await examined(
        agent, engine=Buffering(FakeNetwork(agent), lambda _, reply: reply), send="go"
    )

    assert levels(diagnosis, "streaming.flushed") == {"problem"}


async def test_a_task_that_is_over_at_once_shows_nothing_about_flushing():
    diagnosis = await examined(FakeAgent("done"), send="go")

    assert levels(diagnosis, "streaming.flushed") == {"not measured"}
    assert "ended too quickly" in saw(diagnosis, "streaming.flushed")
    assert levels(diagnosis, "streaming.begins") == {"ok"}


@pytest.mark.parametrize(
    ("keep_alive", "after", "level"),
    [(None, 30.0, "warning"), (15.0, 50.0, "ok"), (None, 5.0, "not measured")],
)
async def test_comments_in_times_of_silence(keep_alive, after, level):
    agent = FakeAgent(
        completes("done", works=0, after=after), streaming=Streaming(keep_alive=keep_alive)
    )

    diagnosis = await examined(agent, send="go")

    assert levels(diagnosis, "streaming.keep-alive") == {level}


async def test_a_stream_that_is_cut_is_a_problem():
    agent = FakeAgent(SLOW)
    agent.inject(Cut(after_events=2, clean=True), on="SendStreamingMessage")

    diagnosis = await examined(agent, send="go")

    assert levels(diagnosis, "streaming.end") == {"problem"}


async def test_a_stream_that_does_not_end_is_a_warning():
    agent = FakeAgent(SLOW)
    # SUBMITTED or WORKING, three chunks, COMPLETED; then nothing, and no end.
    agent.inject(Stall(phase="idle", after_events=6), on="SendStreamingMessage")

    diagnosis = await examined(agent, send="go")

    assert levels(diagnosis, "streaming.end") == {"warning"}
    assert levels(diagnosis, "subscribe.finished") == {"ok"}
    assert asyncio.get_running_loop().time() < 30


async def test_a_stream_that_waits_for_an_answer_may_stay_open():
    agent = FakeAgent(asks("what?", after=1), streaming=Streaming(stays_open=True))

    diagnosis = await examined(agent, send="go")

    assert levels(diagnosis, "streaming.end") == {"ok"}
    assert asyncio.get_running_loop().time() < 30


async def test_a_stream_without_an_event_is_abandoned():
    agent = FakeAgent(SLOW)
    agent.inject(Stall(), on="SendStreamingMessage")

    diagnosis = await examined(agent, send="go", timeout=40)

    assert diagnosis.is_complete
    assert levels(diagnosis, "streaming.begins") == {"problem"}
    assert levels(diagnosis, "sending.answer") == {"warning"}
    assert "no event for 20 s" in saw(diagnosis, "sending.answer")


async def test_a_stream_that_is_refused_is_a_problem():
    agent = FakeAgent(streaming=Streaming())
    agent.inject(Respond(status=502, body=b"<html>"), on="SendStreamingMessage")

    diagnosis = await examined(agent, send="go")

    assert levels(diagnosis, "streaming.begins") == {"problem"}
    assert levels(diagnosis, "sending.answer") == {"problem"}


async def test_streaming_that_is_declared_and_not_there_is_a_problem():
    agent = FakeAgent(streaming=False, card=card())

    diagnosis = await examined(agent)

    assert levels(diagnosis, "subscribe.unknown") == {"problem"}


async def test_no_streaming_is_worth_knowing():
    diagnosis = await examined(FakeAgent(streaming=False), send="go")

    assert levels(diagnosis, "streaming.declared") == {"info"}
    assert levels(diagnosis, "streaming.begins") == {"not measured"}
    assert levels(diagnosis, "recording.task") == {"ok"}


async def test_a_task_that_never_ends_is_left():
    diagnosis = await examined(FakeAgent(works_forever()), send="go", timeout=60)

    assert diagnosis.is_complete
    assert "closed while" in saw(diagnosis, "streaming.end")
    assert saw(diagnosis, "streaming.flushed").endswith("too few to measure")
    assert levels(diagnosis, "subscribe.finished") == {"not measured"}
    assert levels(diagnosis, "recording.task") == {"ok"}


async def test_a_task_that_asks_for_something_is_left_there():
    diagnosis = await examined(FakeAgent(asks("what?")), send="go")

    assert levels(diagnosis, "streaming.end") == {"ok"}
    assert "waits for an answer" in saw(diagnosis, "sending.answer")


# ── Subscriptions ────────────────────────────────────────────────────────────────────────────


async def test_a_subscription_without_the_task_is_a_warning():
    diagnosis = await examined(FakeAgent(SLOW, streaming=Streaming(snapshot=False)), send="go")

    assert levels(diagnosis, "subscribe.snapshot") == {"warning"}


def chunk(text):
    return (Artifact(artifact_id="a", parts=(Part(text=text),)),)


@pytest.mark.parametrize(("overlap", "level"), [(0, "ok"), (1, "warning")])
async def test_a_subscription_that_tells_chunks_again(overlap, level):
    plan = Plan(
        (
            Step(state=TaskState.SUBMITTED),
            Step(state=TaskState.WORKING),
            Step(artifacts=chunk("one ")),
            Step(artifacts=chunk("two "), append=True),
            Step(artifacts=chunk("three"), append=True, after=1),
            Step(state=TaskState.COMPLETED, after=1),
        )
    )
    agent = FakeAgent(plan, streaming=Streaming(overlap=overlap))

    diagnosis = await examined(agent, send="go")

    assert levels(diagnosis, "subscribe.overlap") == {level}


async def test_a_subscription_that_is_refused_while_the_task_runs_is_a_problem():
    agent = FakeAgent(SLOW)
    agent.inject(Respond(status=404), on="SubscribeToTask", times=9)

    diagnosis = await examined(agent, send="go")

    assert levels(diagnosis, "subscribe.snapshot") == {"problem"}
    assert levels(diagnosis, "subscribe.unknown") == {"warning"}
    assert levels(diagnosis, "subscribe.finished") == {"warning"}


async def test_a_refusal_that_crosses_the_end_of_the_task_is_no_problem():
    agent = FakeAgent(SLOW, bindings=("JSONRPC",))
    agent.inject(Stall(phase="idle", after_events=2), on="SendStreamingMessage")
    agent.inject(Delay(seconds=10, after_execution=False), on="SubscribeToTask", times=2)

    diagnosis = await examined(agent, send="go")

    assert not agent.pending_faults
    assert levels(diagnosis, "subscribe.snapshot") == {"not measured"}


class LateSubscriptions(FakeNetwork):
    """A network on which requests to subscribe take their time."""

    @asynccontextmanager
    async def stream(self, request):
        await asyncio.sleep(4.5 if b"SubscribeToTask" in request.body else 0)
        async with super().stream(request) as reply:
            yield reply


async def test_a_store_behind_the_stream_does_not_make_a_late_refusal_a_problem():
    agent = FakeAgent(SLOW, bindings=("JSONRPC",), store_lag=1.5)
    agent.inject(Respond(status=404), on="SubscribeToTask", times=9)

    diagnosis = await examined(agent, engine=LateSubscriptions(agent), send="go")

    assert levels(diagnosis, "subscribe.snapshot") == {"not measured"}


async def test_running_task_of_protocol_0_3_is_not_subscribed_to():
    agent = FakeAgent(SLOW, versions=("0.3",), bindings=("JSONRPC",))

    diagnosis = await examined(agent, send="go")

    assert levels(diagnosis, "subscribe.snapshot") == {"not measured"}
    assert levels(diagnosis, "streaming.flushed") == {"ok"}


async def test_a_subscription_that_hangs_is_a_warning():
    agent = FakeAgent(SLOW, bindings=("JSONRPC",))
    agent.inject(Stall(), on="SubscribeToTask")

    diagnosis = await examined(agent)

    assert levels(diagnosis, "subscribe.unknown") == {"warning"}


# ── Messages ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("records", "level"), [(True, "ok"), (False, "warning")])
async def test_whether_a_message_can_be_found_again(records, level):
    diagnosis = await examined(FakeAgent(records_messages=records), send="go")

    assert levels(diagnosis, "recording.task") == {level}
    assert levels(diagnosis, "recording.list") == {level}
    assert levels(diagnosis, "recording.time") == {"ok"}


async def test_without_a_list_nothing_can_be_found_in_it():
    diagnosis = await examined(FakeAgent(lists_tasks=False), send="go")

    assert levels(diagnosis, "recording.task") == {"ok"}
    assert levels(diagnosis, "recording.list") == {"not measured"}


async def test_an_agent_with_another_clock_is_asked_by_its_own():
    diagnosis = await examined(FakeAgent(), ahead=-3600, send="go")

    assert levels(diagnosis, "recording.time") == {"ok"}


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_message_in_place_of_a_task_is_reported(streaming):
    diagnosis = await examined(
        FakeAgent(replies("hi"), streaming=streaming), send="go", twice=True
    )

    assert levels(diagnosis, "sending.answer") == {"ok"}
    assert levels(diagnosis, "recording.task") == {"info"}
    assert levels(diagnosis, "sending.twice") == {"info"}


async def test_a_task_that_fails_is_the_agents_decision():
    diagnosis = await examined(FakeAgent(fails("no")), send="go")

    assert levels(diagnosis, "sending.answer") == {"info"}
    assert diagnosis.is_healthy


# ── Time ─────────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_that_does_not_answer_is_asked_once():
    agent = FakeAgent(bindings=("JSONRPC",))
    agent.inject(Stall(), times=9)

    diagnosis = await examined(agent)

    assert levels(diagnosis, "bindings.answers") == {"problem"}
    assert len(agent.pending_faults) == 8
    assert diagnosis.error is not None


async def test_when_the_time_is_over_what_was_found_is_reported():
    agent = FakeAgent()
    agent.inject(Stall(), on="GetTask", times=20)

    diagnosis = await examined(agent, timeout=10, send="go")

    assert not diagnosis.is_complete
    assert levels(diagnosis, "card.found") == {"ok"}
    assert isinstance(diagnosis.error, DeadlineExceededError)
    assert agent.executions == {}
    assert "time limit of 10 s expired" in saw(diagnosis, "bindings.answers")


async def interrupted(agent, *, after, **options):
    """An examination that somebody ends early."""
    env = VirtualWall()
    examination = Examination(agent.url, engine=FakeNetwork(agent), env=env, **options)
    running = asyncio.create_task(examination.run())
    await asyncio.sleep(after)
    before = examination.diagnosis()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    return before, examination.diagnosis()


async def test_what_an_interruption_keeps_from_being_measured_has_that_one_reason():
    before, diagnosis = await interrupted(
        FakeAgent(works_forever(), bindings=("JSONRPC",)), after=3, send="go"
    )

    assert not diagnosis.is_complete
    assert not diagnosis.is_healthy
    assert diagnosis.error is None
    assert diagnosis.to_dict()["complete"] is False
    why = "the examination was interrupted"
    assert diagnosis.stopped == diagnosis.to_dict()["stopped"] == why
    unmeasured = [f for f in diagnosis.findings if f.level == "not measured"]
    assert {f.saw for f in unmeasured} == {why}
    assert {f.check for f in unmeasured} >= {
        "recording.task", "recording.list", "recording.time", "sending.twice",
        "streaming.flushed", "streaming.keep-alive", "subscribe.overlap", "subscribe.finished",
    }  # fmt: skip
    assert levels(diagnosis, "subscribe.snapshot") == {"ok"}
    assert before.stopped == "the examination has not finished"


async def test_an_interruption_before_a_message_is_answered_leaves_it_unknown():
    agent = FakeAgent()
    agent.inject(Stall(), on="SendStreamingMessage")

    _, diagnosis = await interrupted(agent, after=3, send="go")

    assert levels(diagnosis, "sending.answer") == {"warning"}
    assert "was sent, and the examination was interrupted" in saw(diagnosis, "sending.answer")


async def test_a_list_that_is_there_and_not_asked_is_not_said_to_be_missing():
    agent = FakeAgent(bindings=("JSONRPC",))
    network = FakeNetwork(agent)

    class Forgetful(Between):
        """The agent does not know of tasks that its list holds."""

        async def request(self, request):
            known = [b'"GetTask"' in request.body and t.encode() in request.body for t in tasks()]
            return HTML if any(known) else await self.inner.request(request)

    def tasks():
        return [task for made in agent.executions.values() for task in made]

    diagnosis = await examined(agent, engine=Forgetful(network, None), send="go")

    assert levels(diagnosis, "list.there") == {"ok"}
    for check in ("recording.task", "recording.list", "recording.time"):
        assert saw(diagnosis, check) == "it could not be asked"


async def test_a_card_that_does_not_come_in_time_is_reported():
    agent = FakeAgent()
    agent.inject(Stall(), on="GetAgentCard")

    diagnosis = await examined(agent, timeout=3)

    assert levels(diagnosis, "card.found") == {"not measured"}
    assert isinstance(diagnosis.error, DeadlineExceededError)


# ── Arguments ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"agent": "nonsense"}, ValueError, "agent URL"),
        ({"agent": 5}, TypeError, "agent"),
        ({"twice": True}, ValueError, "pass send="),
        ({"timeout": 0}, ValueError, "timeout"),
        ({"protocol_version": "2.0"}, ValueError, "protocol_version"),
        ({"bindings": ["GRPC"]}, ValueError, "bindings"),
        ({"send": ""}, ValueError, "part"),
        ({"auth": ""}, ValueError, "auth"),
        ({"headers": {"a b": "c"}}, ValueError, "header"),
        ({"limits": 5}, TypeError, "limits"),
    ],
)
async def test_an_argument_that_cannot_be_right_is_refused(arguments, kind, text):
    passed = {"agent": "http://agent.test", "engine": FakeNetwork(), **arguments}

    with pytest.raises(kind, match=text):
        await diagnose(passed.pop("agent"), **passed)


async def test_a_diagnosis_is_plain_data():
    diagnosis = await examined()

    document = json.loads(json.dumps(diagnosis.to_dict()))
    assert document["agent"] == "http://agent.test"
    assert document["name"] == "Fake agent"
    assert document["healthy"] is True
    assert document["counts"]["problem"] == 0
    assert {finding["check"] for finding in document["findings"]} >= {"card.found", "clock.skew"}
    assert repr(diagnosis).startswith("<Diagnosis of http://agent.test: ")


async def test_no_finding_repeats_what_was_sent_in_secret():
    secret = "s3cr3t-t0ken-of-mine"

    def echo(request, reply):
        if "/rpc" not in request.url:
            return reply
        told = request.headers.get("authorization", "")
        return HttpReply(
            status=401, headers={"www-authenticate": told}, body=f"<p>{told}</p>".encode()
        )

    agent = FakeAgent(card=card(name=f"Agent of {secret}", **REQUIRED))
    engine = Between(FakeNetwork(agent), echo)

    diagnosis = await examined(agent, engine=engine, auth=f"Bearer {secret}", send="go")

    assert secret not in repr(diagnosis.to_dict())
    assert secret not in f"{diagnosis.error!r} {diagnosis.error.headers} {diagnosis.name}"
