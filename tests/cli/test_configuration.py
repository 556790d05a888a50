"""Settings from files, and ``config show`` (a2a-cli 6.5, 7.2, 8.3)."""

import os
import select
from pathlib import Path

import pytest
from tests.kit.cli_harness import AGENT, PLAIN, holdfast

from holdfast._cli.options.configuration_files import read_configuration
from holdfast.testing import FakeAgent, completes, works_forever

SECRET = "canary-4bd1f0a7"

posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes of files")


@pytest.fixture
def local(tmp_path):
    """The local file."""
    directory = tmp_path / "work"
    directory.mkdir()
    return directory / ".env"


@pytest.fixture
def shared(tmp_path):
    """The global file."""
    path = tmp_path / "home" / ".config" / "a2a-cli" / ".env"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def run(local, shared):
    """Runs ``holdfast`` with these two files, where they are written."""

    def run(*words, directory=local.parent, **more):
        return holdfast(*words, home=shared.parents[2], directory=directory, **more)

    return run


def write(path, content):
    path.write_text(content)
    path.chmod(0o600)


def shown(done):
    """What ``config show`` says: for each setting its value and where that comes from."""
    settings = {one["name"]: one for one in done.json["settings"]}
    return {name: (one["value"], one["source"], one["file"]) for name, one in settings.items()}


# ── Where values come from ───────────────────────────────────────────────────────────────────


def test_a_local_file_states_settings(run, local):
    write(local, f"A2ACLI_AGENT_CARD={AGENT}\nA2ACLI_OUTPUT=json\n")
    assert run("send", "hello", card=None).json["task"]["id"] == "task-1"


def test_flag_beats_environment_beats_local_beats_global_beats_default(run, local, shared):
    write(shared, "A2ACLI_TIMEOUT=12s\n")
    write(local, "A2ACLI_TIMEOUT=11s\n")
    flag, env = ["--timeout", "14s"], {"A2ACLI_TIMEOUT": "13s"}
    found = [
        shown(run("config", "show", "-o", "json", *words, env=variables))["timeout"]
        for words, variables in ((flag, env), ([], env), ([], {}))
    ]
    assert found == [
        ("14s", "flag", None),
        ("13s", "environment", None),
        ("11s", "file", str(local)),
    ]
    local.unlink()
    done = run("config", "show", "-o", "json")
    assert shown(done)["timeout"] == ("12s", "file", str(shared))
    shared.unlink()
    assert shown(run("config", "show", "-o", "json"))["timeout"] == ("15m", "default", None)


def test_a_default_that_depends_on_the_command_is_shown_in_words(run):
    assert shown(run("config", "show", "-o", "json"))["wait"] == (None, "default", None)
    lines = run("config", "show").out.splitlines()
    assert "wait: (true, except of task get) [default]" in lines
    assert "transport: (the card's order) [default]" in lines
    assert "async: false [default]" in lines


def test_the_value_that_is_shown_is_the_one_that_counts(run, local, shared):
    write(shared, "A2ACLI_TIMEOUT=11s\n")
    write(local, "A2ACLI_POLL_INTERVAL=3s\n")
    done = run("send", "hello", agent=FakeAgent(lambda _: works_forever()))
    assert done.exit == 5
    assert "the timeout of 11s expired" in done.err


def test_the_local_file_is_the_nearest_one_upwards(run, local):
    below = local.parent / "a" / "b"
    below.mkdir(parents=True)
    write(local, "A2ACLI_TIMEOUT=12s\n")
    assert shown(run("config", "show", "-o", "json", directory=below))["timeout"][0] == "12s"
    write(below.parent / ".env", "A2ACLI_VERBOSE=1\n")
    done = run("config", "show", "-o", "json", directory=below)
    assert shown(done)["timeout"] == ("15m", "default", None)
    assert shown(done)["verbose"] == ("true", "file", str(below.parent / ".env"))


