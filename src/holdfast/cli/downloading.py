"""Saving what is in the artifacts of a task, with its agent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.cli.errors import CommandError, Failure, out_of_time
from holdfast.cli.files import files_of
from holdfast.cli.saving import Saved, check_free, content_of, write
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.cli.files import File
    from holdfast.cli.output import Output
    from holdfast.cli.session import Session

__all__ = ["download_task"]


async def download_task(
    session: Session, output: Output, *, task_id: str, directory: Path, overwrite: bool
) -> None:
    """Saves what is in the task's artifacts."""
    await session.prepare()
    task = await session.client.get_task(
        task_id, timeout=session.left(), headers=session.svc_params
    )
    files = list(files_of(task))
    if not overwrite:
        check_free(directory, files)
    saved: list[Saved] = []
    failed = 0
    for file in files:
        try:
            saved.append(await _save(session, file, directory, overwrite=overwrite))
        except A2AError as error:
            failed += 1
            output.warn(f"{file.name} is not saved: {error}")
    output.saved(task, saved, is_whole=not failed)
    if failed:
        raise CommandError(
            Failure(
                code="HOLDFAST_ERR_DOWNLOAD",
                message=f"{failed} of {len(files)} files of task {task.id} could not be fetched",
            )
        )
    if not files:
        output.warn(f"task {task.id} has nothing to save")
    if not task.state.is_terminal:
        output.warn(f"task {task.id} is still {task.state}: there may be more to come")


async def _save(session: Session, file: File, directory: Path, *, overwrite: bool) -> Saved:
    path = directory / file.name
    try:
        async with asyncio.timeout(session.left()):
            content = await content_of(file, session.engine, await session.named_address())
    except TimeoutError:
        raise CommandError(out_of_time(session.settings.timeout)) from None
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
