"""``holdfast conformance``: the A2A TCK, run against an agent (a2a-cli 7.1).

Rules: what is reported was measured by this run, or is called *not measured*; the kit and all
processes that it starts end with the command, however it ends; no secret is among its arguments,
or in the report.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast._cli.conformance.tck import Counts, Report, find_kit, read_report
from holdfast._cli.errors import CommandError, Failure
from holdfast._cli.output import text
from holdfast._cli.output.base import Measurement, Notice
from holdfast._model.operations import CARD_PATHS, GET_TASK
from holdfast._pipeline.transport import Call
from holdfast._policy.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast._cli.agent.session import Session
    from holdfast._cli.conformance.tck import Kit
    from holdfast._cli.output.base import Output

__all__ = ["measure"]

logger = logging.getLogger("holdfast.cli.tck")

_ENDS = {"expected": "failed as expected"}
_MAX_SHOWN_FAILURES = 50
"""Maximum number of failures in text."""
_TAIL_BYTES = 4_096
"""Bytes kept of the end of the kit's output."""
_END_GRACE_S = 5.0
"""Seconds for the kit to end after SIGTERM."""
_KILL_GRACE_S = 1.0
"""Seconds for the kit to end after SIGKILL."""
_READ_BYTES = 16_384


async def measure(
    session: Session,
    output: Output,
    *,
    directory: Path | None,
    level: str,
    python: str | None,
    how_to_get: str,
) -> None:
    """Run the kit against the agent, and show the measurement.

    Args:
        session: The agent.
        output: Where results are shown.
        directory: The directory of the kit; None if none is named.
        level: The level of requirements, as for ``--level``.
        python: The interpreter that runs it; None leaves that to the kit.
        how_to_get: The commands that install the kit, for the error where it is missing.

    Raises:
        CommandError: Nothing could be measured.
        A2AError: The agent has no card.
    """
    view = _Shown(output, directory, level)
    kit = None if directory is None else find_kit(directory)
    if kit is None:
        location = "no directory is named" if directory is None else f"it is not in {directory}"
        agent = session.settings.agent_card
        install = f"{how_to_get}; then name it with --tck DIRECTORY or A2ACLI_TCK"
        raise view.not_measured(
            f"the A2A TCK was not found: {location}", hint=install, agent=agent
        )
    if level not in kit.layout.levels:
        levels = ", ".join(kit.layout.levels)
        raise view.not_measured(f"this TCK, of protocol {kit.layout.version}, has only {levels}")
    view.version = kit.layout.version
    url = _address(session, view)
    card = await session.get_card()
    session.adapt_to_card(card)
    headers = await _headers(session)
    if headers and not kit.layout.takes_headers:
        output.emit(
            Notice.warning(
                "this TCK sends no credentials and no service parameters: none were passed to it"
            )
        )
    with tempfile.TemporaryDirectory(prefix="holdfast-tck-") as place:
        report = Path(place) / "report.xml"
        command = kit.command(
            url,
            level=level,
            transports=session.settings.transports,
            report=report,
            python=python,
        )
        environment = kit.environment(os.environ, report)
        if headers and kit.layout.takes_headers:
            output.hide(headers.values())
            environment["A2A_AUTH_HEADERS"] = json.dumps(headers)
        try:
            code, last_words = await session.within_time(_run(kit, command, environment))
        except OSError as error:
            reason = f"{command[0]} cannot be started: {error.strerror or error}"
            raise view.not_measured(reason, agent=url) from None
        except CommandError:
            view.report(url, "not_measured", "the timeout expired", is_last=False)
            raise
        try:
            measured = read_report(report)
        except ValueError as error:
            raise view.not_measured(
                f"the TCK ended with {code}, and {error}{_quoted_end(last_words)}",
                hint=f"install what it needs: cd {kit.directory} && uv venv && "
                "uv pip install -e .; or name an interpreter that has it with --python",
                agent=url,
            ) from None
    _judge(view, output, measured, url=url, code=code, last_words=last_words)


def _judge(
    view: _Shown, output: Output, measured: Report, *, url: str, code: int, last_words: str
) -> None:
    """Show the measurement, if there is one."""
    ended_early = code not in {0, 1} or (code == 1 and not measured.counts.failed)
    if measured.status == "not_measured" or ended_early:
        quoted = _quoted_end(last_words)
        reason = f"the TCK exited with {code} before its run was complete{quoted}"
        if code == 0:
            reason = "the TCK completed no test"
        raise view.not_measured(reason, agent=url, measured=measured)
    view.report(url, measured.status, None, measured, is_last=True)
    if measured.status == "fail":
        count = measured.counts.failed
        output.emit(Notice.warning(f"the agent fails {count} of the TCK's tests"))
    elif measured.status == "partial":
        output.emit(
            Notice.warning(
                f"the agent does not meet {measured.counts.expected} recommendations (SHOULD)"
            )
        )


