"""The command as a process, on real sockets: what cannot be seen from inside."""

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import trustme
from tests.kit.cli_process import BOUND, NOBODY_READS, SOURCE, environment, served, start
from tests.kit.effort import crossed
from tests.kit.raw_server import reply, serve_in_thread

from holdfast.cli import main
from holdfast.testing import (
    Cut,
    FakeAgent,
    Reset,
    Stall,
    completes,
    replies,
    streams,
    works_forever,
)


def test_the_module_is_the_command():
    with served(FakeAgent()) as url, start("send", "hello", "-o", "json", "-a", url) as process:
        out, err = process.communicate(timeout=BOUND)
    assert process.returncode == 0
    assert err == ""
    assert json.loads(out)["task"]["artifacts"][0]["parts"] == [{"text": "hello"}]


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_interruption_is_quiet_and_keeps_the_task(form):
    agent = FakeAgent(lambda _: works_forever())
    with served(agent) as url, start("send", "hello", "-a", url, "-o", form) as process:
        early = process.stdout if form == "text" else process.stderr
        assert early.readline() == "Task ID: task-1\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=BOUND)
    assert process.returncode == 130
    assert f"Hint: holdfast task get --wait task-1 --agent-card {url}\n" in err
    assert "Traceback" not in err
    assert ("State: TASK_STATE_WORKING\n" in out) == (form == "text")
    assert agent.calls("CancelTask") == []


def test_an_interrupted_resume_says_how_to_continue(tmp_path):
    agent = FakeAgent(lambda _: works_forever())
    journal = ["--journal", str(tmp_path / "calls.db")]
    with served(agent) as url:
        with start("send", "hello", *journal, "-a", url) as process:
            assert process.stdout.readline() == "Task ID: task-1\n"
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=BOUND)
        with start("resume", *journal, "--debug") as process:
            assert process.stderr.readline().startswith("Debug: ")
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=BOUND)
    assert process.returncode == 143
    assert "Hint: the same command again resumes the calls without an outcome\n" in err


def test_an_interruption_before_the_card_arrives_says_that_nothing_was_sent():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(BOUND)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with start("send", "hello", "-a", url) as process:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=BOUND)
    assert process.returncode == 130
    assert (out, err) == (
        "",
        f"Warning: interrupted while waiting for the agent card of {url}; nothing was sent\n",
    )


def test_an_interruption_before_the_reply_says_how_to_search_for_the_message():
    agent = FakeAgent()
    agent.inject(Stall(), on="SendMessage")
    with served(agent) as url, start("send", "hello", "-a", url, "--debug") as process:
        assert any(line.startswith("Debug: > POST") for line in process.stderr)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=BOUND)

    assert process.returncode == 130
    warning, hint = re.search(
        r"Warning: message (\S+) was in flight; .*\n"
        r"Hint: search for message (\S+) with holdfast task list --all --history 10 -o json ",
        err,
    ).groups()
    assert warning == hint


