"""What is said where an extra is missing: the same words for all of them."""

from __future__ import annotations

__all__ = ["install_command", "missing_extra"]

_INSTALLED_AS = {"a2a": "a2a-sdk"}
"""Libraries that are not imported by the name that they are installed by."""


def missing_extra(what: str, extra: str, *, library: str | None = None) -> ModuleNotFoundError:
    """The error of something that needs an extra which is not installed.

    Args:
        what: What needs it, in the singular.
        extra: The name of the extra, or names with commas.
        library: The module that is missing, where one is known.
    """
    needed = f"the extra {extra!r}" if library is None else _INSTALLED_AS.get(library, library)
    text = f"{what} needs {needed}: {install_command(extra)}"
    return ModuleNotFoundError(text, name=library)


def install_command(extra: str) -> str:
    """The command, with the quotes that every shell takes."""
    return f'pip install "holdfast[{extra}]"'
