"""How to speak TLS: whom to trust, and the certificate that the client shows of its own.

Rules: files are read and checked when a `TlsConfig` is made, so that a wrong one is told there and
not by the first call; they are read anew for each context, so that renewed ones count. No password
is asked for on a terminal, and none is shown. A key that other users may read is warned of.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import stat
from os import PathLike, fspath
from typing import NamedTuple

import msgspec

from holdfast._model.extras import install_command
from holdfast._model.redacted_repr import RedactedRepr
from holdfast._model.settings import check_kind
from holdfast._wire.origins import SECURITY_LOGGER

__all__ = ["PemFiles", "TlsConfig"]

logger = logging.getLogger(SECURITY_LOGGER)

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ROOT = 0
_FILES = ("ca_file", "cert_file", "key_file")


class PemFiles(NamedTuple):
    """What a `TlsConfig` names, as PEM; None for what it does not name.

    Attributes:
        ca: The certificates of the authorities to trust.
        certificate: The client's own, with those between it and its authority.
        key: The key of that, without a password.
    """

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None

    def __repr__(self) -> str:
        shown = ", ".join(name for name, value in self._asdict().items() if value is not None)
        return f"PemFiles({shown})"  # names only: the key is secret


class TlsConfig(RedactedRepr, msgspec.Struct, frozen=True, kw_only=True):
    """How a client speaks TLS; with a certificate of its own, mutual TLS.

    Where other users may read or replace the file of the key, that is a warning of
    ``holdfast.security``. The group may read a key of root's, as administrators share one.

    A server that misses such a certificate just hangs up: with TLS 1.2 that is a failure of TLS,
    with 1.3 it comes after the handshake, and reads as a connection that was closed.

    Attributes:
        ca_file: PEM file of the authorities to trust, and no others; the system's if None.
        cert_file: PEM file of the client's own certificate, followed by those between it and its
            authority. It may hold the key, too.
        key_file: PEM file of the certificate's key, if that is in a file of its own.
        key_password: What the key is encrypted with, if it is.
        verify: Whether to verify the server; False is for development only.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A file holds no certificate or no key, the two do not belong together, the
            password is missing or wrong; or the values contradict each other.
        TypeError: A value of another type.
    """

    ca_file: str | PathLike[str] | None = None
    cert_file: str | PathLike[str] | None = None
    key_file: str | PathLike[str] | None = None
    key_password: str | None = None
    verify: bool = True

    def __post_init__(self) -> None:
        for name in _FILES:
            check_kind(name, getattr(self, name), (str, PathLike, type(None)))
        check_kind("key_password", self.key_password, (str, type(None)))
        check_kind("verify", self.verify, bool)
        if self.key_file is not None and self.cert_file is None:
            text = "key_file belongs to a certificate; pass cert_file as well"
            raise ValueError(text)
        if self.key_password is not None and self.cert_file is None:
            text = "key_password is for the key of a certificate; pass cert_file as well"
            raise ValueError(text)
        if not self.verify and self.ca_file is not None:
            text = "ca_file says whom to trust, and verify=False is everybody; pass one of them"
            raise ValueError(text)
        self.context()
        if self.cert_file is not None:
            _warn_of_readers(self.key_file or self.cert_file)

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in _FILES if getattr(self, name)]
        if self.key_password is not None:
            shown.append("key_password=…")  # it is secret
        if not self.verify:
            shown.append("verify=False")
        return f"TlsConfig({', '.join(shown)})"

    def context(self) -> ssl.SSLContext:
        """A context of the standard library's, from the files as they are now.

        Raises:
            FileNotFoundError: See `TlsConfig`.
            ValueError: See `TlsConfig`.
        """
        context = self._trusting()
        if self.cert_file is not None:
            self._show_certificate(context)
        return context

    def pem(self) -> PemFiles:
        """What the files hold now, for those who take no context; the key without its password.

        Raises:
            FileNotFoundError: See `TlsConfig`.
            ValueError: See `TlsConfig`; or the key is encrypted, and `cryptography`, which comes
                with ``holdfast[push]``, is not there to decrypt it.
        """
        self.context()  # says what is wrong with them
        certificate = _read(self.cert_file)
        key = _key_in(certificate) if self.key_file is None else _read(self.key_file)
        if key is not None and b"ENCRYPTED" in key:
            key = _decrypted(key, self.key_password or "")
        return PemFiles(ca=_read(self.ca_file), certificate=certificate, key=key)

    def _trusting(self) -> ssl.SSLContext:
        if self.ca_file is not None:
            try:
                return ssl.create_default_context(cafile=fspath(self.ca_file))
            except FileNotFoundError:
                raise _missing("ca_file", self.ca_file) from None
            except ssl.SSLError:
                text = f"ca_file: {fspath(self.ca_file)} holds no certificate"
                raise ValueError(text) from None
        context = ssl.create_default_context()
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _show_certificate(self, context: ssl.SSLContext) -> None:
        asked = False

        def password() -> str:
            nonlocal asked
            asked = True
            return self.key_password or ""

        certificate = fspath(self.cert_file or "")
        key = None if self.key_file is None else fspath(self.key_file)
        try:
            # Without a function for the password, OpenSSL would ask for it on the terminal.
            context.load_cert_chain(certificate, key, password)
        except FileNotFoundError:
            for name in ("cert_file", "key_file"):
                _read(getattr(self, name), name)  # which says the one that is missing
            raise
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(self._wrong_with_key(error, was_asked=asked)) from None

    def _wrong_with_key(self, error: Exception, *, was_asked: bool) -> str:
        key = fspath(self.key_file or self.cert_file or "")
        if was_asked and self.key_password is None:
            return f"the key in {key} is encrypted; pass key_password"
        if was_asked:
            return f"key_password does not open the key in {key}"
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            return f"the key in {key} does not belong to the certificate in {self.cert_file}"
        if self.key_file is None:
            return f"cert_file: {key} holds no certificate with its key; pass key_file as well"
        return f"cert_file and key_file hold no certificate and its key: {self.cert_file}, {key}"


def _warn_of_readers(key: str | PathLike[str]) -> None:
    """Warns where a key is in a file that is not for this user alone."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):  # it was there just now, and was read
        found = os.stat(key)  # noqa: PTH116  any path will do
        user, mode = os.geteuid(), stat.S_IMODE(found.st_mode)
        if found.st_uid not in (user, _ROOT):
            logger.warning(
                "the client's key in %s belongs to user %d, who can read and replace it; keep it "
                "in a file of your own",
                fspath(key),
                found.st_uid,
            )
            return
        shared = stat.S_IRGRP if found.st_uid == _ROOT != user else 0
        if mode & _OTHERS & ~shared:
            logger.warning(
                "the client's key in %s has mode %04o, which lets other users in; chmod %o takes "
                "that away",
                fspath(key),
                mode,
                mode & ~(_OTHERS & ~shared),
            )


def _read(path: str | PathLike[str] | None, name: str = "file") -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123  any path will do
            return file.read()
    except FileNotFoundError:
        raise _missing(name, path) from None


def _missing(name: str, path: str | PathLike[str]) -> FileNotFoundError:
    return FileNotFoundError(f"{name}: there is no file {fspath(path)!r}")


def _key_in(pem: bytes | None) -> bytes | None:
    """The key in a file that holds the certificate as well."""
    if pem is None:
        return None
    lines = pem.splitlines(keepends=True)
    begins = [at for at, line in enumerate(lines) if _is_edge(line, b"BEGIN")]
    ends = [at for at, line in enumerate(lines) if _is_edge(line, b"END")]
    return b"".join(lines[begins[0] : ends[0] + 1]) if begins and ends else None


def _is_edge(line: bytes, edge: bytes) -> bool:
    return line.startswith(b"-----" + edge) and b"PRIVATE KEY" in line


def _decrypted(key: bytes, password: str) -> bytes:
    try:
        from cryptography.hazmat.primitives import serialization  # an extra's
    except ImportError:
        text = f"an encrypted key needs cryptography here: {install_command('push')}"
        raise ValueError(text) from None
    opened = serialization.load_pem_private_key(key, password.encode())
    return opened.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
