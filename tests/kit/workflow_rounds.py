"""What rounds with workflows have in common, whichever engine runs them."""

from collections import Counter

__all__ = ["UNKNOWN", "draw_names", "judge"]

UNKNOWN = "unknown"
"""The result of a workflow for a message whose outcome is unknown."""


def draw_names(dice, seed):
    """Draw what the workflows of a round ask."""
    return [f"{dice.choice(['ask', 'stream'])}-{number}-{seed}" for number in range(3)]


def judge(results, agent, killed):
    """Return what was counted, and what does not hold.

    Args:
        results: The result of each workflow, by what it asked: the answer, which repeats that;
            `UNKNOWN`; or anything else, which is wrong.
        agent: The agent, which has nothing in flight.
        killed: How many processes were killed.
    """
    executed = Counter(task.history[0].text for task in agent.tasks.values())
    twice = [name for name, count in executed.items() if count > 1]
    unknown = [name for name, result in results.items() if result == UNKNOWN]
    answered = [name for name, result in results.items() if result == name and name in executed]
    lost = [name for name in results if name not in {*answered, *unknown}]
    return {
        "killed": killed,
        "messages": len(results),
        "executed": len(executed),
        "twice": len(twice),
        "answered": len(answered),
        "unknown": len(unknown),
        "lost": len(lost),
    }, [
        *(f"{name} was executed {executed[name]} times" for name in twice),
        *(f"{name} ended with {results[name]}" for name in lost),
    ]
