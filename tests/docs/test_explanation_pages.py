"""docs/explanation: guarantees, streams, versions, security; and the links of all its pages."""

import functools
import inspect

import pytest
from tests.kit.pages import ROOT, Page, execute

import holdfast
from holdfast.testing import Cut, FakeAgent, FakeNetwork, Reset, completes, streams

PATHS = sorted(path.relative_to(ROOT) for path in ROOT.glob("docs/explanation/*.md"))
STREAMS = Page("docs/explanation/streams.md")
SENT_ONCE = Page("docs/explanation/sent-once.md")
SECURITY = Page("docs/explanation/security.md")
VERSIONS = Page("docs/explanation/versions.md")
URL = "http://localhost:9999"


@pytest.fixture
def reach(monkeypatch):
    """Has the pages connect to fake agents."""

    def reach(*agents):
        connect = functools.partial(holdfast.connect, engine=FakeNetwork(*agents))
        monkeypatch.setattr(holdfast, "connect", connect)

    return reach


async def test_cut_stream_yields_each_piece_once(capsys):
    agent = FakeAgent(streams("384,400", " km", every=1))
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")

    async with holdfast.connect(agent.url, engine=FakeNetwork(agent)) as client:
        await execute(STREAMS.block("stream_message"), agent=client)

    assert capsys.readouterr().out == "384,400 km1 False True\n"


async def test_lost_reply_that_is_not_found_is_an_unknown_outcome(capsys):
    agent = FakeAgent("pizza", records_messages=False)
    agent.inject(Reset(after_execution=True), on="SendStreamingMessage")

    async with holdfast.connect(agent.url, engine=FakeNetwork(agent)) as client:
        await execute(SENT_ONCE.block("except holdfast"), agent=client)

    [message_id] = agent.executions
    printed = capsys.readouterr().out
    assert printed.startswith(
        f"{message_id} ('the tasks that changed since the message was sent (read "
    )
    assert printed.endswith(" None\n")  # the search was complete


async def test_call_that_another_process_left_is_resumed(tmp_path, monkeypatch, reach, capsys):
    monkeypatch.chdir(tmp_path)
    agent = FakeAgent(completes("pizza", after=60), url=URL)
    reach(agent)
    async with holdfast.connect(URL, journal="calls.db") as earlier:
        with pytest.raises(holdfast.DeadlineExceededError):
            await earlier.ask("Order one pizza.", timeout=5)

    names = await execute(SENT_ONCE.block("resume_pending"))

    assert capsys.readouterr().out.endswith(" pizza (0 left)\n")
    assert names["answer"].text == "pizza"
    assert len(agent.executions) == 2


async def test_address_of_a_user_is_not_called_inside(reach, capsys):
    reach(FakeAgent(url="http://127.0.0.1:9000"))

    await execute(SECURITY.block('reach="public"'))

    assert capsys.readouterr().out == "127.0.0.1\n"


async def test_card_that_declares_a_version_wrongly_is_called_in_the_older_one(reach, capsys):
    interface = {"url": f"{URL}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    card = {"name": "Wrong", "supportedInterfaces": [interface]}
    agent = FakeAgent("384,400 km", url=URL, versions=("0.3",), card=card)
    reach(agent)
    async with holdfast.connect(URL) as client:
        with pytest.raises(holdfast.A2AError, match="protocol_version="):
            await client.ask("How far is the moon?")

    await execute(VERSIONS.block("allow_legacy"))

    assert capsys.readouterr().out == "384,400 km\n" * 2


def test_numbers_on_the_pages_are_the_defaults():
    reconnect, reconcile = holdfast.policies.ReconnectPolicy(), holdfast.ReconcilePolicy()
    lease = inspect.signature(holdfast.SqliteJournal).parameters["lease"].default
    limits, mebibyte = holdfast.Limits(), 2**20
    refusals = [str(status) for status in sorted(holdfast.Resilience().refusals) if status < 500]

    assert f"`ReconnectPolicy.max_reconnects` ({reconnect.max_reconnects})" in STREAMS.text
    assert f"up to {reconnect.backoff:g} s, then up to 1, 2, 4, 8 and 15 s" in STREAMS.text
    assert (reconnect.max_backoff, reconnect.max_quiet) == (15, 3600)
    assert f"for {reconnect.max_outage:g} s\n(`ReconnectPolicy.max_outage`)" in STREAMS.text
    assert f"for {reconcile.timeout:g} s, within the call's deadline" in SENT_ONCE.text
    assert f"HTTP {', '.join(refusals)}, and 503 with" in " ".join(SENT_ONCE.text.split())
    assert f"after {lease:g} s at most" in SENT_ONCE.text
    assert f"({limits.body // mebibyte} MiB by default)" in SECURITY.text
    assert f"({limits.card // mebibyte} MiB)" in SECURITY.text


def test_every_block_is_run():
    SECURITY.check_complete('reach="public"')
    VERSIONS.check_complete("allow_legacy")
    STREAMS.check_complete("stream_message")
    SENT_ONCE.check_complete("except holdfast", "resume_pending")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_link_leads_somewhere(path):
    Page(path).check_links()
