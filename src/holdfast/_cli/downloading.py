"""Saving what is in the artifacts of a task, with its agent."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from holdfast._aio.cancel_scope import CancelScope
from holdfast._cli.errors import CommandError, Failure, out_of_time
from holdfast._cli.files import files_of
from holdfast._cli.output.events import FilesSaved, Notice
from holdfast._cli.saving import Saved, check_free, check_size, content_of, write
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast._cli.files import File
    from holdfast._cli.output.base import Output
    from holdfast._cli.session import Session

__all__ = ["download_task"]


async def download_task(
    session: Session,
    output: Output,
    *,
    task_id: str,
    directory: Path,
    overwrite: bool,
    most_files: int,
    most_bytes: int,
) -> None:
    """Saves what is in the task's artifacts.

    Args:
        session: The agent.
        output: Where it is shown.
        task_id: The task.
        directory: Where to save.
        overwrite: Whether files that are there are replaced.
        most_files: Files that the task may have.
        most_bytes: Bytes that they may have together.

    Raises:
        CommandError: There are too many, files are in the way, or one could not be saved.
        A2AError: The task could not be had.
    """
    await session.prepare()
    task = await session.client.get_task(
        task_id, timeout=session.left(), headers=session.svc_params
    )
    files = list(islice(files_of(task), most_files + 1))
    check_size(files, most_files=most_files, most_bytes=most_bytes)
    if not overwrite:
        check_free(directory, files)
    saved: list[Saved] = []
    failed = 0
    for file in files:
        try:
            left = most_bytes - sum(one.size for one in saved)
            saved.append(await _save(session, file, directory, left, overwrite=overwrite))
        except A2AError as error:
            failed += 1
            output.emit(Notice.warning(f"{file.name} is not saved: {error}"))
    output.emit(FilesSaved(task, saved, is_whole=not failed))
    if failed:
        raise CommandError(
            Failure(
                code="HOLDFAST_ERR_DOWNLOAD",
                message=f"{failed} of {len(files)} files of task {task.id} could not be fetched",
            )
        )
    if not files:
        output.emit(Notice.warning(f"task {task.id} has nothing to save"))
    if not task.state.is_terminal:
        output.emit(
            Notice.warning(f"task {task.id} is still {task.state}: there may be more to come")
        )


async def _save(
    session: Session, file: File, directory: Path, left: int, *, overwrite: bool
) -> Saved:
    path = directory / file.name
    async with CancelScope.within(session.left()) as scope:
        agent = await session.named_address()
        content = await content_of(file, session.engine, agent, most_bytes=left)
    if scope.expired:
        raise CommandError(out_of_time(session.settings.timeout))
    try:
        await write(path, content, overwrite=overwrite)
    except OSError as error:
        raise CommandError(
            Failure(
                code="HOLDFAST_ERR_FILE",
                message=f"{path} cannot be written: {error.strerror or error}",
            )
        ) from None
    return Saved(file, path, len(content))
