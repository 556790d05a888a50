"""``task list`` and ``task download``: pages, filters, and files under names that do no harm."""

import json
import os
import re
import shutil
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.kit.cli_harness import AGENT, holdfast

from holdfast._cli.agent.download import files_of, safe_name
from holdfast.errors import A2AConnectionError, LimitExceededError, NetworkPolicyError
from holdfast.extend import HttpReply
from holdfast.testing import FakeAgent, FakeNetwork, Respond, asks, completes, works_forever
from holdfast.types import Artifact, Part, Task

# ── Names ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("Größe 日本.txt", "Größe 日本.txt"),
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("C:\\Windows\\win.ini", "win.ini"),
        ("a/../..", "file"),
        ("..", "file"),
        (".", "file"),
        ("", "file"),
        ("dir/", "file"),
        (".env", "_env"),
        (".bashrc", "_bashrc"),
        ("-rf", "_rf"),
        ("~root", "_root"),
        ("a\x00b\n\x1b[31mc", "ab_[31mc"),
        ("con", "_con"),
        ("NUL.txt", "_NUL.txt"),
        ("COM¹", "_COM¹"),
        ("lpt³.log", "_lpt³.log"),
        ("con .txt", "_con .txt"),
        ("Aux  ", "_Aux"),
        ("CONIN$", "_CONIN$"),
        ("conout$.txt", "_conout$.txt"),
        ("COM10", "COM10"),
        ("contents.txt", "contents.txt"),
        ("ends . .", "ends"),
        ("a:b|c?.txt", "a_b_c_.txt"),
        ("ends. ", "ends"),
        ("\u202etxt.exe", "txt.exe"),
        ("a\u200b\U000e0041.txt", "a.txt"),
    ],
)
def test_a_name_is_made_harmless(name, safe):
    assert safe_name(name) == safe


@given(st.text())
@example("x" * 300 + ".tar")
@example("日" * 300)
@example("." * 300)
@example("x" * 199 + " y")
def test_any_name_becomes_one_name_in_one_directory(name):
    safe = safe_name(name)
    assert safe
    assert os.path.basename(safe) == safe  # noqa: PTH119  what the system itself makes of it
    assert safe not in {".", ".."}
    assert safe[0] not in ".-~"
    assert safe[-1] not in ". "
    assert len(safe.encode()) <= 255
    assert not set(safe) & set('/\\\0\n:<>"|?*')


def named(*artifacts):
    return [file.name for file in files_of(Task(id="t", artifacts=artifacts))]


def artifact(*parts, name=None, artifact_id="a1"):
    return Artifact(artifact_id=artifact_id, name=name, parts=parts)


def test_what_has_no_name_is_called_by_its_artifact_and_its_kind():
    parts = (
        Part(text="x"),
        Part(data={"n": 1}),
        Part(raw=b"x"),
        Part(raw=b"x", media_type="image/png"),
        Part(url="https://e.test/a/b.csv?x=1"),
        Part(url="https://e.test"),
    )
    assert named(artifact(*parts, name="result")) == [
        "result.txt", "result.json", "result.bin", "result.png", "b.csv", "result-2.bin",
    ]  # fmt: skip
    assert named(artifact(Part(text="x"), name="notes.md")) == ["notes.md"]
    assert named(artifact(Part(text="x"), artifact_id="../up")) == ["_._up.txt"]


def test_no_two_files_have_one_name():
    parts = [Part(raw=b"", filename=name) for name in ("a.txt", "A.TXT", "x/a.txt", "a-2.txt")]
    assert named(artifact(*parts)) == ["a.txt", "A-2.TXT", "a-3.txt", "a-2-2.txt"]


def test_text_in_several_parts_is_one_file_unless_it_is_named():
    parts = (
        Part(text="a"), Part(text="b"), Part(data=None), Part(text="c"),
        Part(text="d", filename="d.md"), Part(text="e"),
    )  # fmt: skip
    files = list(files_of(Task(id="t", artifacts=(artifact(*parts),))))
    assert [(file.name, file.content) for file in files] == [
        ("a1.txt", b"ab"), ("a1.json", b"null\n"), ("a1-2.txt", b"c"), ("d.md", b"de"),
    ]  # fmt: skip


# ── Saving ───────────────────────────────────────────────────────────────────────────────────


def having(*parts, name="result"):
    agent = FakeAgent(completes(artifact(*parts, name=name)))
    holdfast("send", "hello", agent=agent)
    return agent


def download(agent, directory, *words, **more):
    return holdfast("task", "download", "task-1", "--to", str(directory), *words, agent=agent,
                        **more)  # fmt: skip


