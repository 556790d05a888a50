"""What a settings file may decide that was merely found; an attacker wrote the directory."""

import os
import re

import click
import pytest
from tests.kit.authorization_server import ISSUER, FakeAuthorizationServer
from tests.kit.cli_harness import AGENT, PLAIN, holdfast
from tests.kit.paths import ROOT

from holdfast._cli.app import app
from holdfast._cli.options.configuration import RULES
from holdfast._cli.options.parameters import SettingOption
from holdfast.testing import FakeAgent, FakeNetwork

PAGE = ROOT / "docs" / "reference" / "configuration.md"
SECRET = "canary-77aa0c1e"

posix = pytest.mark.skipif(os.name != "posix", reason="owners, modes and kinds of files")


@pytest.fixture
def files(own, found):
    """Both, the user's own first."""
    return own, found


@pytest.fixture
def run(found, own):
    """Run ``holdfast`` in that working directory."""

    def run(*words, **more):
        return holdfast(*words, home=own.parents[2], directory=found.parent, **more)

    return run


def sources(done):
    return {one["variable"]: one["source"] for one in done.json["settings"]}


# ── The table ────────────────────────────────────────────────────────────────────────────────


def variables(command):
    for param in command.params:
        if isinstance(param, SettingOption):
            yield param.variable
    if isinstance(command, click.Group):
        for below in command.commands.values():
            yield from variables(below)


def test_the_table_has_each_setting_and_nothing_else():
    without_flag = {"A2ACLI_CLIENT_SECRET", "A2ACLI_CLIENT_KEY_PASSWORD"}
    assert {*variables(app)} | without_flag == RULES.keys()


def test_config_show_has_each_setting_of_the_documentation(run):
    documented = re.findall(r"^\| `(A2ACLI_\w+)` \|", PAGE.read_text(), re.MULTILINE)
    shown = run("config", "show", "-o", "json", card=None).json["settings"]
    assert sorted(one["variable"] for one in shown) == sorted(documented)


def test_config_show_writes_each_switch_in_lower_case(run):
    done = run("config", "show", card=None)
    assert done.field("allow-unadvertised-pkce") == "false [default]"
    assert not re.search("True|False", done.out)


