"""The Agent Skill that comes with the command, and where it is installed (a2a-cli 14)."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.execution import CONTEXT
from holdfast.cli.options import EVERYWHERE, with_options
from holdfast.cli.values import Reads, complete_path, read_id

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

__all__ = ["skill"]

_PLACE = Path(".agents", "skills")
"""Where agents of any make look for skills, below a project or a home directory."""


@click.group("skill", context_settings=CONTEXT)
@with_options(EVERYWHERE)
def skill(**_options: object) -> None:
    """Teach a coding agent this command, with the Agent Skill that comes with it."""


@skill.command("install", context_settings=CONTEXT)
@click.option(
    "--to",
    "scope",
    metavar="DIRECTORY",
    type=Reads("path", read_id),
    default=".",
    show_default="the working directory",
    shell_complete=complete_path,
    help="The project, or the home directory, below which agents look for skills.",
)
@click.option("--overwrite", is_flag=True, help="Replace a skill of this name.")
@with_options(EVERYWHERE)
@click.pass_context
def skill_install(
    ctx: click.Context, /, scope: str, *, overwrite: bool, **_options: object
) -> int:
    """Put the skill where coding agents look for it: DIRECTORY/.agents/skills/holdfast."""
    target = Path(scope).expanduser() / _PLACE / "holdfast"
    if target.exists() and not overwrite:
        message = f"{target} is there already; replace it with --overwrite"
        raise click.UsageError(message, ctx)
    for name, content in _files(resources.files("holdfast.cli") / "skills" / "holdfast"):
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        click.echo(f"Installed: {path}")
    return 0


def _files(place: Traversable, above: str = "") -> Iterator[tuple[str, str]]:
    for one in sorted(place.iterdir(), key=lambda one: one.name):
        if one.is_dir():
            yield from _files(one, f"{above}{one.name}/")
        elif one.name.endswith(".md"):
            yield f"{above}{one.name}", one.read_text(encoding="utf-8")
