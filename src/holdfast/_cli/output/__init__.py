"""The output of commands: text, JSON, and progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._cli.options.settings import Settings
    from holdfast._cli.output.base import Output

__all__ = ["output_for"]


def output_for(form: str, settings: Settings | None = None, *, in_lines: bool = False) -> Output:
    """Return the output of a form.

    Args:
        form: ``text`` or ``json``.
        settings: The settings of the command, once parsed.
        in_lines: Whether each document is one line; used if there are no settings.
    """
    if form == "json":
        from holdfast._cli.output.json_output import JsonOutput

        return JsonOutput(settings, in_lines=in_lines)
    from holdfast._cli.output.text_output import TextOutput

    return TextOutput(settings)
