"""TLS and OAuth as a caller's program uses them, for type checkers: never run."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

import ssl
from pathlib import Path
from typing import assert_type

from holdfast import AiohttpEngine, Client, Coordinator, TlsConfig, connect

TLS = TlsConfig(ca_file="ca.pem", cert_file=Path("cert.pem"), key_file="key.pem", verify=True)
WRONG = TlsConfig("ca.pem")  # type: ignore[call-arg]

assert_type(TLS.context(), ssl.SSLContext)
assert_type(TLS.pem().key, bytes | None)
assert_type(connect("https://a.test", tls=TLS), Client)
ENGINE = AiohttpEngine(ssl=TLS)
AGENTS = Coordinator(["https://a.test"], tls=TLS)