@pytest.mark.parametrize("before", [True, False])
def test_a_named_file_takes_the_place_of_the_local_one(run, local, shared, tmp_path, before):
    named = tmp_path / "agent.env"
    write(named, "A2ACLI_TIMEOUT=21s\n")
    write(local, "A2ACLI_TIMEOUT=12s\nA2ACLI_POLL_INTERVAL=5s\n")
    write(shared, "A2ACLI_TIMEOUT=11s\nA2ACLI_HISTORY=4\n")
    flag, words = ["--config", str(named)], ["config", "show", "-o", "json"]
    done = run(*flag, *words) if before else run(*words, *flag)
    settings = shown(done)
    assert settings["timeout"] == ("21s", "file", str(named))
    assert settings["poll-interval"] == ("2s", "default", None)
    assert settings["history"] == ("4", "file", str(shared))
    assert settings["config"] == (str(named), "flag", None)
    assert done.json["files"] == {"local": str(named), "global": str(shared)}


def test_the_environment_may_name_the_file_and_a_file_may_not(run, local, tmp_path):
    named = tmp_path / "agent.env"
    write(named, "A2ACLI_TIMEOUT=21s\n")
    write(local, f"A2ACLI_CONFIG={named}\nA2ACLI_TIMEOUT=12s\n")
    words = ["config", "show", "-o", "json"]
    assert shown(run(*words))["timeout"][0] == "12s"
    assert shown(run(*words, env={"A2ACLI_CONFIG": str(named)}))["timeout"][0] == "21s"


@pytest.mark.parametrize("words", [["send", "hello"], ["config", "show"]])
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_named_file_that_cannot_be_read_is_a_usage_error(run, words, form):
    done = run(*words, "--config", "/no/such/file", "-o", form)
    assert done.exit == 2
    assert "--config /no/such/file cannot be read" in done.out + done.err


def test_help_is_shown_whatever_is_wrong_with_a_file(run):
    done = run("send", "--help", card=None, env={"A2ACLI_CONFIG": "/no/such/file"})
    assert (done.exit, done.err) == (0, "")


def test_an_empty_variable_undoes_what_a_file_states(run, shared):
    write(shared, "A2ACLI_BEARER=secret-of-the-file\n")
    agent = FakeAgent()
    run("send", "hello", agent=agent, env={"A2ACLI_BEARER": ""})
    assert "authorization" not in agent.received[-1].headers


def test_an_empty_line_states_nothing(run, local, shared):
    write(shared, "A2ACLI_TIMEOUT=11s\n")
    write(local, "A2ACLI_BEARER=\nA2ACLI_TASK_ID= # none\n")
    done = run("send", "hello")
    assert (done.exit, done.err) == (0, "")


def test_values_are_quoted_as_in_any_env_file_and_taken_literally(run, shared):
    write(
        shared,
        "# mine\nexport A2ACLI_API_KEY='a$HOME'\nA2ACLI_SVC_PARAM=\"x-a:1\\nx-b:${HOME}\"\n"
        "A2ACLI_TRANSPORT=HTTP+JSON, JSONRPC\nOTHER=1\n!? nonsense\n",
    )
    agent = FakeAgent()
    done = run("send", "hello", agent=agent)
    assert (done.exit, done.err) == (0, f"Warning: {shared}, line 6 is not NAME=value\n{PLAIN}")
    call = agent.received[-1]
    assert call.headers["x-api-key"] == "a$HOME"
    assert (call.headers["x-a"], call.headers["x-b"]) == ("1", "${HOME}")
    assert "/rest" in call.url


@pytest.mark.parametrize(
    ("says", "waits"), [(("WAIT", "ASYNC"), False), (("ASYNC", "WAIT"), True)]
)
def test_the_better_file_says_whether_to_wait(run, local, shared, says, waits):
    write(shared, f"A2ACLI_{says[0]}=1\n")
    write(local, f"A2ACLI_{says[1]}=1\n")
    agent = FakeAgent(lambda _: completes("done", after=0.5))
    assert run("send", "hello", agent=agent).exit == 0
    assert bool(agent.calls("GetTask")) is waits
    done = run("config", "show", "-o", "json")
    assert shown(done)["wait"][0] == str(waits).lower()
    assert shown(done)["async"][0] == str(not waits).lower()


def test_two_settings_of_one_file_that_contradict_each_other_are_a_usage_error(run, local):
    write(local, "A2ACLI_WAIT=1\nA2ACLI_ASYNC=1\n")
    done = run("send", "hello")
    assert done.exit == 2
    assert "contradict" in done.err