INTERRUPT_AT_IMPORT = """
import signal, sys
_, module, number = sys.argv

class Interrupt:
    def find_spec(self, name, *_):
        if name == module:
            signal.raise_signal(getattr(signal, number))

sys.meta_path.insert(0, Interrupt())
from holdfast.cli import main
sys.argv[1:] = ["send", "hello", "-a", "http://127.0.0.1:1"]
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "name", "code"), [("click", "SIGINT", 130), ("asyncio", "SIGTERM", 143)]
)
def test_interruption_while_the_command_imports_modules_is_quiet(module, name, code):
    with start(module, name, python=("-c", INTERRUPT_AT_IMPORT)) as process:
        out, err = process.communicate(timeout=BOUND)
    assert (process.returncode, out, err.strip()) == (code, "", "")


def test_command_imports_little_before_it_handles_an_interruption():
    program = "import sys, holdfast.cli; print({'typing', 're', 'asyncio'} & {*sys.modules})"
    path = {"PYTHONPATH": str(SOURCE)}  # without the packages of the environment, and their hooks
    run = [sys.executable, "-S", "-c", program]
    done = subprocess.run(run, env=path, capture_output=True, check=True)
    assert done.stdout.decode().strip() == "set()"


@pytest.mark.parametrize(
    ("form", "number", "code"), [("text", signal.SIGINT, 130), ("json", signal.SIGTERM, 143)]
)
def test_interruption_of_a_stream_is_quiet_and_says_how_to_resume(form, number, code):
    agent = FakeAgent(streams("one", "two", every=3000))
    words = ("send", "hello", "--stream", "-o", form)
    with served(agent) as url, start(*words, "-a", url) as process:
        process.stdout.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=BOUND)
    assert process.returncode == code
    assert f"Hint: holdfast task subscribe --stream task-1 --agent-card {url}\n" in err
    assert "Traceback" not in err
    if form == "text":
        assert "Context ID: context-2\nState: TASK_STATE_" in out
    else:
        assert all(json.loads(line) for line in out.splitlines())
    assert agent.calls("CancelTask") == []


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_reader_that_leaves_a_stream_ends_it_quietly(form):
    agent = FakeAgent(streams(*["word "] * 300, every=0.02))
    words = ("send", "hello", "--stream", "-o", form)
    with served(agent) as url, start(*words, "-a", url) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=BOUND) == NOBODY_READS
        assert process.stderr.read() == ""
    assert agent.calls("CancelTask") == []


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals here")
@pytest.mark.parametrize("form", ["text", "json"])
def test_stream_left_on_a_terminal_says_how_to_resume_it(form):
    agent = FakeAgent(streams(*["word "] * 300, every=0.02))
    words = ("send", "hello", "--stream", "-o", form)
    terminal, stderr = os.openpty()
    with served(agent) as url, start(*words, "-a", url, stderr=stderr) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=BOUND) == NOBODY_READS
    told = os.read(terminal, 65536).decode()
    os.close(stderr)
    os.close(terminal)
    assert told == f"Hint: holdfast task subscribe --stream task-1 --agent-card {url}\r\n"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals here")
def test_on_a_terminal_nothing_is_said_of_a_task_that_is_over():
    terminal, stderr = os.openpty()
    agent = FakeAgent(completes("x", after=0.1))
    done, _ = unread(agent, "send", "hello", "-o", "json", stderr=stderr)
    told = os.read(terminal, 65536).decode()
    os.close(stderr)
    os.close(terminal)
    assert (done.returncode, told) == (NOBODY_READS, "Task ID: task-1\r\n")


def leave_after_the_state(process):
    """Reads what there is to read of a task that works forever, and leaves."""
    assert "State: TASK_STATE_WORKING\n" in iter(process.stdout.readline, "")
    process.stdout.close()


def test_interruption_of_unread_output_says_how_to_resume():
    agent = FakeAgent(lambda _: works_forever())
    with served(agent) as url, start("send", "hello", "--stream", "-a", url) as process:
        leave_after_the_state(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=BOUND) == 130
        said = process.stderr.read()
    assert said == f"Hint: holdfast task subscribe --stream task-1 --agent-card {url}\n"


def test_failure_is_reported_though_the_output_is_not_read():
    agent = FakeAgent(lambda _: works_forever())
    words = ("send", "hello", "--stream", "--timeout", "1s")
    with served(agent) as url, start(*words, "-a", url) as process:
        leave_after_the_state(process)
        assert process.wait(timeout=BOUND) == 5
        assert "Code: A2ACLI_ERR_TIMEOUT\n" in process.stderr.read()


def test_a_stream_shows_text_before_it_is_over():
    agent = FakeAgent(streams("one\n", "two", every=0.01, then=works_forever()))
    with served(agent) as url, start("send", "hello", "--stream", "-a", url) as process:
        lines = iter(process.stdout.readline, "")
        assert "one\n" in lines
        process.kill()


def test_a_stream_that_is_cut_on_a_socket_continues():
    agent = FakeAgent(streams("one ", "two ", "three", every=0.2))
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    agent.inject(Reset(after_events=1), on="SubscribeToTask")
    words = ("send", "hello", "--stream")
    with served(agent) as url, start(*words, "-a", url) as process:
        out, err = process.communicate(timeout=BOUND)
    assert process.returncode == 0
    assert "Text:\none two three\n\n" in out
    assert "the stream was cut" in err


def unread(agent, *words, stderr=subprocess.PIPE):
    """The command, with a standard output that nobody reads any more, and the agent's address."""
    with served(agent) as url:
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            stdin=subprocess.DEVNULL, stdout=writer, stderr=stderr,
            text=True, env=environment(A2ACLI_AGENT_CARD=url), check=False,
        )  # fmt: skip
        os.close(writer)
    return done, url


