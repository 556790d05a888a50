"""Watch calls survive a failing agent, and the same calls made with a plain loop.

Starts a fake agent on loopback that refuses, limits, resets and loses replies, and one whose
stream is cut again and again. With AGENT=url in the environment it calls that agent instead.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid

import aiohttp

import holdfast
from holdfast.testing import Cut, FakeAgent, LoopbackServer, Reset, rate_limited, streams

QUICK = holdfast.Resilience(
    retry=holdfast.RetryPolicy(base_delay=0.3, jitter=False),
    reconnect=holdfast.ReconnectPolicy(backoff=0.3),
)

ANSWER = (
    "The moon is 384,400 km away on average. Its orbit is an ellipse, so the distance varies. "
    "We know it to the millimetre: observatories fire laser pulses at reflectors that were left "
    "there, and time how long the light takes to return: two and a half seconds."
)


class Timeline:
    """An observer that prints what happens to each call, for people."""

    def __init__(self) -> None:
        self._zero = asyncio.get_running_loop().time()
        self._is_in_text = False

    def __call__(self, observation: holdfast.observe.Observation) -> None:
        match observation:
            case holdfast.observe.AttemptFinished(
                number=number, error=holdfast.A2AError() as error
            ):
                hint = f", retry after {error.retry_after:g} s" if error.retry_after else ""
                self.line(f"{observation.method}, attempt {number}: {error.message}{hint}")
            case holdfast.observe.RetryScheduled(wait=wait):
                self.line(f"{'':{len(observation.method or '')}}  waits {wait:.2f} s")
            case holdfast.observe.RequestFinished(attempts=attempts, error=None) if attempts > 1:
                self.line(f"{observation.method}, attempt {attempts}: answered")
            case _:
                pass

    def line(self, text: str) -> None:
        self.end_text()
        seconds = asyncio.get_running_loop().time() - self._zero
        print(f"  {seconds:5.2f} s  {text}")

    def text(self, delta: str) -> None:
        """Print the next piece of a text."""
        if not self._is_in_text:
            print("  agent:   ", end="")
            delta = delta.lstrip()
        self._is_in_text = True
        print(delta, end="", flush=True)

    def end_text(self) -> None:
        """End the line of a text."""
        if self._is_in_text:
            print()
        self._is_in_text = False


class StreamTimeline(Timeline):
    """An observer that prints where a stream was cut, and where it was resumed."""

    def __call__(self, observation: holdfast.observe.Observation) -> None:
        match observation:
            case holdfast.observe.RequestFinished(error=holdfast.A2AError(message=why)):
                self.line(f"cut: {why}")
            case holdfast.observe.Reconnected(number=number):
                self.line(f"resumed, reconnect {number}")
            case _:
                pass


class Tally:
    """Outcomes of three calls."""

    def __init__(self) -> None:
        self.answered = 0
        self.unknown = 0

    def __str__(self) -> str:
        unknown = f", {self.unknown} reported as unknown" if self.unknown else ""
        return f"{self.answered} of 3 calls answered{unknown}"


async def survive() -> str:
    """Make three calls with Holdfast; return a summary of their outcomes."""
    agent, tally, timeline = FakeAgent(), Tally(), Timeline()
    async with (
        LoopbackServer(agent) as server,
        holdfast.connect(server.url, resilience=QUICK, observers=[timeline]) as client,
    ):
        print(
            f"\nAn agent at {server.url} refuses connections, then limits the rate, then answers:"
        )
        await client.agent_card()
        await server.refuse()

        async def come_back() -> None:
            await asyncio.sleep(0.5)
            timeline.line("(the agent listens again)")
            await server.listen()

        agent.inject(rate_limited(retry_after=1), on="SendStreamingMessage")
        async with asyncio.TaskGroup() as group:
            group.create_task(come_back())
            asking = group.create_task(client.ask("Hello, agent!"))
        answer = asking.result()
        tally.answered += 1
        print(f"  answer:  {answer.text!r}")

        print("\nThe connection is reset while a task is fetched. A read is safe to repeat:")
        agent.inject(Reset(), on="GetTask")
        task = await client.get_task(answer.task_id or "")
        tally.answered += 1
        print(f"  answer:  {task.id} is {task.state.name}")

        print("\nThe connection is reset after the agent got a message. It must not run twice:")
        agent.inject(Reset(after_execution=True), on="SendStreamingMessage")
        try:
            answer = await client.ask("Order one pizza.")
            tally.answered += 1
            print(f"  answer:  the reply was lost; a search found its task: {answer.text!r}")
        except holdfast.OutcomeUnknownError as error:
            tally.unknown += 1
            print(f"  answer:  OutcomeUnknownError for message {error.message_id}; not sent again")
    return f"{tally}, {_worst(agent)}"


async def stream() -> str:
    """Read a stream that is cut five times; return a summary."""
    words = [f" {word}" for word in ANSWER.split()]
    agent = FakeAgent(streams(*words, every=0.05))
    agent.inject(Cut(after_events=10), on="SendStreamingMessage")
    agent.inject(Cut(after_events=5), on="SubscribeToTask", times=4)
    async with LoopbackServer(agent) as server:
        print(f"\nAn agent streams {len(words)} words, and the connection is cut five times:")
        timeline = StreamTimeline()
        async with (
            holdfast.connect(server.url, resilience=QUICK, observers=[timeline]) as client,
            client.stream_message("How far is the moon?") as events,
        ):
            async for delta in events.text_deltas():
                timeline.text(delta)
            timeline.end_text()
            answer = await events.result()
    whole = "no text lost, none repeated" if answer.text.strip() == ANSWER else "not the same text"
    heard = len(answer.text.split())
    print(f"  answer:  {heard} words after {events.reconnects} reconnects; {whole}")
    return f"a stream cut {events.reconnects} times, {whole}"


async def loop_plainly() -> str:
    """Make three calls with a loop around aiohttp; return a summary of their outcomes."""
    agent, tally = FakeAgent(), Tally()
    async with LoopbackServer(agent) as server, aiohttp.ClientSession() as session:
        rpc = f"{server.url}/rpc"

        async def attempt(what: str, text: str) -> None:
            try:
                print(f"  {what:9}{await _post(session, rpc, text)}")
                tally.answered += 1
            except aiohttp.ClientError as error:
                print(f"  {what:9}failed: {type(error).__name__}")

        await server.refuse()
        await attempt("refused", "Hello, agent!")
        await server.listen()
        agent.inject(rate_limited(retry_after=1), on="SendMessage", times=3)
        await attempt("limited", "Hello, agent!")
        agent.inject(Reset(after_execution=True), on="SendMessage")
        await attempt("reset", "Order one pizza.")
    return f"{tally}, {_worst(agent)}"


def _worst(agent: FakeAgent) -> str:
    times = max(len(made) for made in agent.executions.values())
    return "no message ran twice" if times == 1 else f"one message ran {times} times"


async def _post(session: aiohttp.ClientSession, url: str, text: str) -> str:
    """Post a message as a plain loop does: up to three attempts at once, on any error."""
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    for attempt in range(3):
        try:
            async with session.post(url, json=body, headers={"A2A-Version": "1.0"}) as reply:
                reply.raise_for_status()
                document = await reply.json()
                return f"answered at attempt {attempt + 1}: {document['result']['task']['id']}"
        except aiohttp.ClientError as error:
            last = error
    raise last


async def call(url: str) -> None:
    """Ask a real agent, and print what happens."""
    timeline = Timeline()
    print(f"\nAsking {url}:")
    try:
        async with holdfast.connect(url, timeout=60, observers=[timeline]) as client:
            card = await client.agent_card()
            print(f"  card:    {card.name}: {card.description}")
            answer = await client.ask("Hello, agent!")
    except (holdfast.A2AError, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    print(f"  answer:  {answer.text or answer.question!r}")
    print(f"\n{card.name} answered.")


async def main() -> None:
    url = os.environ.get("AGENT")
    if url:
        await call(url)
        return
    began = asyncio.get_running_loop().time()
    held = f"{await survive()}; {await stream()}"
    print("\nThe same three calls with a plain loop: up to three attempts at once, on any error:")
    lost = await loop_plainly()
    took = asyncio.get_running_loop().time() - began
    print(f"\nHoldfast: {held}. Plain loop: {lost}. ({took:.1f} s)")


if __name__ == "__main__":
    asyncio.run(main())
