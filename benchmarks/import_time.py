"""CPU time of imports, in milliseconds, each in a new process.

`asyncio` and `msgspec` are imported before the clock starts: one has the first anyway, and the
second is what the model is made of. Compiled code is read from a cache of its own, whatever the
environment says about such caches, and the first time fills it.
"""

from __future__ import annotations

import asyncio
import sys

from processes import environment

_LONGEST = 30.0

IMPORTS = {
    "import holdfast": "import holdfast",
    "from holdfast import connect": "from holdfast import connect",
    "with aiohttp, as at the first call": "from holdfast import AiohttpEngine, connect",
}
"""Imports to time, by their names in the report."""

_PROGRAM = """
import asyncio, msgspec, time
before = time.process_time()
{statement}
print((time.process_time() - before) * 1000)
"""


async def milliseconds(cache: str | None) -> dict[str, float]:
    """Time every import once, in turns.

    Args:
        cache: The directory for compiled code; None for the one that Python uses anyway.
    """
    return {name: await _milliseconds(statement, cache) for name, statement in IMPORTS.items()}


async def _milliseconds(statement: str, cache: str | None) -> float:
    variables = environment() | ({} if cache is None else {"PYTHONPYCACHEPREFIX": cache})
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _PROGRAM.format(statement=statement),
        stdout=asyncio.subprocess.PIPE,
        env=variables,
    )
    try:
        async with asyncio.timeout(_LONGEST):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return float(printed)
