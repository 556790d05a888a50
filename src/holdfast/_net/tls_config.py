"""TLS settings: trusted authorities, and the client certificate for mutual TLS.

Rules: files are read and checked when a `TlsConfig` is created, so that an invalid one fails there
and not in the first call; they are read again for each context, so that renewed files count. No
password is requested on a terminal, and none is shown. A key that other users can read causes a
warning.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import stat
from os import PathLike, fspath
from typing import NamedTuple

from holdfast._model.extras import install_hint
from holdfast._model.redacted_repr import RedactedRepr
from holdfast._model.settings import Policy, check_kind
from holdfast._net.private_files import is_trusted_owner, surplus_permissions
from holdfast._wire.origins import SECURITY_LOGGER

__all__ = ["PemFiles", "TlsConfig"]

logger = logging.getLogger(SECURITY_LOGGER)

_FILE_FIELDS = ("ca_file", "cert_file", "key_file")


class PemFiles(NamedTuple):
    """The content of the files of a `TlsConfig` as PEM; None for those that it does not name.

    Attributes:
        ca: The certificates of the trusted authorities.
        certificate: The client's certificate, with the intermediate ones.
        key: The key of the client's certificate, not encrypted.
    """

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None

    def __repr__(self) -> str:
        shown = ", ".join(name for name, value in self._asdict().items() if value is not None)
        return f"PemFiles({shown})"  # names only, because the key is secret


class TlsConfig(RedactedRepr, Policy, frozen=True, kw_only=True):
    """TLS settings of a client; a client certificate makes it mutual TLS.

    If other users can read or replace the key's file, the logger ``holdfast.security`` warns. The
    group may read a key that belongs to root.

    A server that requires a client certificate and gets none closes the connection. With TLS 1.2
    this is a TLS failure; with TLS 1.3 it happens after the handshake, and appears as a connection
    that was closed.

    Attributes:
        ca_file: PEM file of the trusted authorities, in place of the system's; None (the default)
            for the system's.
        cert_file: PEM file of the client's certificate, followed by the intermediate ones. It may
            contain the key, too.
        key_file: PEM file of the certificate's key, if it is not in `cert_file`.
        key_password: Password of the key, if it is encrypted.
        verify: Whether to verify the server's certificate; True by default. False is for
            development only.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: A file holds no certificate or no key, the two do not belong together, the
            password is missing or wrong, or the values contradict each other.
        TypeError: A value of another type.
    """

    ca_file: str | PathLike[str] | None = None
    cert_file: str | PathLike[str] | None = None
    key_file: str | PathLike[str] | None = None
    key_password: str | None = None
    verify: bool = True

    def __post_init__(self) -> None:
        for name in _FILE_FIELDS:
            check_kind(name, getattr(self, name), (str, PathLike, type(None)))
        check_kind("key_password", self.key_password, (str, type(None)))
        check_kind("verify", self.verify, bool)
        if self.key_file is not None and self.cert_file is None:
            text = "key_file needs cert_file; pass both"
            raise ValueError(text)
        if self.key_password is not None and self.cert_file is None:
            text = "key_password needs cert_file; pass both"
            raise ValueError(text)
        if not self.verify and self.ca_file is not None:
            text = "ca_file and verify=False exclude each other; pass only one of them"
            raise ValueError(text)
        self.context()
        if self.cert_file is not None:
            _warn_of_shared_key(self.key_file or self.cert_file)

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in _FILE_FIELDS if getattr(self, name)]
        if self.key_password is not None:
            shown.append("key_password=…")  # secret
        if not self.verify:
            shown.append("verify=False")
        return f"TlsConfig({', '.join(shown)})"

    def context(self) -> ssl.SSLContext:
        """Return an ``ssl.SSLContext``, made from the present files.

        Raises:
            FileNotFoundError: A file does not exist.
            ValueError: A file cannot be used, as for the constructor.
        """
        context = self._server_context()
        if self.cert_file is not None:
            self._load_certificate(context)
        return context

    def pem(self) -> PemFiles:
        """Return the present content of the files, for libraries that accept no context.

        The key is not encrypted.

        Raises:
            FileNotFoundError: A file does not exist.
            ValueError: A file cannot be used, as for the constructor; or the key is encrypted, and
                ``cryptography``, which ``holdfast[push]`` installs, is missing.
        """
        self.context()  # raises if a file is not valid
        certificate = _read(self.cert_file)
        key = _key_in(certificate) if self.key_file is None else _read(self.key_file)
        if key is not None and b"ENCRYPTED" in key:
            key = _decrypted(key, self.key_password or "")
        return PemFiles(ca=_read(self.ca_file), certificate=certificate, key=key)

    def _server_context(self) -> ssl.SSLContext:
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

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        is_encrypted = False

        def password() -> str:
            nonlocal is_encrypted
            is_encrypted = True
            return self.key_password or ""

        certificate = fspath(self.cert_file or "")
        key = None if self.key_file is None else fspath(self.key_file)
        try:
            # Without this function, OpenSSL would prompt for the password on the terminal.
            context.load_cert_chain(certificate, key, password)
        except FileNotFoundError:
            for name in ("cert_file", "key_file"):
                _read(getattr(self, name), name)  # raises for the missing file
            raise
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(self._key_problem(error, is_encrypted=is_encrypted)) from None

    def _key_problem(self, error: Exception, *, is_encrypted: bool) -> str:
        key = fspath(self.key_file or self.cert_file or "")
        if is_encrypted and self.key_password is None:
            return f"the key in {key} is encrypted; pass key_password"
        if is_encrypted:
            return f"key_password does not open the key in {key}"
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            return f"the key in {key} does not belong to the certificate in {self.cert_file}"
        if self.key_file is None:
            return f"cert_file: {key} contains no certificate with its key; pass key_file as well"
        return (
            f"cert_file and key_file contain no certificate with its key: {self.cert_file}, {key}"
        )


def _warn_of_shared_key(key: str | PathLike[str]) -> None:
    """Warn if other users can read or replace the file of a key."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):  # the file may have been removed since it was read
        status = os.stat(key)  # noqa: PTH116  any path will do
        if not is_trusted_owner(status.st_uid):
            logger.warning(
                "the client's key in %s belongs to user %d, who can read and replace it; move it "
                "to a file of your own user",
                fspath(key),
                status.st_uid,
            )
            return
        mode, is_own = stat.S_IMODE(status.st_mode), status.st_uid == os.geteuid()
        surplus = surplus_permissions(mode, 0o600 if is_own else 0o640)
        if surplus:
            logger.warning(
                "the client's key in %s has mode %04o, which gives other users access; run chmod "
                "%o",
                fspath(key),
                mode,
                mode & ~surplus,
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
    return FileNotFoundError(f"{name}: file not found: {fspath(path)!r}")


def _key_in(pem: bytes | None) -> bytes | None:
    """Return the key in a file that also holds the certificate."""
    if pem is None:
        return None
    lines = pem.splitlines(keepends=True)
    begins = [i for i, line in enumerate(lines) if _is_edge(line, b"BEGIN")]
    ends = [i for i, line in enumerate(lines) if _is_edge(line, b"END")]
    return b"".join(lines[begins[0] : ends[0] + 1]) if begins and ends else None


def _is_edge(line: bytes, edge: bytes) -> bool:
    return line.startswith(b"-----" + edge) and b"PRIVATE KEY" in line


def _decrypted(key: bytes, password: str) -> bytes:
    try:
        from cryptography.hazmat.primitives import serialization  # needs an extra
    except ImportError:
        text = f"an encrypted key needs cryptography here: {install_hint('push')}"
        raise ValueError(text) from None
    private_key = serialization.load_pem_private_key(key, password.encode())
    return private_key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