def test_stream_is_never_a_setting(run, local):
    write(local, "A2ACLI_STREAM=1\n")
    done = run("send", "hello", "-o", "json", env={"A2ACLI_STREAM": "1"})
    assert list(done.json) == ["task"]
    for place in (f"{local}, line 1: A2ACLI_STREAM", "A2ACLI_STREAM in the environment"):
        assert (
            f"Warning: {place} is not a setting of holdfast; pass the flag --stream\n" in done.err
        )


# ── What is wrong with files ─────────────────────────────────────────────────────────────────


def test_a_wrong_value_is_reported_with_its_file(run, local):
    write(local, "A2ACLI_TIMEOUT=soon\n")
    done = run("send", "hello")
    assert done.exit == 2
    assert f"A2ACLI_TIMEOUT in {local}, line 1: 'soon' is not a duration" in done.err
    assert str(local) not in run("send", "hello", "--timeout", "later").err


def test_a_usage_error_has_the_form_that_a_file_asks_for(run, local):
    write(local, "A2ACLI_OUTPUT=json\n")
    assert run("send").error["code"] == "A2ACLI_ERR_USAGE"


def test_line_that_sets_nothing_is_reported(run, local):
    write(local, "A2ACLI_TIMEOUT: 5s\nA2ACLI_POLL_INTERVAL=3s\n")
    done = run("send", "hello")
    assert done.exit == 0
    assert done.err == f"Warning: {local}, line 1 is not A2ACLI_NAME=value\n"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("A2ACLI_TIMEOUT 5s\n", 1),
        ("# a comment\n\n\nA2ACLI_TIMEOUT 5s\n", 4),
        ("OTHER=1\nexport A2ACLI_TIMEOUT: 5s\n", 2),
    ],
)
def test_each_line_that_sets_nothing_is_reported_with_its_place(run, local, content, line):
    write(local, content)
    assert run("send", "hello").err == f"Warning: {local}, line {line} is not A2ACLI_NAME=value\n"


@pytest.mark.parametrize(
    "line",
    [f'A2ACLI_BEARER="{SECRET}"x"', f"A2ACLI_BEARER='{SECRET}", f'export A2ACLI_X="{SECRET}'],
)
def test_quotes_that_are_not_balanced_are_reported(run, local, line):
    write(local, f"A2ACLI_TIMEOUT=9s\n{line}\n")
    assert run("send", "hello").err == (
        f"Warning: {local}, line 2 is not read: the quotes of its value are not balanced\n"
    )


@pytest.mark.parametrize("content", [f'{{\n"A2ACLI_BEARER": "{SECRET}"\n}}\n', '[{"a": 1}]'])
def test_json_file_is_reported_once(run, local, content):
    write(local, content)
    assert run("send", "hello").err == (
        f"Warning: {local} is not read: it is JSON, not lines of A2ACLI_NAME=value\n"
    )


def test_a_misspelt_name_is_reported_with_the_one_that_is_meant(run, local):
    write(local, "A2ACLI_TIMOUT=5s\nOTHER=1\n")
    env = {"A2ACLI_COLOURS": "1", "A2ACLI_BEARRER": SECRET, "A2ACLI_HISTROY": "1"}
    env |= {"A2ACLI_TOKEN": SECRET, "A2ACLI_AGENT": "http://a.test"}
    done = run("card", "get", env=env)
    meant = {"BEARRER": "BEARER", "HISTROY": "HISTORY", "TIMOUT": "TIMEOUT"}
    meant |= {"TOKEN": "BEARER", "AGENT": "AGENT_CARD"}
    places = {"TIMOUT": f"{local}, line 1: A2ACLI_TIMOUT"}
    assert set(done.err.splitlines()) == {
        f"Warning: {places.get(name, f'A2ACLI_{name} in the environment')} is not a setting of "
        f"holdfast; did you mean A2ACLI_{right}?"
        for name, right in meant.items()
    }


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        ("A2ACLI_FOOBAR=1", ", line 2: A2ACLI_FOOBAR is not a setting of holdfast"),
        (
            "HOLDFAST_BEARER={}",
            ", line 2: HOLDFAST_BEARER is not a setting of holdfast; did you mean A2ACLI_BEARER?",
        ),
        (
            "a2a-cli_api-key={}",
            ", line 2: a2a-cli_api-key is not a setting of holdfast; did you mean A2ACLI_API_KEY?",
        ),
        ("A2ACLI_BEARER:{}=", ", line 2 is not A2ACLI_NAME=value"),
        ("A2ACLI_BEARER", ", line 2 is not A2ACLI_NAME=value"),
        ("HOLDFAST_BEARER: {}", ", line 2 is not A2ACLI_NAME=value"),
        ("{} x\ny z", ", lines 2, 3 are not NAME=value"),
        ("{} x\n" * 7, ", lines 2, 3, 4, 5, 6 and 2 more are not NAME=value"),
        (
            'X="{}\nA2ACLI_BEARER={}\n"',
            ", line 3 is not read: it is inside the quotes that begin in line 2",
        ),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_a_name_or_line_that_sets_nothing_is_reported_once_without_its_value(
    run, local, line, warning, named
):
    write(local, f"OTHER=1\n{line.replace('{}', SECRET)}\n")
    done = run("send", "hello", *(["--config", str(local)] if named else []))
    assert (done.exit, done.err) == (0, f"Warning: {local}{warning}\n")


