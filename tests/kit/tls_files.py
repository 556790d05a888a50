"""Certificates and keys in files."""

import ssl

import trustme
from cryptography.hazmat.primitives import serialization


class Files:
    """An authority, and the certificate of a client with its key, as files."""

    def __init__(self, at, name="client@test"):
        authority = trustme.CA()
        self.authority = authority
        own = authority.issue_cert(name)
        self.ca, self.cert, self.key = at / "ca.pem", at / "cert.pem", at / "key.pem"
        self.both, self.locked = at / "both.pem", at / "locked.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        self.cert.write_bytes(b"".join(blob.bytes() for blob in own.cert_chain_pems))
        self.key.write_bytes(own.private_key_pem.bytes())
        self.both.write_bytes(self.cert.read_bytes() + self.key.read_bytes())
        self.key.chmod(0o600)
        self.both.chmod(0o600)
        key = serialization.load_pem_private_key(self.key.read_bytes(), None)
        self.locked.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"open sesame"),
            )
        )

    def server(self, *, demanding=True):
        """The context of a server that demands a certificate of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("127.0.0.1").configure_cert(context)
        if demanding:
            context.verify_mode = ssl.CERT_REQUIRED
            self.authority.configure_trust(context)
        return context
