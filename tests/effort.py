"""How much is tried: enough for every change, and more where somebody asks for it.

``HOLDFAST_THOROUGH=1`` asks for it; ``make thorough`` does.
"""

import contextlib
import os

__all__ = ["THOROUGH", "case", "rounds"]

THOROUGH = os.environ.get("HOLDFAST_THOROUGH", "") == "1"


def rounds(few, many):
    """How often something random is tried."""
    return many if THOROUGH else few


@contextlib.contextmanager
def case(name):
    """Says in a failure which case it is, where many are one test: a test each costs more."""
    try:
        yield
    except BaseException as failure:
        failure.add_note(f"the case is {name!r}")
        raise
