"""`holdfast.sync` in programs that are interrupted, that fork, and that end without a word."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import holdfast

ENV = {**os.environ, "PYTHONPATH": str(Path(holdfast.__file__).parents[1])}
ENV.pop("PYTHONASYNCIODEBUG", None)
LIMIT = 120

SERVED = """
import atexit
at_the_end = []
atexit.register(lambda: [one() for one in at_the_end])  # what is registered first comes last
import asyncio, multiprocessing, os, signal, sys, threading, time
import holdfast, holdfast.sync
from holdfast.testing import FakeAgent, LoopbackServer, asks, completes, streams, works_forever

assert threading.active_count() == 1  # importing it starts nothing
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it

def served(behaviour):
    # Two loops: the agent's must go on where the client's is left behind.
    agent, loop = FakeAgent(behaviour), asyncio.new_event_loop()
    server = LoopbackServer(agent)
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
    return agent, server

def until(condition):
    while not condition():
        time.sleep(0.01)

def ctrl_c(*conditions):
    def press():
        for condition in conditions:
            until(condition)
            os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=press).start()
"""


def started(script, *flags):
    return subprocess.Popen(
        [sys.executable, "-W", "error", *flags, "-c", SERVED + textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENV,
    )


def ended(program):
    try:
        out, err = program.communicate(timeout=LIMIT)
    finally:
        program.kill()
    return program.returncode, out, err


def test_ctrl_c_cancels_the_call_and_leaves_the_task_alone():
    program = started("""
        agent, server = served(works_forever())
        client = holdfast.sync.connect(server.url)
        ctrl_c(lambda: agent.open_streams)
        try:
            client.ask("for ever")
        except KeyboardInterrupt:
            print("interrupted")
        until(lambda: not agent.open_streams)
        print([task.state.name for task in client.list_tasks().tasks])

        steps = []

        async def stubborn():
            try:
                steps.append("begun")
                await asyncio.sleep(60)
            finally:
                steps.append("cancelled")
                await asyncio.sleep(60)

        ctrl_c(lambda: "begun" in steps, lambda: "cancelled" in steps)
        try:
            holdfast.sync.run(stubborn())
        except KeyboardInterrupt:
            print("left alone")
        client.close()
    """)
    code, out, err = ended(program)

    assert out.splitlines() == ["interrupted", "['WORKING']", "left alone"], err
    assert (code, err) == (0, "")


def test_ctrl_c_in_a_hook_that_asks_for_input():
    program = started("""
        agent, server = served(asks("which?"))
        client = holdfast.sync.connect(server.url)
        def hook(interruption):
            print("asked", flush=True)
            return input()
        client.conversation(on_input=hook).ask("one of them")
    """)
    assert program.stdout.readline() == "asked\n"
    program.send_signal(signal.SIGINT)
    code, _, err = ended(program)

    assert code in {130, -signal.SIGINT}
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert "Fatal" not in err


def test_a_forked_child_continues_with_a_client():
    program = started("""
        import warnings
        # Of forking beside threads; and of what a child has from its parent, and cannot close.
        warnings.simplefilter("ignore")
        agent, server = served(completes("here"))
        client = holdfast.sync.connect(server.url)
        print(client.ask("where?").text, flush=True)

        def ask(name):
            print(name, client.ask("where?").text, flush=True)
            if name == "first":
                client.close()

        busy = threading.Thread(target=lambda: [client.ask("busy") for _ in range(50)])
        busy.start()
        for name in ("first", "second"):
            child = os.fork()
            if child == 0:
                ask(name)
                sys.exit(0)  # with all that happens at an exit
            assert os.waitpid(child, 0)[1] == 0
        process = multiprocessing.get_context("fork").Process(target=ask, args=("process",))
        process.start()
        process.join()
        assert process.exitcode == 0
        busy.join()
        print("parent", client.ask("where?").text)
        client.close()
        print(all(len(tasks) == 1 for tasks in agent.executions.values()))
    """)
    code, out, err = ended(program)

    assert (code, err) == (0, "")
    assert out.split("\n") == [
        "here",
        "first here",
        "second here",
        "process here",
        "parent here",
        "True",
        "",
    ]


def test_a_program_that_ends_without_closing_says_nothing():
    program = started("""
        from holdfast.sync import connect
        agent, server = served(streams(*"abcdef", every=0.0, then=works_forever()))
        client = connect(server.url)
        events = client.stream_message("go on").__enter__()
        print(next(events) is not None)

        def half_way():
            with connect(server.url) as other, other.stream_message("more") as more:
                yield next(more)

        left = half_way()
        next(left)
        run = client.run(str(n) for n in range(10))
        class Late:
            def __del__(self):
                client.close()  # at the very end: it is done
        late = Late()

        def too_late():
            try:
                client.ask("one more thing")
            except RuntimeError as error:
                print(error)

        at_the_end.append(too_late)
        waits = threading.Thread(target=lambda: client.wait("task-1"), daemon=True)
        asked = len(agent.received)
        waits.start()
        until(lambda: len(agent.received) > asked)
        print("end")
    """)
    code, out, err = ended(program)

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "True",
        "end",
        "the interpreter is shutting down: holdfast.sync accepts no more calls",
    ]
