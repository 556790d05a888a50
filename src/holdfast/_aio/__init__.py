"""Tools for asyncio: time limits, queues, what is shared by those who wait, state of each loop."""
