"""`holdfast.sync`: the same classes and methods, which block; over sockets, and in process."""

import ast
import asyncio
import contextlib
import contextvars
import gc
import inspect
import re
import signal
import sqlite3
import threading
import traceback
import warnings
from types import SimpleNamespace

import pytest
from tests.kit.public_names import PUBLIC
from tests.sync_stub import STUB, stub

import holdfast
import holdfast.sync
from holdfast import Resilience, RetryPolicy
from holdfast._sync import blocking, loop
from holdfast.testing import (
    FakeAgent,
    FakeNetwork,
    LoopbackServer,
    Refuse,
    Reset,
    asks,
    completes,
    fails,
    streams,
    works_forever,
)


def scripted(*behaviours):
    """An agent that does one thing after another."""
    left = list(behaviours)
    return FakeAgent(lambda _: left.pop(0))


def connected(behaviour, **options):
    """A client of an agent in process, whose network is on the private loop."""
    agent = behaviour if isinstance(behaviour, FakeAgent) else FakeAgent(behaviour)
    return holdfast.sync.connect(agent.url, engine=FakeNetwork(agent), **options), agent


class Served:
    """An agent behind a socket, served by a loop and a thread of its own."""

    def __init__(self, behaviour):
        self.agent = FakeAgent(behaviour)
        self.server = LoopbackServer(self.agent)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def __enter__(self):
        self._thread.start()
        self._run(self.server.__aenter__())
        return self

    def __exit__(self, *error):
        try:
            self._run(self.server.__aexit__(*error))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    @property
    def url(self):
        return self.server.url


# ── The surface ──────────────────────────────────────────────────────────────────────────────

NO_TWIN = {
    "AiohttpEngine": "a client is given it; sync.run(engine.close()) closes it",
    "AuthInterceptor": "a client asks it",
    "AuthProvider": "callers write it, and a client asks it",
    "CredentialService": "callers write it, and a client asks it",
    "HttpEngine": "callers write it, and a client uses it",
    "HttpStream": "an engine's",
    "InMemoryContextCredentialStore": "a client asks it; sync.run(store.set_credentials(…))",
    "Interceptor": "callers write it, and a client asks it",
    "Journal": "callers write it, and a client uses it",
    "BaseLayer": "a layer's",
    "PostgresJournal": "a client is given it; sync.run(journal.close())",
    "PushReceiver": "an ASGI application, which its server runs on an event loop",
    "SchemeCredentials": "a client asks it",
    "SqliteJournal": "a client is given it; sync.run(journal.close())",
    "StaticAuth": "a client asks it",
    "Stream": "a layer's",
    "StreamWrapper": "a layer's",
    "TokenJournal": "callers write it, and a push receiver uses it",
    "Transport": "callers write it, and a client uses it",
    "UnaryOnly": "a layer's",
}
"""What is asynchronous and has no blocking twin, and why."""

ASYNC = ("__aenter__", "__aiter__", "__anext__", "__await__")


def is_asynchronous(thing):
    if not inspect.isclass(thing):
        return inspect.iscoroutinefunction(thing)
    public = [name for name in dir(thing) if not name.startswith("_")]
    members = [inspect.getattr_static(thing, name) for name in public]
    return any(name in dir(thing) for name in ASYNC) or any(
        inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
        for member in members
    )


def test_everything_asynchronous_has_a_twin_or_a_reason_to_have_none():
    found = {name for name, value in PUBLIC.items() if is_asynchronous(value)}

    assert found - set(holdfast.sync.__all__) == set(NO_TWIN)


def test_twins_come_from_what_makes_clients_and_what_clients_give():
    more = set(holdfast.sync.__all__) - {
        name for name, value in PUBLIC.items() if is_asynchronous(value)
    }

    assert more == {"Circuit", "Iteration", "connect", "run"}


