"""What the agent of ``demo-server`` answers to a message that begins with none of its words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast._cli.output.sanitizer import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["answer_to"]

_MAX_QUOTED = 80
"""Characters of a message to quote."""

_KNOWN: Mapping[str, str] = {
    r"\bmoon\b": "The Moon is about 384,400 km away on average: 363,300 km at its nearest, "
    "405,500 km at its farthest. Light takes 1.3 seconds. A train at 200 km/h would take 80 days, "
    "and one that loses its connection halfway has to resume.",
    r"\bsun\b": "The Sun is 149.6 million km away on average. Its light takes 8 minutes and 19 "
    "seconds, which is a long round trip for one request.",
    r"\b(?:haiku|poem)\b": "A stream breaks mid-word.\nThe client asks: what came next?\n"
    "Nothing is said twice.",
    r"\bstory\b": "Once upon a time a message was sent, and the reply was lost. The client did "
    "not send it again. It looked through the agent's tasks, found its own message there, and "
    "waited for the answer. Nobody was charged twice, and everybody slept well.",
    r"\bweather\b": "Sunny, 24 degrees, with a light breeze of retries from the west.",
    r"\b(?:hello|hi|hey)\b": "Hello! I am the Holdfast demo agent. Ask me how far the Moon is, "
    "for a haiku or for a story; or send 'help' for what I do on request, such as 'ask Which "
    "city?', 'slow 5 done' and 'fail no paper'.",
}
"""Answers, by what a message is about."""


def answer_to(text: str) -> str:
    """Return the answer to a message."""
    for topic, answer in _KNOWN.items():
        if re.search(topic, text, re.IGNORECASE):
            return answer
    quoted = shortened(" ".join(text.split()), _MAX_QUOTED)
    asked = f"You wrote “{quoted}”" if quoted else "Your message has no text"
    words, characters = len(text.split()), len(text)
    size = f"{words} word{'' if words == 1 else 's'} and {characters} character"
    return (
        f"{asked}, {size}{'' if characters == 1 else 's'}. I am the Holdfast demo "
        "agent: no model thinks behind me, but I stream, fail, stall and ask on request. Send "
        "'help' for the words that I know."
    )
