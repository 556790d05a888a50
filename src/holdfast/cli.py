"""The command ``holdfast``, as the a2a-cli specification has it.

Its libraries, click and python-dotenv, come with an extra: without them, the command says so in
one line.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import sys

# What is imported before `main` runs is short, because Ctrl-C shows a traceback until then.
TYPE_CHECKING = False  # for type checkers it is true

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from holdfast._cli.environment import CliEnvironment

__all__ = ["main"]

_LIBRARIES = {"click": "click", "dotenv": "python-dotenv"}
_INTERRUPTED, _TERMINATED = 130, 143
"""Exit codes of shells for a program that SIGINT or SIGTERM ended."""


def main(
    arguments: Sequence[str] | None = None, *, environment: CliEnvironment | None = None
) -> int:
    """Run one command.

    In a process of its own, SIGTERM does what Ctrl-C does.

    Args:
        arguments: The command line after the program's name; the process's own if left out.
        environment: The environment of the command; that of the process if left out.

    Returns:
        The exit code (a2a-cli 11.6); 130 after Ctrl-C, 143 after SIGTERM, 141 if the reader of the
        output has closed it.
    """
    if arguments is not None or environment is not None:
        return _run(arguments, environment)
    collects, terminations = gc.isenabled(), list[int]()
    gc.disable()  # what imports allocate stays; `CliEnvironment.run` enables it again

    def terminate(number: int, frame: FrameType | None) -> None:
        """Do what Ctrl-C does at this moment of the command."""
        terminations.append(number)
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):  # a shell script ignores it for its background jobs
            raise KeyboardInterrupt
        interrupt(number, frame)

    before = None
    try:
        with contextlib.suppress(ValueError):  # only the main thread handles signals
            before = signal.signal(signal.SIGTERM, terminate)
        code = _run(None, None)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)  # Python's exit is not a command any more
        if collects:
            gc.enable()
    return _TERMINATED if terminations and code == _INTERRUPTED else code


def _run(arguments: Sequence[str] | None, environment: CliEnvironment | None) -> int:
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
        from holdfast._model.extras import missing_extra

        sys.stderr.write(
            f"holdfast: {missing_extra('the command line', 'cli', library=library)}\n"
        )
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
