"""Which of two failures in a row says more of what is wrong."""

from __future__ import annotations

from holdfast.errors.tree import A2AError, CircuitOpenError

__all__ = ["more_telling"]


def more_telling(error: A2AError, earlier: A2AError | None) -> A2AError:
    """The failure to tell of, where one came after another.

    Args:
        error: The later one.
        earlier: The earlier one; None for none. What was tried says more than what was not, since
            it had failed.
    """
    return error if earlier is None or not isinstance(error, CircuitOpenError) else earlier
