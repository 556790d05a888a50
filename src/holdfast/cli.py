"""The command ``holdfast``, as the a2a-cli specification has it.

Its libraries, click and python-dotenv, come with an extra: without them, the command says so in
one line.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._cli.environment import CliEnvironment

__all__ = ["main"]

_LIBRARIES = {"click": "click", "dotenv": "python-dotenv"}
_MISSING = 'holdfast: the command line needs {}: pip install "holdfast[cli]"\n'
_INTERRUPTED = 130


def main(
    arguments: Sequence[str] | None = None, *, environment: CliEnvironment | None = None
) -> int:
    """Runs one command.

    Args:
        arguments: The command line after the program's name; the process's own if left out.
        environment: What the command runs in; the real one if left out.

    Returns:
        The exit code (a2a-cli 11.6); 130 after Ctrl-C, 141 where nobody reads the output.
    """
    collects = gc.isenabled()
    if arguments is None and environment is None:  # in a process of its own
        gc.disable()  # what imports allocate stays; `CliEnvironment.run` enables it again
    try:
        from holdfast._cli.app import run
        from holdfast._cli.environment import CliEnvironment

        return run(
            sys.argv[1:] if arguments is None else arguments,
            CliEnvironment() if environment is None else environment,
        )
    except ModuleNotFoundError as error:
        library = _LIBRARIES.get((error.name or "").partition(".")[0])
        if library is None:
            raise
        sys.stderr.write(_MISSING.format(library))
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        if collects:
            gc.enable()