def test_a_name_in_the_environment_that_resembles_no_setting_is_another_programs(run):
    env = {"HOLDFAST_FOOBAR": "1", "A2ACLI_FOOBAR": "1", "HOLDFAST_TIMEOUT": SECRET}
    assert run("send", "hello", env=env).err == (
        "Warning: HOLDFAST_TIMEOUT in the environment is not a setting of holdfast; did you mean "
        "A2ACLI_TIMEOUT?\n"
    )


def test_a_file_that_is_no_text_is_reported(run, local):
    local.write_bytes(b"A2ACLI_TIMEOUT=5s\xff")
    done = run("send", "hello")
    assert done.exit == 0
    assert done.err.startswith(f"Warning: {local} is not read: ")


def test_a_directory_of_that_name_is_no_file(run, local):
    local.mkdir()
    assert run("send", "hello").err == ""


@pytest.mark.rule("P23")
@posix
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
@pytest.mark.parametrize("how", ["global", "named"])
def test_a_file_that_others_can_open_is_not_the_users_own(run, shared, tmp_path, mode, how):
    path, agent = shared if how == "global" else tmp_path / "agent.env", FakeAgent()
    write(path, f"A2ACLI_OUTPUT=json\n\nA2ACLI_BEARER={SECRET}\n")
    path.chmod(mode)
    env = {} if how == "global" else {"A2ACLI_CONFIG": str(path)}
    done = run("send", "hello", agent=agent, env=env)
    assert done.json["task"]
    assert "authorization" not in agent.received[-1].headers
    assert done.err == (
        f"Warning: {path}, line 3: A2ACLI_BEARER is ignored: other users can open {path}: "
        f"chmod 600 {path}\n"
    )


@posix
def test_a_file_of_another_user_is_read_only_if_it_is_named(local, monkeypatch):
    write(local, "A2ACLI_AGENT_CARD=http://evil.test\n")
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    places = {"home": lambda: Path("/no/such/home"), "directory": lambda: local.parent}
    monkeypatch.setattr(Path, "stat", _owned_by(4322, Path.stat))
    found = read_configuration(None, **places)
    assert found.names == set()
    assert "belongs to another user" in found.problems[0]
    assert "A2ACLI_AGENT_CARD" in read_configuration(local, **places).names


def _owned_by(owner, stat):
    def changed(path, **more):
        found = list(stat(path, **more))
        found[4] = owner
        return os.stat_result(found)

    return changed


def test_neither_home_nor_working_directory_is_needed():
    def nowhere():
        raise FileNotFoundError

    def homeless():
        message = "no home"
        raise RuntimeError(message)

    found = read_configuration(None, home=homeless, directory=nowhere)
    assert (found.local, found.shared, found.problems) == (None, None, ())


# ── config show ──────────────────────────────────────────────────────────────────────────────


def test_config_show_names_every_setting_its_value_and_its_source(run, local):
    write(local, "A2ACLI_TRANSPORT=HTTP+JSON,JSONRPC\n")
    done = run("config", "show", "--poll-interval", "90", env={"A2ACLI_OUTPUT": "text"}, card=None)
    assert done.exit == 0
    assert done.err == ""
    assert done.field("agent-card") == "(none) [default]"
    assert done.field("output") == "text [environment]"
    assert done.field("transport") == f"HTTP+JSON, JSONRPC [{local}]"
    assert done.field("poll-interval") == "1m30s [flag]"
    assert done.field("insecure") == "false [default]"
    assert done.field("Local file") == str(local)
    assert done.field("Global file") == "(none)"
    assert all(": " in line for line in done.out.splitlines())


