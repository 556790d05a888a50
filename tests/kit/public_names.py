"""The public modules of the client and their names, for tests of what is public."""

import importlib

SUBJECTS = [
    importlib.import_module(f"holdfast.{name}")
    for name in (
        "auth",
        "client",
        "compat",
        "doctor",
        "errors",
        "extend",
        "observe",
        "policies",
        "protocol",
        "push",
        "signatures",
        "types",
    )
]
"""The public modules of the client, each of one subject."""

PUBLIC = {name: getattr(module, name) for module in SUBJECTS for name in module.__all__}
"""Every name in them."""
