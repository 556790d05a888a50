"""Authentication: providers of a client's credentials."""

from __future__ import annotations

from holdfast._auth.providers import (
    AuthProvider,
    ClientCallContext,
    Credentials,
    SchemeCredentials,
    StaticAuth,
)
from holdfast._public import publish

__all__ = ["AuthProvider", "ClientCallContext", "Credentials", "SchemeCredentials", "StaticAuth"]

__getattr__, __dir__ = publish(__name__)
