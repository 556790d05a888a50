"""The error for a missing extra."""

from __future__ import annotations

__all__ = ["install_hint", "missing_extra"]

_INSTALLED_AS = {"a2a": "a2a-sdk"}
"""Distribution names that differ from the import name."""


def missing_extra(feature: str, extra: str, *, library: str | None = None) -> ModuleNotFoundError:
    """Return the error of a feature whose extra is not installed.

    Args:
        feature: Name of the feature, in the singular.
        extra: Name of the extra, or several separated by commas.
        library: Name of the missing module, if known.
    """
    needed = "an extra" if library is None else _INSTALLED_AS.get(library, library)
    text = f"{feature} needs {needed}: {install_hint(extra)}"
    return ModuleNotFoundError(text, name=library)


def install_hint(extra: str) -> str:
    """Return how to install an extra; the package index has a `holdfast` of another project."""
    return f'install the extra "{extra}" (in a clone: pip install ".[{extra}]")'