def found(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_files_texts_and_data_are_saved(tmp_path):
    raw = bytes(range(256))
    agent = having(Part(raw=raw, filename="../x.bin"), Part(text="Größe"), Part(data={"n": 1}))
    done = download(agent, tmp_path / "new" / "er")
    assert (done.exit, done.err) == (0, "")
    assert found(tmp_path / "new" / "er") == {
        "x.bin": raw, "result.txt": "Größe".encode(), "result.json": b'{\n  "n": 1\n}\n',
    }  # fmt: skip
    assert done.field("Task ID") == "task-1"
    assert done.field("State") == "TASK_STATE_COMPLETED"
    saved = re.findall(r"^Saved: (.*)$", done.out, re.MULTILINE)
    assert saved == [str(tmp_path / "new" / "er" / n)
                     for n in ("x.bin", "result.txt", "result.json")]  # fmt: skip


def test_the_document_is_the_task_and_says_where_each_part_is(tmp_path):
    agent = having(Part(text="a", metadata={"k": 1}), Part(text="b"), Part(data=1))
    done = download(agent, tmp_path, "-o", "json")
    metadata = [part["metadata"] for part in done.json["artifacts"][0]["parts"]]
    text, data = str(tmp_path / "result.txt"), str(tmp_path / "result.json")
    assert metadata == [
        {"k": 1, "holdfast/savedAs": text},
        {"holdfast/savedAs": text},
        {"holdfast/savedAs": data},
    ]


def test_nothing_is_overwritten_unless_asked_for(tmp_path):
    agent = having(Part(text="new"), Part(data=1))
    (tmp_path / "result.json").write_text("old")
    done = download(agent, tmp_path, "-o", "json")
    assert (done.exit, done.error["code"]) == (1, "HOLDFAST_ERR_FILE_EXISTS")
    assert "--overwrite" in done.error["hint"]
    assert found(tmp_path) == {"result.json": b"old"}
    assert download(agent, tmp_path, "--overwrite").exit == 0
    assert found(tmp_path) == {"result.json": b"1\n", "result.txt": b"new"}


def test_what_a_link_leads_to_is_never_written(tmp_path):
    agent = having(Part(text="new"))
    outside = tmp_path / "outside"
    outside.write_text("old")
    directory = tmp_path / "here"
    directory.mkdir()
    (directory / "result.txt").symlink_to(outside)
    assert download(agent, directory).exit == 1
    assert download(agent, directory, "--overwrite").exit == 0
    assert outside.read_text() == "old"
    assert not (directory / "result.txt").is_symlink()
    assert found(directory) == {"result.txt": b"new"}


@pytest.mark.skipif(os.name == "nt", reason="there are no permissions of this kind here")
@pytest.mark.parametrize("words", [[], ["--overwrite"]])
def test_a_file_may_be_read_by_those_who_may_read_new_files(words, tmp_path):
    (tmp_path / "usual").touch()
    assert download(having(Part(text="new")), tmp_path, *words).exit == 0
    assert (tmp_path / "result.txt").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("below", ["", "below"])
def test_a_file_in_place_of_the_directory_is_a_usage_error(tmp_path, below):
    (tmp_path / "file").write_text("")
    done = download(having(Part(text="x")), tmp_path / "file" / below, "-o", "json")
    assert (done.exit, done.error["code"]) == (2, "A2ACLI_ERR_USAGE")
    assert f"{str(tmp_path / 'file')!r} is a file; name a directory" in done.error["message"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--max-files", "2"], "the task has more than 2 files; nothing was saved"),
        (["--max-bytes", "5"], "the task has 6 bytes of files, more than 5; nothing was saved"),
    ],
)
def test_more_than_was_allowed_is_not_begun(words, says, tmp_path):
    agent = having(*(Part(raw=b"xx", filename=name) for name in "abc"))
    done = download(agent, tmp_path, *words)
    assert done.exit == 1
    assert f"Error: {says}" in done.err
    assert f"Hint: raise {words[0]} if that is right" in done.err
    assert found(tmp_path) == {}
    assert download(agent, tmp_path, words[0], "6").exit == 0


def test_files_of_one_name_are_counted_before_they_are_distinguished(tmp_path):
    agent = having(*(Part(raw=b"", filename="a") for _ in range(5000)))
    assert "more than 1000 files" in download(agent, tmp_path).err


def test_what_the_disk_has_no_room_for_is_not_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3))
    agent = having(Part(raw=b"xxx", filename="a"), Part(raw=b"xxxx", filename="b"))
    done = download(agent, tmp_path)
    assert done.exit == 1
    assert "b cannot be written: No space left on device" in done.err
    assert found(tmp_path) == {"a": b"xxx"}


