"""An older dialect of errors, from a widely read article that some agents follow.

The dialect gives the codes from -32001 to -32008 its own meanings, and states in ``error.data``
whether and when to retry. These members identify its errors. A caller gets an `AgentError` with
the code, and with `transient` and `retry_after` from the data. By default RATE_LIMITED,
AGENT_UNAVAILABLE and TASK_TIMEOUT are transient, the others are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, cast

from holdfast._model.settings import check_kind

__all__ = [
    "ArticleErrorCode",
    "is_article_code",
    "is_article_data",
    "is_article_error",
    "make_error",
]

_MEMBERS = frozenset({"retryable", "retryAfter", "detail"})


class ArticleErrorCode(IntEnum):
    """Error codes of the dialect, to compare with ``AgentError.code``."""

    AUTH_REQUIRED = -32001
    TASK_NOT_FOUND = -32002
    INSUFFICIENT_SCOPE = -32003
    RATE_LIMITED = -32004
    AGENT_UNAVAILABLE = -32005
    TASK_TIMEOUT = -32006
    CONTENT_TOO_LARGE = -32007
    SKILL_NOT_FOUND = -32008


_CODES = frozenset(ArticleErrorCode)


def is_article_code(code: int | None) -> bool:
    """Return whether the dialect defines a code."""
    return code in _CODES


def is_article_data(data: Any) -> bool:
    """Return whether the ``data`` of an error has the dialect's members."""
    return isinstance(data, dict) and not cast("dict[str, Any]", data).keys().isdisjoint(_MEMBERS)


def is_article_error(code: int, data: Mapping[str, Any]) -> bool:
    """Return whether an error with this code and data belongs to the dialect, not to A2A."""
    return is_article_code(code) and is_article_data(data)


def make_error(code: int, message: str, data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Make the ``error`` of a JSON-RPC reply (JSON-RPC 2.0, 5.1), for agents.

    Args:
        code: An `ArticleErrorCode`, or any other code.
        message: Description of the failure, in one sentence.
        data: JSON members: ``detail`` (text), ``retryable`` (bool), ``retryAfter`` (seconds), and
            any others for the agent's caller; omitted if empty.

    Raises:
        TypeError: An argument has another type.
    """
    check_kind("code", code, int)
    check_kind("message", message, str)
    if data is not None:
        check_kind("data", data, Mapping)
    error: dict[str, Any] = {"code": int(code), "message": message}
    if data:
        error["data"] = dict(data)
    return error