@pytest.mark.parametrize("words", [["--help"], ["send", "-o", "json"], ["card", "get"]])
def test_a_reader_that_left_is_no_drama(words):
    done, _ = unread(FakeAgent(), *words)
    assert (done.returncode, done.stderr) == (NOBODY_READS, "")


@pytest.mark.parametrize(("after", "words"), [(0, "task get"), (0.1, "task get --wait")])
def test_task_is_named_on_stderr_if_its_id_was_not_read(after, words):
    done, url = unread(FakeAgent(completes("x", after=after)), "send", "hello")
    hint = f"Hint: holdfast {words} task-1 --agent-card {url}\n"
    assert (done.returncode, done.stderr) == (NOBODY_READS, hint)


def test_a_task_is_named_on_stderr_once():
    done, _ = unread(FakeAgent(completes("x", after=0.1)), "send", "hello", "-o", "json")
    assert (done.returncode, done.stderr) == (NOBODY_READS, "Task ID: task-1\n")


def test_a_reader_that_has_read_the_tasks_id_may_leave():
    agent = FakeAgent(completes("x", after=0.3))
    with served(agent) as url, start("send", "hello", "-a", url) as process:
        assert process.stdout.readline() == "Task ID: task-1\n"
        process.stdout.close()
        assert process.wait(BOUND) == NOBODY_READS
        assert process.stderr.read() == ""


SENT = "; the message was sent; task task-1 was last seen TASK_STATE_[A-Z]+"


def answering(turn):
    return replies("hi") if turn.message.text == "talk" else completes("x", after=0.1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device is always full here")
@crossed(
    "said, form",
    [
        (["send", "hello"], SENT, "holdfast task get "),
        (["send", "hello", "--stream"], SENT, "holdfast task subscribe --stream task-1 "),
        (["send", "hello", "--async"], SENT, "holdfast task get --wait task-1 "),
        (["send", "talk"], "; the message was sent", "sending it again would execute it again"),
        (["card", "get"], "", ""),
        (["config", "show"], "", ""),
        (["send", "--help"], "", ""),
        (["send", "--version"], "", ""),
    ],
    ["text", "json"],
)
def test_an_output_that_takes_nothing_more_is_reported(said, form):
    words, so_far, hint = said
    with served(FakeAgent(answering)) as url, Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *words, "-o", form],
            stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
            text=True, env=environment(A2ACLI_AGENT_CARD=url), check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert re.search(f"Error: the output cannot be written: No space left on device{so_far}\n",
                     done.stderr)  # fmt: skip
    assert "Code: HOLDFAST_ERR_FILE\n" in done.stderr
    assert "Traceback" not in done.stderr
    assert not hint or f"Hint: {hint}" in done.stderr