def test_config_show_sends_nothing_and_writes_nothing(run, local, shared):
    agent = FakeAgent()
    write(local, "A2ACLI_TIMEOUT=12s\n")
    assert run("config", "show", "--timeout", "5s", agent=agent).exit == 0
    assert agent.received == []
    assert local.read_text() == "A2ACLI_TIMEOUT=12s\n"
    assert not shared.exists()


@pytest.mark.parametrize("form", ["text", "json"])
def test_config_show_shows_no_secret(run, local, shared, form):
    write(shared, f"A2ACLI_API_KEY={SECRET}\n")
    write(local, f"A2ACLI_BEARER={SECRET}\n")
    env = {"A2ACLI_BEARER": SECRET, "A2ACLI_SVC_PARAM": f"x-a:{SECRET}\nx-b:{SECRET}"}
    env |= {"A2ACLI_CLIENT_SECRET": SECRET, "A2ACLI_CLIENT_KEY_PASSWORD": SECRET}
    done = run(
        "config", "show", "-o", form, env=env,
        card=f"{AGENT}/card.json?key={SECRET}",
    )  # fmt: skip
    assert done.exit == 0
    assert SECRET not in done.out + done.err
    assert "x-a:***, x-b:***" in done.out
    assert f"{AGENT}/card.json?key=***" in done.out


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_named_pipe_that_does_not_end_is_read_for_a_minute(run, tmp_path, monkeypatch):
    pipe, waits = tmp_path / "settings", []
    os.mkfifo(pipe)

    def wait(_readable, _writable, _failed, seconds):
        waits.append(round(seconds))
        return [], [], []

    monkeypatch.setattr(select, "select", wait)
    done = run("send", "hello", "--config", str(pipe))

    assert (done.exit, set(waits)) == (2, {60})
    assert "it did not end within 60 seconds" in done.err


@pytest.mark.parametrize("form", ["text", "json"])
def test_config_show_names_what_is_no_setting(run, local, form):
    write(local, "A2ACLI_TIMOUT=5s\nOTHER=1\n")
    done = run("config", "show", "-o", form, env={"A2ACLI_COLOURS": "1"})
    assert done.err == (
        f"Warning: {local}, line 1: A2ACLI_TIMOUT is not a setting of holdfast; did you mean "
        "A2ACLI_TIMEOUT?\n"
        "Warning: A2ACLI_COLOURS in the environment is not a setting of holdfast\n"
    )


def test_help_shows_what_a_file_states(run, shared):
    write(shared, f"A2ACLI_TIMEOUT=12s\nA2ACLI_BEARER={SECRET}\n")
    told = "".join(run("send", "--help", card=None).out.split())
    assert f"A2ACLI_TIMEOUT;default:12s,from{shared}]" in told
    assert f"A2ACLI_BEARER;default:***,from{shared}]" in told
    assert SECRET not in told


def test_the_command_to_continue_keeps_the_named_file(run, tmp_path):
    named = tmp_path / "agent.env"
    write(named, "A2ACLI_ASYNC=1\n")
    agent = FakeAgent(lambda _: works_forever())
    done = run("send", "hello", "--config", str(named), agent=agent)
    assert (
        f"Hint: holdfast task get --wait task-1 --agent-card {AGENT} --config {named}" in done.err
    )


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("CONCURRENCY", "pass the flag --concurrency"),
        ("RATE", "pass the flag --rate"),
        ("JOURNAL", "pass the flag --journal"),
        ("INPUT", "pass the flag --input"),
        ("KEY", "pass the flag --key, or did you mean A2ACLI_API_KEY?"),
    ],
)
def test_variable_of_an_option_without_one_is_reported_with_the_flag(run, name, advice):
    done = run("send", "hello", env={f"A2ACLI_{name}": "1"})
    assert (
        f"Warning: A2ACLI_{name} in the environment is not a setting of holdfast; {advice}\n"
        in done.err
    )