def test_the_documentation_has_the_table():
    rows = re.findall(r"^\| `(A2ACLI_\w+)` \| (.+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    in_words = {True: "yes", False: "no"}
    assert {name: (own, found) for name, own, found in rows} == {
        name: (
            in_words[rule.own],
            f"only to {rule.strictness.only}" if rule.strictness else in_words[rule.found],
        )
        for name, rule in RULES.items()
    }


HOSTILE = {
    "POLL_INTERVAL": "1ms",
    "TIMEOUT": "999h",
    "INSECURE": "1",
    "NO_CACHE": "0",
    "REQUIRE_SIGNATURE": "0",
    "FLOW": "client-credentials",
    "CLIENT_AUTH": "none",
    "SVC_PARAM": "x:1",
    "METADATA": "{}",
    "PUSH_CREDENTIALS": "Bearer x",
    "DEBUG": "1",
}


@pytest.mark.rule("P23")
def test_a_found_file_decides_nothing_about_trust_identity_programs_and_files(run, found, own):
    strict = "A2ACLI_REQUIRE_SIGNATURE=1\nA2ACLI_NO_CACHE=1\n"
    own.write_text(f"{strict}A2ACLI_CARD_KEYS=https://keys.test\n")
    names = [name for name, rule in RULES.items() if not rule.found]
    value = {name: HOSTILE.get(name.removeprefix("A2ACLI_"), "evil") for name in names}
    found.write_text("\n" + "".join(f"export {name}={value[name]}\n" for name in names))
    found.chmod(0o600)  # whoever wrote it could say so
    done = run("config", "show", "-o", "json")

    from_file = {name for name, source in sources(done).items() if source == "file"}
    assert from_file == {
        "A2ACLI_REQUIRE_SIGNATURE",
        "A2ACLI_NO_CACHE",
        "A2ACLI_CARD_KEYS",
    }
    assert "evil" not in done.out
    for line, name in enumerate(names, start=2):
        assert done.err.count(f"Warning: {found}, line {line}: {name} is ignored: ") == 1
    assert done.err.count("\n") == len(names)


def test_a_found_file_names_the_agent_and_how_output_looks(run, found):
    found.write_text(
        f"A2ACLI_AGENT_CARD={AGENT}\nA2ACLI_OUTPUT=json\nA2ACLI_TRANSPORT=HTTP+JSON\n"
    )
    agent = FakeAgent()
    done = run("send", "hello", card=None, agent=agent)
    assert (done.json["task"]["id"], done.err) == ("task-1", "")
    assert "/rest" in agent.received[-1].url


@pytest.mark.rule("P23")
@pytest.mark.parametrize(
    ("name", "says", "counts", "is_ignored"),
    [
        ("TIMEOUT", ("", "10s"), "10s", False),
        ("TIMEOUT", ("", "20m"), "15m", True),
        ("TIMEOUT", ("30m", "20m"), "20m", False),
        ("TIMEOUT", ("5s", "10s"), "5s", True),
        ("POLL_INTERVAL", ("", "5s"), "5s", False),
        ("POLL_INTERVAL", ("10s", "5s"), "10s", True),
        ("REQUIRE_SIGNATURE", ("", "1"), "true", False),
        ("REQUIRE_SIGNATURE", ("1", "0"), "true", True),
        ("REQUIRE_SIGNATURE", ("1", ""), "true", False),
        ("NO_CACHE", ("", "1"), "true", False),
        ("NO_CACHE", ("1", "0"), "true", True),
        ("INSECURE", ("1", "0"), "false", False),
        ("INSECURE", ("0", "1"), "false", True),
        ("INSECURE", ("1", "1"), "true", False),
    ],
)
def test_a_found_file_may_only_tighten(files, name, says, counts, is_ignored):
    own, found = files
    for path, value in zip(files, says, strict=True):
        path.write_text(f"A2ACLI_{name}={value}\n")
    done = holdfast("config", "show", "-o", "json", home=own.parents[2], directory=found.parent)
    values = {one["variable"]: one["value"] for one in done.json["settings"]}
    assert values[f"A2ACLI_{name}"] == counts
    assert (f"A2ACLI_{name} is ignored" in done.err) is is_ignored


def test_a_wrong_value_of_the_users_own_is_not_replaced_by_a_found_one(run, found, own):
    own.write_text("A2ACLI_REQUIRE_SIGNATURE=ja\n")
    found.write_text("A2ACLI_REQUIRE_SIGNATURE=0\n")
    done = run("send", "hello")
    assert done.exit == 2
    assert f"A2ACLI_REQUIRE_SIGNATURE in {own}, line 1: 'ja' is neither" in done.err


def test_a_found_file_may_require_a_signature(run, found):
    found.write_text("A2ACLI_REQUIRE_SIGNATURE=1\n")
    agent = FakeAgent()
    assert run("send", "hello", agent=agent).exit == 2
    assert agent.received == []


@pytest.mark.rule("P23")
def test_what_is_ignored_is_reported_once_also_with_a_usage_error(run, found):
    found.write_text("A2ACLI_CLIENT_ID=evil\n")
    told = f"Warning: {found}, line 1: A2ACLI_CLIENT_ID is ignored: "
    for words in (["send", "hello"], ["auth", "login"], ["send", "hello", "-o", "json"]):
        done = run(*words)
        assert done.err.count(told) == 1
        assert done.err.count("CLIENT_ID is ignored") == 1


# ── What a hostile directory was good for ────────────────────────────────────────────────────


def test_login_sends_no_file_to_hosts_named_in_the_working_directory(run, found, tmp_path):
    secret = tmp_path / "id_ed25519"
    secret.write_text(f"{SECRET}\n")
    found.write_text(
        f"A2ACLI_AGENT_CARD={AGENT}\nA2ACLI_FLOW=client-credentials\nA2ACLI_CLIENT_ID=me\n"
        f"A2ACLI_ISSUER={ISSUER}\nA2ACLI_CLIENT_SECRET_FILE={secret}\n"
    )
    server = FakeAuthorizationServer(FakeNetwork(FakeAgent()))
    done = run("auth", "login", card=None, engine=lambda *, verify: server)
    assert done.exit == 2
    assert server.requests == []
    for line, name in enumerate(("FLOW", "CLIENT_ID", "ISSUER", "CLIENT_SECRET_FILE"), start=2):
        assert f"{found}, line {line}: A2ACLI_{name} is ignored" in done.err


@pytest.mark.rule("P23")
def test_no_program_of_the_working_directory_is_run(run, found):
    kit = found.parent / "kit"
    (kit / "tests" / "compatibility").mkdir(parents=True)
    (kit / "run_tck.py").write_text(f"open({str(found.parent / 'owned')!r}, 'w')\n")
    found.write_text(f"A2ACLI_TCK={kit}\n")
    done = run("conformance")
    assert done.exit == 1
    assert "the A2A TCK was not found: no directory is named" in done.err
    assert not (found.parent / "owned").exists()


def test_the_context_of_a_message_is_the_callers(run, found):
    found.write_text('A2ACLI_CONTEXT_ID=evil\nA2ACLI_TASK_ID=evil\nA2ACLI_METADATA={"a": 1}\n')
    agent = FakeAgent()
    assert run("send", "hello", agent=agent).exit == 0
    assert all(b"evil" not in one.body and b'"metadata"' not in one.body for one in agent.received)


# ── Files that are no files ──────────────────────────────────────────────────────────────────


@posix
@pytest.mark.parametrize("kind", ["fifo", "link to a fifo", "link to a device"])
def test_a_found_file_that_is_no_file_is_not_opened(run, found, kind):
    target = found if kind == "fifo" else found.with_name("target")
    if kind == "link to a device":
        found.symlink_to("/dev/zero")
    else:
        os.mkfifo(target)
    if kind == "link to a fifo":
        found.symlink_to(target)
    done = run("send", "hello")
    assert (done.exit, done.err) == (
        0,
        f"Warning: {found} is not read: it is not a regular file\n",
    )


@posix
@pytest.mark.parametrize("kind", ["directory", "loop", "dangling"])
def test_a_name_that_leads_to_no_file_is_passed_over(run, found, kind):
    if kind == "directory":
        found.mkdir()
    else:
        found.symlink_to(found if kind == "loop" else "nowhere")
    (found.parents[1] / ".env").write_text("A2ACLI_OUTPUT=json\n")
    done = run("send", "hello")
    assert (done.json["task"]["id"], done.err) == ("task-1", "")


@pytest.mark.rule("P23")
def test_a_link_to_the_users_own_file_is_a_found_file(run, found, own):
    own.write_text(f"A2ACLI_BEARER={SECRET}\n")
    elsewhere = own.rename(found.with_name("own"))
    found.symlink_to(elsewhere)
    agent = FakeAgent()
    done = run("send", "hello", agent=agent)
    assert "A2ACLI_BEARER is ignored" in done.err
    assert all("authorization" not in one.headers for one in agent.received)


def test_the_global_file_is_no_found_file_below_its_own_directory(own):
    own.write_text(f"A2ACLI_BEARER={SECRET}\n")
    agent = FakeAgent()
    done = holdfast("send", "hello", home=own.parents[2], directory=own.parent, agent=agent)
    assert done.err == PLAIN
    assert agent.received[-1].headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize("size", [64 * 1024 + 1, 1 << 30])
def test_a_file_is_read_up_to_a_bound(run, found, size):
    found.touch()
    os.truncate(found, size)
    done = run("send", "hello")
    assert (done.exit, done.err) == (
        0,
        f"Warning: {found} is not read: it has more than 65536 bytes\n",
    )


@pytest.mark.rule("P28")
def test_a_hostile_file_says_little_and_steers_no_terminal(run, found):
    junk = "".join(f"A2ACLI_TIMEOU{n}=1\n" for n in range(500)) + "A2ACLI_X y\n" * 500
    found.write_text(f"{junk}A2ACLI_BEARE\x1b[2J=1\n")
    done = run("send", "hello")
    assert done.exit == 0
    assert done.err.count("\n") <= 61
    assert f"{found} has 491 more such lines" in done.err
    assert "\x1b" not in done.err
    found.write_text("A2ACLI_AGENT_CARD='x\x1b]0;owned\x07\u202e\u061c\u200b\U000e0041'\n")
    shown = re.sub(r"\s+", "", run("send", "--help", card=None).out)
    assert r"x\x1b]0;owned\x07\u202e\u061c\u200b\U000e0041" in shown
    assert not set(shown) & set("\x1b\x07\u202e\u061c\u200b\U000e0041")


@posix
def test_a_named_pipe_may_be_a_settings_file():
    reading, writing = os.pipe()
    os.write(writing, f"A2ACLI_BEARER={SECRET}\n".encode())
    os.close(writing)
    agent = FakeAgent()
    try:
        done = holdfast("send", "hello", "--config", f"/dev/fd/{reading}", agent=agent)
    finally:
        os.close(reading)
    assert done.exit == 0, done.err
    assert agent.received[-1].headers["authorization"] == f"Bearer {SECRET}"


@posix
def test_a_named_file_may_be_the_null_device(run, found):
    found.write_text("A2ACLI_TIMEOUT=1s\n")
    done = run("config", "show", "-o", "json", "--config", "/dev/null")
    assert sources(done)["A2ACLI_TIMEOUT"] == "default"


# ── What weakens, and where that is said ─────────────────────────────────────────────────────


@pytest.mark.rule("P33")
def test_insecure_names_its_source_each_time(run, own):
    own.write_text("\nA2ACLI_INSECURE=1\n")
    for words, env, where in (
        (["--insecure"], {}, ""),
        ([], {"A2ACLI_INSECURE": "1"}, " (A2ACLI_INSECURE in the environment)"),
        ([], {}, f" (A2ACLI_INSECURE in {own}, line 2)"),
    ):
        for form in ("text", "json"):
            done = run("send", "hello", *words, "-o", form, env=env)
            told = f"Warning: --insecure: TLS certificates are not verified{where}; "
            assert done.err.count(told) == 1


@pytest.mark.parametrize("value", ["0", ""])
def test_the_environment_may_turn_a_signature_off_and_that_is_reported(run, own, value):
    own.write_text("A2ACLI_REQUIRE_SIGNATURE=1\n")
    env = {"A2ACLI_REQUIRE_SIGNATURE": value}
    done = run("send", "hello", env=env)
    assert done.exit == 0
    assert done.err == (
        "Warning: A2ACLI_REQUIRE_SIGNATURE in the environment turns off what "
        f"{own}, line 1 asks for: cards need no signature\n"
    )


def test_the_clients_secret_is_a_setting_of_the_environment_and_of_the_users_own_file(run, own):
    for env in ({"A2ACLI_CLIENT_SECRET": SECRET}, {}):
        own.write_text("" if env else f"A2ACLI_CLIENT_SECRET={SECRET}\n")
        done = run("config", "show", env=env)
        place = "environment" if env else str(own)
        assert (done.field("client-secret"), done.err) == (f"*** [{place}]", "")
        assert SECRET not in done.out
        assert run("send", "hello", env=env).err == ""


def test_a_login_says_who_let_it_go_to_an_authorization_server(run, own):
    own.write_text(f"A2ACLI_ISSUER={ISSUER}\nA2ACLI_CLIENT_ID=me\n")
    server = FakeAuthorizationServer(FakeNetwork(FakeAgent()))
    done = run("auth", "login", engine=lambda *, verify: server)
    assert done.exit == 0, done.err
    assert f"A2ACLI_ISSUER in {own}, line 1 allows the login to use {ISSUER}" in done.err