def redirected(how, *words, **more):
    """The command, with its streams as a shell redirects them."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {how}', "sh", sys.executable, "-m", "holdfast", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(**more),
        check=False,
        timeout=BOUND,
    )


@pytest.mark.skipif(os.name == "nt", reason="there are no limits of files here")
@pytest.mark.parametrize("size", [3_000, 300_000])
def test_a_file_that_cannot_be_written_to_its_end_is_not_left_behind(size, tmp_path):
    agent = FakeAgent(completes("x" * size))
    limited = ("sh", "-c", 'ulimit -f 1; exec "$@"', "sh", sys.executable, "-m", "holdfast")

    def download(*words):
        return subprocess.run(
            [*limited, "task", "download", "task-1", "-a", url, "--to", str(tmp_path), *words],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=BOUND,
            env=environment(PYTHONDONTWRITEBYTECODE="1"),
        )  # fmt: skip

    with served(agent) as url:
        with start("send", "hello", "-a", url) as process:
            process.communicate(timeout=BOUND)
        done = download()
        assert (done.returncode, list(tmp_path.iterdir())) == (1, [])
        assert "cannot be written: File too large" in done.stderr

        there = tmp_path / "artifact-1.txt"
        there.write_text("old")
        assert download("--overwrite").returncode == 1
    assert list(tmp_path.iterdir()) == [there]
    assert there.read_text() == "old"


def test_a_closed_input_is_a_usage_error():
    done = redirected("<&-", "send", "-a", "agent.test", "--data", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "Error: --data standard input cannot be read: it is closed\n"
        "Code: A2ACLI_ERR_USAGE\nHint: holdfast send --help\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["send", "hello"],
        ["send", "hello", "--stream"],
        ["card", "get", "-o", "json"],
        ["send", "--help"],
        ["--version"],
    ],
)
def test_a_closed_output_is_reported_before_anything_is_sent(words):
    agent = FakeAgent()
    with served(agent) as url:
        done = redirected(">&-", *words, A2ACLI_AGENT_CARD=url)
    assert (done.returncode, done.stderr) == (
        1,
        "Error: the output cannot be written: it is closed\nCode: HOLDFAST_ERR_FILE\n",
    )
    assert agent.received == []


def test_closed_outputs_fail_without_a_word():
    done = redirected(">&- 2>&-", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


WITHOUT_LIBRARY = textwrap.dedent("""
    import sys
    sys.modules[sys.argv[1]] = None
    from holdfast.cli import main
    sys.exit(main(["send", "hello"]))
