"""The Agent Skill of the command, and its installation (a2a-cli 14).

Rules: below the named directory no link is followed; a file is replaced only if this command wrote
it before, which a list beside the files says, or if it is the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast._cli.errors import CommandError, Failure
from holdfast._cli.groups import HelpfulGroup
from holdfast._cli.options.flags import CONTEXT, EVERYWHERE, with_options
from holdfast._cli.options.parameters import ParsedParam, complete_path
from holdfast._cli.options.values import read_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

__all__ = ["skill"]

_PLACE = Path(".agents", "skills")
"""The directory in which agents find skills, below a project or a home directory."""

_NAME = "holdfast"
_WRITTEN = ".written-by-holdfast"
"""The file with the names of the written files, one on each line."""


@click.group("skill", cls=HelpfulGroup, context_settings=CONTEXT)
@with_options(EVERYWHERE)
def skill(**_options: object) -> None:
    """Install the Agent Skill, which teaches coding agents this command."""


@skill.command(
    "install",
    context_settings=CONTEXT,
    examples=("holdfast skill install\nholdfast skill install --to ~\n"),
    common=(),
)
@click.option(
    "--to",
    "scope",
    metavar="DIRECTORY",
    type=ParsedParam("path", read_directory),
    default=".",
    show_default="the working directory",
    shell_complete=complete_path,
    help="The project, or the home directory, below which agents look for skills.",
)
@click.option(
    "--overwrite", is_flag=True, help="Replace the skill that this command has put there."
)
@with_options(EVERYWHERE)
@click.pass_context
def skill_install(
    ctx: click.Context, /, scope: str, *, overwrite: bool, **_options: object
) -> int:
    """Install the skill below DIRECTORY, in .agents/skills/holdfast."""
    from importlib import resources

    from holdfast._cli.output.base import OutputError, write
    from holdfast._cli.output.text import field

    below = Path(scope).expanduser()
    target = below / _PLACE / _NAME
    content = dict(_files(resources.files("holdfast._cli") / "skills" / _NAME))
    try:
        _check(below, content, ctx, overwrite=overwrite)
        _write(target / _WRITTEN, "\n".join(content))  # first: an interrupted run can be repeated
        for name, text in content.items():
            _write(target / name, text)
            write(f"{field('Installed', str(target / name))}\n")
    except OutputError:
        raise
    except OSError as error:
        message = f"{error.filename or target} cannot be written: {error.strerror or error}"
        hint = "name another directory with --to; skill install --overwrite repeats the rest"
        raise CommandError(Failure(code="HOLDFAST_ERR_FILE", message=message, hint=hint)) from None
    return 0


def _check(
    below: Path, content: Mapping[str, str], ctx: click.Context, *, overwrite: bool
) -> None:
    """Check that nothing is followed or replaced that the command did not write.

    Raises:
        UsageError: A directory or file is a link, or was not written by this
            command and exists without `overwrite`.
    """
    target = below / _PLACE / _NAME
    paths = [target / name for name in (_WRITTEN, *content)]
    between = {above for path in paths for above in path.parents if above.is_relative_to(below)}
    for path in sorted({*between, *paths} - {below}):
        if path.is_symlink():
            message = f"{path} is a link, which is not followed; remove it, or name another --to"
            raise click.UsageError(message, ctx)
    if not target.exists():
        return
    if not overwrite:
        message = f"{target} exists; replace it with --overwrite"
        raise click.UsageError(message, ctx)
    marker = target / _WRITTEN
    written_names = marker.read_text("utf-8", "replace").split("\n") if marker.is_file() else []
    for name, text in content.items():
        place = target / name
        if not place.exists() or name in written_names:
            continue
        if not place.is_file() or place.read_bytes() != text.encode():
            message = f"{place} was not written by skill install; remove it, or move it away"
            raise click.UsageError(message, ctx)


def _write(path: Path, text: str) -> None:
    """Write a file in place of an existing one, through no link."""
    from holdfast._cli.agent.download import write_now

    write_now(path, text.encode(), overwrite=True)


def _files(place: Traversable, above: str = "") -> Iterator[tuple[str, str]]:
    for entry in sorted(place.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _files(entry, f"{above}{entry.name}/")
        elif entry.name.endswith(".md"):
            yield f"{above}{entry.name}", entry.read_text(encoding="utf-8")
