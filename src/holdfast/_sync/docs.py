"""The words of the asynchronous API's documentation, for those who block."""

from __future__ import annotations

import re

__all__ = ["blocking_words"]

_FOR_A_TASK = "for a task of its own, pass it to `asyncio.ensure_future`"

_WORDS = (
    ("an async context manager, in one event loop", "a context manager"),
    ("an async context manager", "a context manager"),
    ("async with", "with"),
    ("async for", "for"),
    (" an async generator", " a generator"),
    (" of the running event loop", ""),
    (", in the running event loop", ""),
    (" in the running event loop", ""),
    (", in whichever event loop,", ","),
    ("by one task at a time", "by one thread at a time"),
    ("An iteration that is cancelled", "An iteration that is interrupted"),
    ("``await`` it for all results", "Ask it for all ``results()``"),
    ("or await it for all of them", "or ask for all `results`"),
    (", as with a coroutine", ""),
    (f" It is no coroutine: {_FOR_A_TASK}, or its `results` to `asyncio.create_task`.", ""),
    (f" {_FOR_A_TASK.capitalize()}; it is no coroutine, as its ``results()`` is.", ""),
)
"""What is said instead of what, wherever lines end."""

_PATTERNS = tuple(
    (re.compile(r"\s+".join(map(re.escape, said.split(" ")))), instead) for said, instead in _WORDS
)


def blocking_words(text: str) -> str:
    """A docstring of the asynchronous API in the words of the blocking one."""
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text