def test_a_fifo_is_neither_replaced_nor_sent(tmp_path):
    os.mkfifo(tmp_path / "a")
    done = download(having(Part(raw=b"x", filename="a")), tmp_path, "--overwrite")
    assert done.exit == 1
    assert "it is a FIFO, a device or the like" in done.err
    for flag in ("--file", "--data"):
        for path in (tmp_path / "a", "/dev/zero"):
            sent = holdfast("send", flag, str(path), agent=FakeAgent())
            assert sent.exit == 2
            assert f"{flag} {path} cannot be read: it is not a regular file" in sent.err


def test_a_task_with_nothing_to_save_is_reported(tmp_path):
    agent = FakeAgent(works_forever())
    holdfast("send", "hello", "--async", agent=agent)
    done = download(agent, tmp_path / "new")
    assert done.exit == 0
    assert "task task-1 has no artifacts to save" in done.err
    assert "there may be more to come" in done.err
    assert not (tmp_path / "new").exists()


class Web:
    """The fake agent's network, and files beside it."""

    def __init__(self, agent, files):
        self._network = FakeNetwork(agent)
        self._files = files
        self.asked = []

    async def request(self, request):
        if request.url not in self._files:
            return await self._network.request(request)
        self.asked.append(request)
        reply = self._files[request.url]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def stream(self, request):
        return self._network.stream(request)

    async def close(self):
        await self._network.close()


def fetched(tmp_path, *urls, files, words=(), **more):
    agent = having(*(Part(url=url) for url in urls))
    web = Web(agent, files)
    return web, download(agent, tmp_path, *words, engine=lambda **_: web, **more)


def test_what_is_named_by_its_address_is_fetched_without_credentials(tmp_path):
    web, done = fetched(
        tmp_path,
        "https://files.test/a.pdf?sig=x",
        f"{AGENT}/b.pdf",
        files={
            "https://files.test/a.pdf?sig=x": HttpReply(status=200, body=b"A"),
            f"{AGENT}/b.pdf": HttpReply(status=200, body=b"B"),
        },
        words=["--bearer", "s3cret"],
    )
    assert done.exit == 0
    assert found(tmp_path) == {"a.pdf": b"A", "b.pdf": b"B"}
    assert "s3cret" not in json.dumps([dict(request.headers) for request in web.asked])
    elsewhere, own = web.asked
    assert elsewhere.reach.refuses("127.0.0.1")
    assert elsewhere.reach.refuses("169.254.169.254")
    assert not elsewhere.reach.refuses("93.184.216.34")
    assert own.reach is None
    assert elsewhere.limits.body == 100 * 1024 * 1024


def test_what_is_fetched_counts_towards_the_sum(tmp_path):
    files = {f"https://e.test/{n}": HttpReply(status=200, body=b"xxx") for n in range(2)}
    files["https://e.test/2"] = LimitExceededError("too large", which="body", bound=2)
    web, done = fetched(tmp_path, *files, files=files, words=["--max-bytes", "8"])
    assert [request.limits.body for request in web.asked] == [8, 5, 2]
    assert "2 is not saved: https://e.test/2 has more than 2 bytes; raise --max-byt" in done.err


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://e.test/x", "/etc/passwd", "https://me:pw@e.test/x", ""]
)
def test_what_is_no_address_of_the_web_is_not_fetched(tmp_path, url):
    web, done = fetched(tmp_path, url, files={})
    assert done.exit == 1
    assert "is not an http:// or https:// URL" in done.err
    assert "pw" not in done.err
    assert web.asked == []
    assert found(tmp_path) == {}


def test_what_cannot_be_fetched_leaves_the_rest_alone(tmp_path):
    files = {
        "https://e.test/1": HttpReply(status=404),
        "https://e.test/2": A2AConnectionError("the connection was refused", failure="refused"),
        "https://e.test/3": NetworkPolicyError("leads to 10.0.0.1", address="10.0.0.1"),
        "https://e.test/4": HttpReply(status=200, body=b"4"),
        "https://e.test/5": HttpReply(status=302, headers={"location": "https://e.test/4"}),
    }
    _, done = fetched(tmp_path, *files, files=files)
    assert done.exit == 1
    assert found(tmp_path) == {"4": b"4", "5": b"4"}
    for words in ("1 is not saved: https://e.test/1 answered HTTP 404", "2 is not saved: the con",
                  "3 is not saved: leads to 10.0.0.1"):  # fmt: skip
        assert f"Warning: {words}" in done.err
    assert "Error: 3 of 5 files of task task-1 could not be fetched" in done.err
    assert "Code: HOLDFAST_ERR_DOWNLOAD" in done.err