class _Shown:
    """The presentation of a measurement.

    Attributes:
        version: The protocol version of the kit, once known.
    """

    def __init__(self, output: Output, directory: Path | None, level: str) -> None:
        self._output = output
        self._directory = directory
        self._level = level
        self.version: str | None = None

    def not_measured(
        self,
        reason: str,
        *,
        hint: str | None = None,
        agent: str = "",
        measured: Report | None = None,
    ) -> CommandError:
        """Show that nothing was measured; return the error of the command."""
        self.report(agent, "not_measured", reason, measured, is_last=False)
        return CommandError(Failure(code="HOLDFAST_ERR_NOT_MEASURED", message=reason, hint=hint))

    def report(
        self,
        agent: str,
        status: str,
        reason: str | None,
        measured: Report | None = None,
        *,
        is_last: bool,
    ) -> None:
        counts = Counts() if measured is None else measured.counts
        failed = () if measured is None else measured.failed
        members: dict[str, Any] = {
            "status": status,
            "note": reason,
            "agent": agent or None,
            "tck": None if self._directory is None else str(self._directory),
            "protocolVersion": self.version,
            "level": self._level,
            "tests": counts._asdict(),
            "failed": [failure._asdict() for failure in failed],
        }
        self._output.emit(
            Measurement({"conformance": members}, self._lines(members), is_last=is_last)
        )

    def _lines(self, members: Mapping[str, Any]) -> Iterator[str]:
        yield text.field("Conformance", members["status"].replace("_", " "))
        yield text.field("Agent", members["agent"])
        yield text.field("TCK", members["tck"])
        if members["protocolVersion"]:
            yield text.field("TCK protocol", members["protocolVersion"])
        yield text.field("Level", members["level"])
        for name, count in members["tests"].items():
            if any(members["tests"].values()):
                yield text.field(f"Tests {_ENDS.get(name, name)}", str(count))
        for failure in members["failed"][:_MAX_SHOWN_FAILURES]:
            yield text.field("Failed", f"{failure['test']}: {failure['why']}")
        more = len(members["failed"]) - _MAX_SHOWN_FAILURES
        if more > 0:
            yield text.field("Failed", f"{more} more; -o json has them")


def _address(session: Session, view: _Shown) -> str:
    """Return the address for the kit, which fetches the card below it."""
    reference = session.reference
    if isinstance(reference, Path) or urlsplit(reference).query:
        message = "the TCK fetches the card itself: name the agent by its host or origin"
        raise view.not_measured(message)
    for path in CARD_PATHS:
        reference = reference.removesuffix(path)
    return reference.rstrip("/")


async def _headers(session: Session) -> dict[str, str]:
    """Return the headers of requests: service parameters, and credentials for the card."""
    headers = session.svc_params
    if session.auth is not None:
        left = session.seconds_left()
        deadline = Deadline(name="call", timeout=left, at=asyncio.get_running_loop().time() + left)
        call: Call[Any, Any] = Call(
            operation=GET_TASK, params=None, request_id="conformance", deadline=deadline
        )
        carried = await session.auth.credentials(call)
        headers |= carried.headers
    return headers


async def _run(
    kit: Kit, command: Sequence[str], environment: Mapping[str, str]
) -> tuple[int, str]:
    """Run the kit to its end; return its exit code and the end of its output."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=kit.directory,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # so that all processes that it starts can be ended with it
    )
    last_words = b""
    try:
        while process.stdout is not None and (piece := await process.stdout.read(_READ_BYTES)):
            last_words = (last_words + piece)[-_TAIL_BYTES:]
            for line in piece.decode(errors="replace").splitlines():
                logger.debug("tck: %s", line)
        return await process.wait(), last_words.decode(errors="replace")
    finally:
        if process.returncode is None:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the kit with all processes that it started, also if the command is ended once more."""
    _signal(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(_END_GRACE_S):
            await process.wait()
    except TimeoutError:
        pass
    finally:
        if process.returncode is None:
            _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KILL_GRACE_S):
                    await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


def _quoted_end(last_words: str) -> str:
    """Return the end of the kit's output, for a message."""
    lines = [line for line in text.clean(last_words).splitlines() if line.strip()]
    return f": {' / '.join(line.strip() for line in lines[-3:])[-500:]}" if lines else ""
