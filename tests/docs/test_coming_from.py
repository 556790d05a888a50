"""Everything on docs/coming-from.md is run: each block as it stands, and each row of a table.

Each part of the page has a guide, in a test file of its own. Here is the beginning of the page,
and that no part is left out.
"""

import re

from tests.docs import (
    test_coming_from_ag2,
    test_coming_from_apcore,
    test_coming_from_article,
    test_coming_from_below_sdk,
    test_coming_from_scripts,
    test_coming_from_sdk,
)
from tests.kit.coming_from import HERE, PAGE, PARTS, TEXT, Guide

import holdfast
from holdfast.testing import FakeAgent, Reset, works_forever

guide = Guide("Coming from a2a-sdk, AG2 or apcore-a2a", "a2a-sdk")
block = guide.block


@block("except holdfast.A2AError as error:\n        print(error, error.executed")
async def a_first_call(written, world):
    fake = FakeAgent("384,400 km", url=HERE, records_messages=False, lists_tasks=False)
    world.reach(fake)

    await written()
    fake.inject(Reset(after_execution=True))
    await written()

    assert world.printed[0] == ("384,400 km", "TASK_STATE_COMPLETED")
    error, executed, transient, retry_after = world.printed[1]
    assert isinstance(error, holdfast.OutcomeUnknownError)
    assert (executed, transient, retry_after) == (None, False, None)
    world.reach(FakeAgent(works_forever(), url=HERE))
    await written()
    assert (type(world.printed[2][0]), world.printed[2][0].timeout) == (
        holdfast.DeadlineExceededError,
        60,
    )
    assert all(len(made) == 1 for made in fake.executions.values())


@guide.each_block
async def test_a_block_runs_as_it_stands(text, monkeypatch):
    await guide.run_block(text, monkeypatch)


GUIDES = (
    guide,
    test_coming_from_below_sdk.guide,
    test_coming_from_sdk.guide,
    test_coming_from_article.guide,
    test_coming_from_ag2.guide,
    test_coming_from_apcore.guide,
    test_coming_from_scripts.guide,
)


def test_every_part_of_the_page_is_in_one_guide():
    headings = [heading for each in GUIDES for heading in each.headings]
    assert sorted(headings) == sorted(PARTS)


def test_every_row_and_every_block_is_checked():
    for each in GUIDES:
        each.check_complete()
    rows = [row for each in GUIDES for row in each.rows]
    lines = [line for line in TEXT.splitlines() if line.startswith("|")]
    assert len(rows) == len(lines) - 2 * lines.count("| you wrote | you write now |") > 80
    assert sum(len(each.blocks) for each in GUIDES) == TEXT.count("```") // 2


def test_every_block_says_what_it_imports():
    assert all(code.startswith(("import ", "from ")) for each in GUIDES for code in each.blocks)


def test_every_link_leads_somewhere():
    headings = re.findall(r"^#+ (.*)$", TEXT, flags=re.MULTILINE)
    anchors = {"#" + re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert target in anchors or (PAGE.parent / target).is_file()
