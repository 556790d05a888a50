"""Tools for asyncio: time limits, semaphores, single flights, state per event loop."""
