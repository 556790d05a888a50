"""Make the pictures of the documentation again: `python docs/pictures/make.py`.

Each module that is listed in `PICTURES` makes the SVG of its name. Numbers, names and classes come
from the package, so that a picture changes with the code; tests/docs/test_pictures.py fails until
the SVG is made again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import breaker_states
import call_layers
import cut_stream
import error_tree
import journal_states
import key_states
import outage_curves
import retry_decision
import timeouts

if TYPE_CHECKING:
    from collections.abc import Callable

    from drawing import Picture

__all__ = ["FOLDER", "PICTURES", "main"]

FOLDER = Path(__file__).parent

PICTURES: dict[str, Callable[[], Picture]] = {
    "breaker-states": breaker_states.picture,
    "call-layers": call_layers.picture,
    "cut-stream": cut_stream.picture,
    "error-tree": error_tree.picture,
    "journal-states": journal_states.picture,
    "key-states": key_states.picture,
    "outage": outage_curves.picture,
    "retry-decision": retry_decision.picture,
    "timeouts": timeouts.picture,
}
"""By the name of the SVG: the function that returns the picture."""


def main() -> None:
    """Write every picture."""
    for name, picture in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(picture().render(), encoding="utf-8")


if __name__ == "__main__":
    main()