@pytest.mark.parametrize("kind", blocking._twins, ids=lambda kind: kind.__name__)
def test_a_twin_has_every_member_with_the_same_parameters(kind):
    twin = blocking._twins[kind]
    for name in dir(kind):
        spelled = blocking._SPECIAL_METHODS.get(name, name)
        if name.startswith("_") and (
            name not in blocking._SPECIAL_METHODS
            or getattr(kind, name) is getattr(object, name, None)
        ):
            continue
        ours, theirs = getattr(twin, spelled), getattr(kind, name)
        if isinstance(theirs, property):
            assert isinstance(ours, property)
        else:
            assert inspect.signature(ours) == inspect.signature(theirs)
            assert not inspect.iscoroutinefunction(ours)
            assert ours.__name__ == spelled


def test_nothing_asynchronous_is_in_the_documentation():
    words = re.compile(r"\bawait|\basync|asyncio|coroutine|event loop")
    kept = {"BulkRun.__iter__", "run"}  # that messages may come asynchronously
    for name in set(holdfast.sync.__all__) - kept:
        thing = getattr(holdfast.sync, name)
        members = vars(thing).values() if isinstance(thing, type) else ()
        for one in (thing, *members):
            assert not words.search(getattr(one, "__doc__", None) or ""), one


def shape(text):
    """A stub without its format."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            doc = ast.get_docstring(node)
            body = [one for one in node.body if not isinstance(one, ast.Expr)]
            node.body = [ast.Expr(ast.Constant((doc or "").strip())), *body]
    # Type checkers see to the imports.
    return [
        ast.dump(node)
        for node in tree.body
        if not isinstance(node, ast.ImportFrom | ast.Import | ast.Expr)
    ]


def test_the_stub_is_current():
    assert shape(STUB.read_text()) == shape(stub()), "run: python -m tests.sync_stub"


def test_names_resolve_and_are_sorted():
    assert list(holdfast.sync.__all__) == sorted(holdfast.sync.__all__)
    assert {type(getattr(holdfast.sync, name)) for name in holdfast.sync.__all__}


# ── Calls ────────────────────────────────────────────────────────────────────────────────────


def test_asking_over_a_socket():
    with Served(completes("to the moon")) as served:
        with holdfast.sync.connect(served.url) as client:
            assert client.ask("how far?").text == "to the moon"
            with client.stream_message("and back?") as events:
                kinds = [type(event).__name__ for event in events]
                assert kinds[0] == "Task"
                assert events.is_over
                assert events.result().text == "to the moon"
            assert len(list(client.iter_tasks(limit=1))) == 2
        assert holdfast.sync.ask(served.url, "again").text == "to the moon"
        assert holdfast.sync.diagnose(served.url).findings
        with holdfast.sync.A2ACardResolver(served.url) as cards:
            assert cards.get_agent_card().name


def test_many_threads_share_one_client():
    client, agent = connected(completes("here"))
    answers = []

    def ask():
        answers.extend(client.ask("where?").text for _ in range(5))

    with client:
        threads = [threading.Thread(target=ask) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert answers == ["here"] * 50
    assert [len(tasks) for tasks in agent.executions.values()] == [1] * 50


def test_inside_of_a_running_event_loop():
    client, _ = connected(completes("in a notebook"))

    async def cell():
        with client:
            return client.ask("where?").text

    assert asyncio.run(cell()) == "in a notebook"


def test_an_error_is_the_same_with_its_facts_cause_and_both_tracebacks():
    client, agent = connected(completes("lost"), on_unknown="raise")
    agent.inject(Reset(after_execution=True), on="SendMessage")

    with client, pytest.raises(holdfast.OutcomeUnknownError) as caught:
        client.send_message("lost")

    error = caught.value
    assert error.executed is None
    assert error.message_id
    assert isinstance(error.__cause__, holdfast.A2AError)
    functions = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert (
        functions[0] == test_an_error_is_the_same_with_its_facts_cause_and_both_tracebacks.__name__
    )
    assert "send_message" in functions


def test_an_error_leaves_no_cycle_behind():
    client, _ = connected(fails("no"))
    gc.collect()
    gc.disable()
    try:
        with client:
            for _ in range(3):
                with pytest.raises(holdfast.TaskFailedError):
                    client.ask("may I?")
        assert [one for one in gc.get_objects() if type(one).__name__ == "_Call"] == []
    finally:
        gc.enable()


def test_a_timeout_is_that_of_the_asynchronous_api():
    client, _ = connected(completes("late", after=60.0))

    with client, pytest.raises(holdfast.DeadlineExceededError, match=r"0\.05 s"):
        client.ask("now?", timeout=0.05)


def test_wrong_arguments_raise_the_usual_errors():
    client, _ = connected(completes("well"))

    with client:
        with pytest.raises(TypeError, match="not an option of a call"):
            client.get_task("1", histories=1)
        with pytest.raises(ValueError, match="task_id"):
            client.get_task("")
        with pytest.raises(TypeError, match=r"^context_id must be a string, not int"):
            client.conversation(context_id=5)
        with pytest.raises(TypeError, match=r"^context_id must be a string, not bytes"):
            client.iter_tasks(b"x")


def test_leaving_a_stream_early_cancels_the_task_if_asked_to():
    client, agent = connected(works_forever())

    with client, client.stream_message("hello", cancel_on_abandon=True) as events:
        next(iter(events))

    assert len(agent.calls("CancelTask")) == 1


def test_objects_of_a_blocking_client_are_blocking():
    client, _ = connected(scripted(asks("which?"), completes("that one"), streams("that ", "one")))

    with client:
        assert isinstance(client.circuit, holdfast.sync.Circuit)
        assert client.circuit.state == "closed"
        talk = client.conversation()
        assert isinstance(talk, holdfast.sync.Conversation)
        assert talk.ask("one of them").question == "which?"
        assert talk.is_open
        assert talk.ask("the left one").text == "that one"
        assert client.stats().url
        with talk.stream_message("once more") as events:
            assert isinstance(events, holdfast.sync.EventStream)
            assert "".join(events.text_deltas()) == "that one"


def leave_pending(client, count):
    """Leave calls pending whose tasks are known; a timeout may end a call before it is sent."""
    calls = []
    while len(calls) < count:
        with contextlib.suppress(holdfast.DeadlineExceededError):
            client.ask("soon?", timeout=0.1)
        for call in client.pending():
            if not call.task_id:
                call.dismiss()
        calls = client.pending()
    for call in calls[count:]:  # a call that ended late may have become pending later
        call.dismiss()
    return calls[:count]


def test_pending_calls_of_a_journal(tmp_path):
    client, _ = connected(completes("after all", after=1e6), journal=tmp_path / "calls.db")
    with client:
        [call] = leave_pending(client, 1)
        assert isinstance(call, holdfast.sync.PendingCall)
        assert call.task_id
        assert "PendingCall" in repr(call)
        [outcome] = client.resume_pending(timeout=0.1)
        assert outcome.message_id == call.message_id
        assert isinstance(outcome.error, holdfast.DeadlineExceededError)
        call.dismiss()
        assert client.pending() == []


def test_resume_pending_left_early_keeps_pending_what_it_has_not_yielded(tmp_path):
    client, agent = connected(completes("done", after=0.4), journal=tmp_path / "calls.db")
    with client:
        leave_pending(client, 3)
        executed = len(agent.executions)
        said = []
        for outcome in client.resume_pending():
            said.append(outcome.answer.text)
            break
        assert len(client.pending()) == 2
        said += [outcome.answer.text for outcome in client.resume_pending()]
        assert said == ["done"] * 3
        assert client.pending() == []
    assert len(agent.executions) == executed


def test_a_factory_and_a_coordinator_with_clients_of_ones_own():
    agent = FakeAgent(completes("hello"))
    config = holdfast.compat.ClientConfig(engine=FakeNetwork(agent))
    factory = holdfast.sync.ClientFactory(config)

    with (
        factory.create(agent.url) as lent,
        holdfast.sync.Coordinator({"mine": lent}, engine=FakeNetwork(agent)) as coordinator,
    ):
        assert isinstance(lent, holdfast.sync.Client)
        coordinator.add("other", lent)
        assert [r.answer.text for r in coordinator.fan_out("hi").results()] == ["hello"] * 2
        assert [r.agent for r in coordinator.fan_out(zip(["other"], ["hi"], strict=True))] == [
            "other"
        ]
        with coordinator.fan_out("hi") as results:
            assert next(iter(results)).answer.text == "hello"
        assert coordinator.delegate("mine", "hi").unwrap().text == "hello"
        assert isinstance(coordinator.client("mine"), holdfast.sync.Client)
        assert set(coordinator.health()) == {"mine", "other"}


def test_many_messages():
    client, _ = connected(completes("done"))
    told = []

    with client:
        run = client.run(told.append(n) or f"number {n}" for n in range(5))
        assert sorted(result.key for result in run) == list("01234")
        assert told == list(range(5))
        with pytest.raises(StopIteration):
            next(run)


@pytest.mark.parametrize("messages", ["abc", b"abc", {"role": "user", "parts": []}, None])
def test_a_run_of_one_message_is_refused(messages):
    client, agent = connected(completes("done"))

    with client, pytest.raises(TypeError, match="messages must be a sequence, not"):
        client.run(messages)

    assert agent.executions == {}


def test_context_variables_of_the_caller_are_seen():
    seen = []
    span = contextvars.ContextVar("span", default="none")

    class Tracing(holdfast.extend.Interceptor):
        async def before(self, call):
            seen.append(span.get())
            return call

    client, _ = connected(completes("traced"), interceptors=[Tracing()])
    with client:
        span.set("mine")
        client.ask("where?")

    assert set(seen) == {"mine"}


def test_a_coroutine_of_the_callers_runs_on_the_same_loop():
    async def name():
        return threading.current_thread().name

    assert holdfast.sync.run(name()) == "holdfast.sync"


# ── Functions of the caller's ────────────────────────────────────────────────────────────────


def test_a_plain_hook_is_run_by_the_thread_that_waits_and_may_call_again():
    client, _ = connected(scripted(asks("which?"), completes("aside"), completes("that one")))
    database = sqlite3.connect(":memory:")  # which one thread alone may use

    def reply(interruption):
        aside = client.ask("an aside").text
        return f"{interruption.text} {aside} {database.execute('SELECT 1').fetchone()}"

    with client:
        answer = client.conversation(on_input=reply).ask("one of them")

    assert answer.text == "that one"
    database.close()


def test_a_hook_that_is_a_coroutine_function_runs_on_the_loop():
    client, _ = connected(scripted(asks("which?"), completes("that one")))
    threads = []

    async def reply(_):
        threads.append(threading.current_thread().name)
        return "the left one"

    with client:
        client.conversation(on_input=reply).ask("one of them")

    assert threads == ["holdfast.sync"]


def test_plain_consumers_and_on_retry_are_run_by_the_thread_that_waits():
    threads = []
    note = lambda *_: threads.append(threading.get_ident())  # noqa: E731
    client, agent = connected(
        completes("well"),
        consumers=[note],
        resilience=Resilience(retry=RetryPolicy(base_delay=0.0, on_retry=note)),
    )
    with client:
        client.add_event_consumer(note)
        with client.stream_message("hello") as events:
            task_id = events.result().task_id
        told = len(threads)
        agent.inject(Refuse(), on="GetTask")
        client.get_task(task_id)

    assert told > 4
    assert len(threads) == told + 1
    assert set(threads) == {threading.get_ident()}


def test_what_a_consumer_raises_is_raised():
    def refuse(*_):
        raise KeyError("mine")

    client, _ = connected(completes("well"), consumers=[refuse])
    with client, pytest.raises(KeyError, match="mine"):
        client.ask("hello")


def test_exiting_in_a_hook_ends_the_call_and_leaves_the_loop_alone():
    client, _ = connected(asks("which?"))

    def leave(_):
        raise SystemExit(3)

    with client:
        with pytest.raises(SystemExit, match="3"):
            client.conversation(on_input=leave).ask("one of them")
        assert client.ask("are you there?").needs_input


def test_exiting_in_a_coroutine_ends_the_call_and_leaves_the_loop_alone():
    async def leave():
        raise SystemExit(3)

    with pytest.raises(SystemExit, match="3"):
        holdfast.sync.run(leave())
    assert holdfast.sync.run(asyncio.sleep(0, "there")) == "there"


def test_consumers_of_a_run_wait_for_who_iterates():
    client, _ = connected(completes("done"))
    threads = set()
    client.add_event_consumer(lambda *_: threads.add(threading.get_ident()))

    with client, client.run(f"number {n}" for n in range(8)) as run:
        for result in run:
            assert result.answer.text == "done"
            client.get_task(result.answer.task_id)  # others come meanwhile

    assert threads == {threading.get_ident()}


def test_calling_on_the_loop_itself_is_an_error_and_no_deadlock():
    client, _ = connected(completes("well"))

    async def within():
        return client.ask("hello")

    with client, pytest.raises(RuntimeError, match=r"on its own event loop.*await the async"):
        holdfast.sync.run(within())


def test_running_a_coroutine_on_the_loop_itself_is_an_error_and_awaits_nothing():
    async def within():
        return holdfast.sync.run(asyncio.sleep(0))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="on its own event loop"):
            holdfast.sync.run(within())
        gc.collect()


def test_a_tool_runs_in_a_thread_and_may_call():
    client, _ = connected(completes("well"))

    async def tool():
        return await asyncio.to_thread(lambda: client.ask("from a tool").text)

    with client:
        assert holdfast.sync.run(tool()) == "well"


# ── Leaving early ────────────────────────────────────────────────────────────────────────────


def test_an_iteration_that_is_left_is_closed():
    client, _ = connected(
        FakeAgent(lambda turn: completes("done") if turn.message.text == "0" else works_forever())
    )

    async def until(condition):
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0)

    with client:
        run = client.run([str(n) for n in range(100)])  # a generator would wait for a caller
        assert next(run).key == "0"
        inner = run._twin_of
        holdfast.sync.run(until(lambda: inner.in_flight))
        del run
        gc.collect()
        holdfast.sync.run(until(lambda: not inner.in_flight))


def test_an_iteration_over_tasks_can_be_closed():
    client, _ = connected(completes("done"))

    with client:
        client.ask("one")
        client.ask("two")
        tasks = client.iter_tasks(limit=1)
        next(tasks)
        tasks.close()
        tasks.close()
        assert list(tasks) == []


async def _nothing():
    pass


@pytest.mark.parametrize(("given", "told"), [(5, "not int$"), (_nothing, "not function; call it")])
def test_what_is_no_coroutine_is_reported_at_once(given, told):
    with pytest.raises(TypeError, match=f"^run needs a coroutine, .*{told}"):
        holdfast.sync.run(given)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals of POSIX")
@pytest.mark.parametrize("walk", ["events", "text_deltas"])
def test_ctrl_c_in_the_moment_in_which_an_event_arrives_loses_no_event(walk):
    text = "".join(chr(ord("A") + number) for number in range(50))
    client, _ = connected(streams(*text, every=0.002))
    interrupted = []

    def interrupt(_number, frame):
        if frame.f_code.co_name == "_next_hook_call":  # where the thread waits
            interrupted.append(True)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    said = []
    try:
        with client, client.stream_message("hi") as events:
            walked = iter(events if walk == "events" else events.text_deltas())
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0021)
            while True:
                try:
                    step = next(walked, None)
                except KeyboardInterrupt:
                    continue
                if step is None:
                    break
                said.append(step)
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert interrupted
    if walk == "events":
        said = [event.artifact.text for event in said if hasattr(event, "artifact")]
    assert "".join(said) == text


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals of POSIX")
def test_ctrl_c_waits_up_to_three_seconds_for_the_cleanup(monkeypatch):
    steps, may_end, thread = [], threading.Event(), threading.get_ident()
    times = iter([0.0, 2.99])  # at the interruption, and when it would wait for what is left
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: next(times)))

    async def cleans_up_slowly():
        try:
            signal.pthread_kill(thread, signal.SIGALRM)
            await asyncio.sleep(60)
        finally:
            await asyncio.to_thread(may_end.wait, 5)
            steps.append("clean")

    def interrupt(_number, _frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            holdfast.sync.run(cleans_up_slowly())
        assert steps == []
    finally:
        signal.signal(signal.SIGALRM, before)
        may_end.set()
