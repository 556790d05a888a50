"""How much is tried: enough for every change, and more where somebody asks for it.

``HOLDFAST_THOROUGH=1`` asks for it; ``make thorough`` does.
"""

import contextlib
import itertools
import os

import pytest

__all__ = ["THOROUGH", "case", "crossed", "rounds", "some"]

THOROUGH = os.environ.get("HOLDFAST_THOROUGH", "") == "1"


def rounds(few, many):
    """How often something random is tried."""
    return many if THOROUGH else few


def some(values, *, of, beginning=0):
    """All of the values where there is time, else every ``of``-th from ``beginning`` on."""
    values = list(values)
    return values if THOROUGH else values[beginning % of :: of]


def crossed(names, *axes, turns=1):
    """Parametrizes a test over the product of some axes.

    Where there is time that is the whole product. Else each value of every axis comes at least
    ``turns`` times, each time beside others.

    Args:
        names: The names of the arguments, separated by commas.
        axes: The values of each.
        turns: How often the longest axis is walked along.
    """
    axes = [list(axis) for axis in axes]
    if THOROUGH:
        return pytest.mark.parametrize(names, list(itertools.product(*axes)))
    chosen = {
        tuple((step + turn * place) % len(axis) for place, axis in enumerate(axes)): None
        for turn, step in itertools.product(range(turns), range(max(map(len, axes))))
    }
    cases = [tuple(axis[at] for axis, at in zip(axes, places, strict=True)) for places in chosen]
    return pytest.mark.parametrize(names, cases)


@contextlib.contextmanager
def case(name):
    """Says in a failure which case it is, where many are one test: a test each costs more."""
    try:
        yield
    except BaseException as failure:
        failure.add_note(f"the case is {name!r}")
        raise
