"""Agent cards in files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._model import codec
from holdfast._model.card_reading import describe_content, read_card
from holdfast._wire.limits import check_json_size, limit_error
from holdfast.errors import AgentCardResolutionError, InvalidAgentCardError, LimitExceededError

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast._wire.limits import Limits
    from holdfast.types import AgentCard

__all__ = ["read_card_file"]


def read_card_file(path: Path, limits: Limits) -> tuple[AgentCard, Any]:
    """Return the card in a file, and the JSON document of the file.

    Raises:
        AgentCardResolutionError: The file does not exist or cannot be read.
        InvalidAgentCardError: The card is not valid.
        LimitExceededError: The file is too large.
    """
    if path.exists() and not path.is_file():
        message = f"cannot read the agent card {path}: it is not a file"
        raise AgentCardResolutionError(message, executed=False)
    try:
        with path.open("rb") as file:
            content = file.read(limits.card + 1)
    except OSError as error:
        message = f"cannot read the agent card {path}: {error.strerror or error}"
        raise AgentCardResolutionError(message, executed=False) from None
    if len(content) > limits.card:
        problem = f"the agent card {path} is larger than {limits.card} bytes"
        raise limit_error("card", limits, problem, executed=False)
    try:
        check_json_size(content, limits)
        document = codec.parse(content)
        return read_card(document), document
    except LimitExceededError as error:
        error.executed = False
        raise
    except codec.MalformedError as error:
        message = f"the agent card {path} is {error}; the file {describe_content(content)}"
        raise InvalidAgentCardError(message, executed=False) from None
