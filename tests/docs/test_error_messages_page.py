"""The page of error messages is what the source says, and its texts keep to the glossary."""

import re

import pytest
from tests.error_messages import ADVICE, PAGE, page, public_errors
from tests.kit.source_messages import PARTS, messages

AVOIDED = re.compile(
    r"\b(told|whoever|somebody|nobody|in vain|at hand|under way|given up|left alone|in peace"
    r"|(go|goes|gone|going) on with|look(s|ed)? (for|after)|written down|by way of"
    r"|who waits|come later|in a row|(is|are) no (?!longer|more)[a-z]+ (of|that))\b"
)
"""Words that the glossary replaces."""


def test_the_page_lists_the_messages_of_the_source():
    assert PAGE.read_text() == page(), "run python -m tests.error_messages"


def test_each_error_class_has_advice():
    assert [name for name in public_errors() if name not in ADVICE] == []


def test_no_message_has_a_word_that_the_glossary_replaces():
    found = [each for each in messages() if each.kind != PARTS or "/error_" in each.module]

    assert [(each.module, each.text) for each in found if AVOIDED.search(each.text)] == []


@pytest.mark.parametrize(
    ("kind", "text", "facts"),
    [
        (
            "JournalError",
            (
                "the journal {path} is not used[ because of {path}]: [its mode {mode} gives other "
                "users access; run chmod {new_mode}{hint} | it is not a regular file; remove it, "
                "or pass another path]"
            ),
            ("reason='untrusted'",),
        ),
        (
            "QueueFullError",
            (
                "concurrency limit reached ([1 call | {limit} calls] in flight), and [no slot was "
                "free for {MAX_QUEUE_S} s | the queue is full ({waiting} waiting)]; nothing was "
                "sent"
            ),
            ("executed=False", "transient=True", "request_id"),
        ),
        ("Log lines (warning)", "a push of task %s to %s failed: %s", ()),
    ],
    ids=["variable", "argument", "log"],
)
def test_a_message_is_followed_to_its_texts(kind, text, facts):
    assert [each.facts for each in messages() if (each.kind, each.text) == (kind, text)] == [facts]
