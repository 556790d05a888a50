"""The error for a missing extra."""

from __future__ import annotations

__all__ = ["install_command", "missing_extra"]

_INSTALLED_AS = {"a2a": "a2a-sdk"}
"""Distribution names that differ from the import name."""


def missing_extra(feature: str, extra: str, *, library: str | None = None) -> ModuleNotFoundError:
    """Return the error of a feature whose extra is not installed.

    Args:
        feature: Name of the feature, in the singular.
        extra: Name of the extra, or several separated by commas.
        library: Name of the missing module, if known.
    """
    needed = f"the extra {extra!r}" if library is None else _INSTALLED_AS.get(library, library)
    text = f"{feature} needs {needed}: {install_command(extra)}"
    return ModuleNotFoundError(text, name=library)


def install_command(extra: str) -> str:
    """Return the pip command, quoted for any shell."""
    return f'pip install "holdfast[{extra}]"'
