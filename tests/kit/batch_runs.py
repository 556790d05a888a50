"""What a run of many messages yields."""


async def collected(run):
    async with run:
        return {result.key: result async for result in run}


async def ended(run):
    """The results of a run, and what it raised at its end."""
    results = []
    while True:
        try:
            results.append(await anext(run))
        except (OSError, ValueError, RuntimeError) as error:
            return results, error