""")


@pytest.mark.parametrize(("module", "library"), [("click", "click"), ("dotenv", "python-dotenv")])
def test_without_its_libraries_the_command_says_what_to_install(module, library, tmp_path):
    (tmp_path / ".env").write_text("A2ACLI_TIMEOUT=5s\n")
    with start(module, python=("-c", WITHOUT_LIBRARY), directory=tmp_path) as process:
        out, err = process.communicate(timeout=BOUND)
    assert process.returncode == 1
    assert out == ""
    hint = 'install the extra "cli" (in a clone: pip install ".[cli]")'
    assert err == f"holdfast: the command line needs {library}: {hint}\n"


def test_without_files_nothing_reads_them():
    code = (
        "import sys; sys.modules['dotenv'] = None; from holdfast.cli import main; main(['send'])"
    )
    with start(python=("-c", code)) as process:
        _, err = process.communicate(timeout=BOUND)
    assert "Code: A2ACLI_ERR_USAGE" in err


def test_a_file_in_the_working_directory_and_one_in_the_home_state_settings(tmp_path):
    home, work = tmp_path / "home", tmp_path / "work"
    shared = home / ".config" / "a2a-cli" / ".env"
    for path in (shared, work / ".env"):
        path.parent.mkdir(parents=True)
    with served(FakeAgent()) as url:
        shared.write_text(f"A2ACLI_AGENT_CARD={url}\nA2ACLI_OUTPUT=text\n")
        (work / ".env").write_text("A2ACLI_OUTPUT=json\n")
        with start("send", "hello", directory=work, HOME=str(home)) as process:
            out, err = process.communicate(timeout=BOUND)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["task"]["artifacts"][0]["parts"] == [{"text": "hello"}]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_settings_may_come_from_a_pipe_which_is_read_once(tmp_path):
    pipe = tmp_path / "settings"
    os.mkfifo(pipe)
    with start("send", "hello", "--config", str(pipe)) as process:
        pipe.write_text("A2ACLI_OUTPUT=json\nA2ACLI_TIMEOUT=soon\n")
        out, err = process.communicate(timeout=BOUND)
    assert (process.returncode, err) == (2, "")
    assert f"A2ACLI_TIMEOUT in {pipe}, line 2: 'soon'" in json.loads(out)["error"]["message"]


COMPLETING = textwrap.dedent("""
    eval "$(holdfast completion bash)"
    complete -p holdfast
    compopt() { echo compopt "$@"; }
    while IFS= read -r line; do
        read -r -a COMP_WORDS <<<"$line"
        [[ $line == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        COMPREPLY=()
        _holdfast_completion holdfast </dev/null
        echo "${COMPREPLY[@]}"
    done
""")
COMPLETED = {
    "ta": "task",
    "task ": "cancel download get list push-config subscribe",
    "send --tran": "--transport",
    "send --transport h": "HTTP+JSON",
    "send -o ": "text json",
    "task list --status in": "input-required",
    "task download t --to /tm": "compopt -o default\n",
    "send --stre": "--stream",
    "completion z": "zsh",
    "help ta": "task",
    "help task ": "cancel download get list push-config subscribe",
    "send --file /tm": "compopt -o default\n",
    "card get -a ./": "compopt -o default\n",
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes(tmp_path):
    command = tmp_path / "holdfast"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
    command.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", COMPLETING],
        input="".join(f"holdfast {words}\n" for words in COMPLETED),
        capture_output=True, text=True, check=False, cwd="/", env=environment(PATH=path),
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout == "complete -o nosort -F _holdfast_completion holdfast\n" + "".join(
        f"{completed}\n" for completed in COMPLETED.values()
    )


LIGHT = {
    "the version": (["--version"], ""),
    "help": (["--help"], ""),
    "help of a command": (["task", "push-config", "receive", "--help"], ""),
    "a command": ([], "holdfast ta"),
    "a command of a group": ([], "holdfast task "),
    "an option": ([], "holdfast send --"),
}
HEAVY = (
    "aiohttp",
    "asyncio",
    "dataclasses",
    "difflib",
    "holdfast._cli.options.settings",
    "holdfast.errors",
    "holdfast.types",
    "logging",
    "msgspec",
    "ssl",
)


@pytest.mark.parametrize(("words", "completing"), LIGHT.values(), ids=LIGHT)
def test_what_calls_no_agent_imports_nothing_heavy(words, completing):
    code = textwrap.dedent(f"""
        import sys
        from holdfast.cli import main
        main({words})
        print(*(name for name in {HEAVY} if name in sys.modules), file=sys.stderr)
    """)
    asked = {"COMP_WORDS": completing, "COMP_CWORD": str(len(completing.split(" ")) - 1)}
    variables = asked | {"_HOLDFAST_COMPLETE": "bash_complete"} if completing else {}
    with start(python=("-c", code), **variables) as process:
        out, err = process.communicate(timeout=BOUND)
    assert process.returncode == 0, err
    assert out
    assert err == "\n"


def test_usage_errors_load_no_network_library():
    code = textwrap.dedent("""
        import sys
        from holdfast.cli import main
        main(["send", "hello"])
        sys.exit("aiohttp" in sys.modules)
    """)
    with start(python=("-c", code)) as process:
        _, err = process.communicate(timeout=BOUND)
    assert process.returncode == 0, err


@pytest.mark.parametrize("words", [["--help"], []])
def test_the_list_of_commands_imports_none_of_them(words):
    code = textwrap.dedent(f"""
        import sys
        from holdfast.cli import main
        main({words})
        sys.exit(any(name.startswith("holdfast._cli.commands.") for name in sys.modules))
    """)
    with start(python=("-c", code)) as process:
        _, err = process.communicate(timeout=BOUND)
    assert process.returncode == 0, err


def test_completing_is_no_failure():
    asked = {"COMP_WORDS": "holdfast ta", "COMP_CWORD": "1"}
    with start(_HOLDFAST_COMPLETE="bash_complete", **asked) as process:
        out, err = process.communicate(timeout=BOUND)
    assert (process.returncode, out.strip(), err) == (0, "plain,task", "")


@pytest.fixture
def called(monkeypatch, capfd, tmp_path):
    """Runs the command in this process, on real sockets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("A2ACLI_")]:
        monkeypatch.delenv(name)

    def call(*words):
        code = main([*words, "-o", "json"])
        out, err = capfd.readouterr()
        return code, json.loads(out), err

    return call


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
def test_both_bindings_on_a_socket(called, transport):
    agent = FakeAgent()
    with served(agent) as url:
        code, answer, err = called(
            "send", "hello", "-a", url, "--transport", transport, "--svc-param", "x-trace:7"
        )
    assert (code, err) == (0, "")
    assert answer["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert agent.received[-1].headers["x-trace"] == "7"


@pytest.mark.parametrize("location", ["query", "cookie", "header"])
def test_an_api_key_on_a_socket(called, location):
    agent = FakeAgent()
    with served(agent) as url:
        agent.card = {
            "name": "Guarded",
            "supportedInterfaces": [{"url": f"{url}/rpc", "protocolBinding": "JSONRPC"}],
            "securitySchemes": {
                "k": {"apiKeySecurityScheme": {"location": location, "name": "the-key"}}
            },
        }
        code, _, _ = called("send", "hello", "-a", url, "--api-key", "s3cret+/=")
    (call,) = agent.calls("SendMessage")
    assert code == 0
    assert {
        "query": call.url.partition("?")[2] == "the-key=s3cret%2B%2F%3D",
        "cookie": call.headers.get("cookie") == "the-key=s3cret+/=",
        "header": call.headers.get("the-key") == "s3cret+/=",
    }[location]


def test_unknown_certificate_is_refused_by_default(called):
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)

    async def script(connection):
        while await connection.request() is not None:
            await connection.send(reply(CARD, "Content-Type: application/json"))

    with serve_in_thread(script, ssl=context) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        code, answer, _ = called("card", "get", "-a", url)
        assert (code, answer["error"]["code"]) == (3, "A2ACLI_ERR_UNREACHABLE")
        assert "--insecure" in answer["error"]["hint"]
        code, answer, err = called("card", "get", "-a", url, "--insecure", "--bearer", "s3cret")
        assert (code, answer["name"]) == (0, "Behind TLS")
        assert "Warning: --insecure" in err
        assert "Warning: SECURITY" in err


def test_https_where_http_is_spoken_asks_for_the_scheme(called):
    async def script(connection):
        await connection.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with serve_in_thread(script) as server:
        url = server.url.replace("http://", "https://")
        code, answer, _ = called("card", "get", "-a", url)
    assert (code, answer["error"]["code"]) == (3, "A2ACLI_ERR_UNREACHABLE")
    assert "does it speak http://?" in answer["error"]["hint"]
    assert "certificate" in answer["error"]["hint"]


def test_a_process_that_writes_ascii_loses_nothing():
    with (
        served(FakeAgent()) as url,
        start("send", "Größe 日本", "-o", "json", "-a", url, PYTHONIOENCODING="ascii") as process,
    ):
        out, _ = process.communicate(timeout=BOUND)
    assert out.isascii()
    assert json.loads(out)["task"]["artifacts"][0]["parts"] == [{"text": "Größe 日本"}]


CARD = b"""{
    "name": "Behind TLS",
    "supportedInterfaces": [{"url": "https://localhost/rpc", "protocolBinding": "JSONRPC"}]
}"""


def test_the_example_agent_answers_until_it_is_interrupted():
    example = Path(SOURCE).parent / "examples" / "agent.py"
    with start("0", python=(str(example),)) as agent:
        url = agent.stdout.readline().split()[-2]
        with start("send", "-a", url, "Tell me a story") as process:
            told, _ = process.communicate(timeout=BOUND)
        agent.send_signal(signal.SIGINT)
        agent.communicate(timeout=BOUND)
    assert "Tell me a story" in told
    assert agent.returncode == 0
