"""File descriptors, which open streams need one of each.

Only the standard library is needed, so that every Python can import this.
"""

from __future__ import annotations

import sys

_WITHOUT_LIMITS = 512
"""How many Windows' event loops can be sure of."""


def as_many_as_there_may_be() -> int:
    """Raises this process's soft limit to its hard one, and tells what it is then."""
    if sys.platform == "win32":
        return _WITHOUT_LIMITS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # macOS says "unlimited", and does not mean it
        return soft
    return hard