def test_a_document_of_an_error_stands_alone_and_what_was_saved_is_reported_beside_it(tmp_path):
    files = {"https://e.test/1": HttpReply(status=404),
             "https://e.test/2": HttpReply(status=200, body=b"2")}  # fmt: skip
    _, done = fetched(tmp_path, *files, files=files, words=["-o", "json"])
    assert done.error["code"] == "HOLDFAST_ERR_DOWNLOAD"
    assert f"Saved: {tmp_path / '2'}\n" in done.err


def test_an_unknown_task_is_reported_by_its_error(tmp_path):
    done = download(FakeAgent(), tmp_path, "-o", "json")
    assert (done.exit, done.error["code"]) == (1, "TaskNotFoundError")


# ── Lists ────────────────────────────────────────────────────────────────────────────────────


def busy():
    """An agent with five tasks: three completed, two of them in one context, and two that ask."""
    agent = FakeAgent(lambda turn: asks("?") if turn.message.text == "ask" else completes("x"))
    for text in ("a", "ask", "b", "ask"):
        holdfast("send", text, "--async", agent=agent)
    holdfast("send", "c", "--context-id", "context-2", agent=agent)
    return agent


def listed(agent, *words):
    done = holdfast("task", "list", *words, agent=agent)
    assert done.exit == 0
    return re.findall(r"^Task ID: (.*)$", done.out, re.MULTILINE)


def test_tasks_are_listed_with_identifiers_and_states():
    agent = busy()
    done = holdfast("task", "list", agent=agent)
    assert done.exit == 0
    assert done.out.count("Task ID: ") == done.out.count("Context ID: ") == 5
    assert done.out.count("State: TASK_STATE_INPUT_REQUIRED\nStatus message: ?\n") == 2
    assert done.out.endswith("Total: 5\nNext page token: (none)\n")
    assert "Artifact" not in done.out
    assert "Artifact: " in holdfast("task", "list", "--with-artifacts", agent=agent).out


def test_tasks_are_listed_by_state_context_and_time():
    agent = busy()
    assert len(listed(agent, "--status", "completed")) == 3
    assert listed(agent, "--status", "TASK_STATE_INPUT_REQUIRED") == listed(
        agent, "--status", "input-required"
    )
    assert len(listed(agent, "--context-id", "context-2")) == 2
    assert len(listed(agent, "--context-id", "context-2", "--status", "input-required")) == 0
    assert listed(agent, "--since", "2999-01-01") == []
    assert len(listed(agent, "--since", "2000-01-01T00:00:00+01:00")) == 5


def test_an_empty_list_says_so():
    done = holdfast("task", "list", agent=FakeAgent())
    assert done.out == "Tasks: (none)\nNext page token: (none)\n"


def test_pages_lead_to_one_another():
    agent = busy()
    every = listed(agent)
    words, pages = [], []
    while True:
        done = holdfast("task", "list", "--limit", "2", *words, agent=agent)
        pages.append(re.findall(r"^Task ID: (.*)$", done.out, re.MULTILINE))
        token = done.field("Next page token")
        if token == "(none)":
            assert done.err == ""
            break
        assert f"Hint: the next page: --page-token {token}\n" in done.err
        words = ["--page-token", token]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [task for page in pages for task in page] == every
    assert listed(agent, "--limit", "2", "--all") == every


def test_a_page_is_one_document_of_the_protocols_own():
    agent = busy()
    page = holdfast("task", "list", "--limit", "2", "-o", "json", agent=agent).json
    assert page.keys() == {"tasks", "nextPageToken", "pageSize", "totalSize"}
    every = holdfast("task", "list", "--limit", "2", "--all", "-o", "json", agent=agent).json
    assert [task["id"] for task in every["tasks"]][:2] == [task["id"] for task in page["tasks"]]
    assert (len(every["tasks"]), every["nextPageToken"], every["totalSize"]) == (5, "", 5)
    empty = holdfast("task", "list", "-o", "json").json
    assert (empty["tasks"], empty["nextPageToken"]) == ([], "")


@pytest.mark.parametrize("words", [["--all", "--limit", "2"], []])
def test_tasks_are_lines_with_the_flag(words):
    done = holdfast("task", "list", "-o", "json", "--stream", *words, agent=busy())
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == listed(busy())


def test_a_list_that_fails_is_reported():
    agent = FakeAgent()
    agent.inject(Respond(status=403), on="ListTasks")
    done = holdfast("task", "list", "-o", "json", agent=agent)
    assert (done.exit, done.error["code"]) == (4, "A2ACLI_ERR_AUTH_FAILED")
