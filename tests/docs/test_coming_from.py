"""Each block and each row of the pages for users of other libraries is run.

The pages are docs/howto/from-*.md and scripts.md. Their guides are in test files of their own.
Here is the beginning of from-a2a-sdk.md, and that the guides leave out no part of a page.
"""

from tests.docs import (
    test_from_a2a_sdk,
    test_from_a2a_sdk_kept,
    test_from_ag2,
    test_from_apcore,
    test_from_article,
    test_scripts_page,
)
from tests.kit.coming_from import HERE, Guide, parts_of
from tests.kit.pages import Page
from tests.kit.paths import ROOT

import holdfast
from holdfast.testing import FakeAgent, Reset, streams, works_forever

guide = Guide(
    "from-a2a-sdk", "Migrate from a2a-sdk", "A program, before and after", "What changes"
)
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


@block("create_client(")
@block("async for text in events.text_deltas()")
async def the_same_program_before_and_after(written, world):
    fake = FakeAgent(streams("384,400", " km", every=1), url=HERE)
    world.reach(fake)

    await written()

    assert world.printed == [("384,400",), (" km",)]


@guide.each_block
async def test_a_block_runs_as_it_stands(text, monkeypatch):
    await guide.run_block(text, monkeypatch)


GUIDES = (
    guide,
    test_from_a2a_sdk_kept.guide,
    test_from_a2a_sdk.guide,
    test_from_article.guide,
    test_from_ag2.guide,
    test_from_apcore.guide,
    test_scripts_page.guide,
)
HOWTO = ROOT / "docs" / "howto"
PAGES = [Page(path.relative_to(ROOT)) for path in [*HOWTO.glob("from-*.md"), HOWTO / "scripts.md"]]


def test_every_part_of_each_page_is_in_one_guide():
    for page in PAGES:
        headings = [
            heading for each in GUIDES if each.page.path == page.path for heading in each.parts
        ]
        assert sorted(headings) == sorted(parts_of(page))


def test_every_row_and_every_block_is_checked():
    for each in GUIDES:
        each.check_complete()
    text = "".join(page.text for page in PAGES)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [row for each in GUIDES for row in each.rows]
    assert len(rows) == len(lines) - 2 * lines.count("| you wrote | you write now |") > 80
    assert sum(len(each.blocks) for each in GUIDES) == text.count("```") // 2


def test_every_block_says_what_it_imports():
    assert all(code.startswith(("import ", "from ")) for each in GUIDES for code in each.blocks)


def test_every_link_leads_somewhere():
    for page in PAGES:
        page.check_links()
