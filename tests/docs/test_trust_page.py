"""The code in docs/trust.md runs as it stands, and does what the page says."""

import functools

from tests.kit.pages import Page, execute

import holdfast
from holdfast.testing import FakeAgent, FakeNetwork

PAGE = Page("docs/trust.md")


async def test_a_users_address_leads_nowhere_inside(monkeypatch, capsys):
    network = FakeNetwork(FakeAgent(url="http://127.0.0.1:9000"))
    monkeypatch.setattr(holdfast, "connect", functools.partial(holdfast.connect, engine=network))

    await execute(PAGE.block('reach="public"'))

    assert capsys.readouterr().out == "127.0.0.1\n"


def test_every_block_is_run():
    PAGE.check_complete('reach="public"')


def test_every_link_leads_somewhere():
    PAGE.check_links()
