"""Pages of the documentation: their blocks of code, which run as they stand, and their links."""

import ast
import codeop
import inspect
import re
import shlex

from tests.kit.paths import ROOT

__all__ = ["ROOT", "Page", "anchors", "execute", "shows"]


async def execute(fragment, **names):
    """Runs a fragment that awaits at its top level, and gives the names that it leaves."""
    import holdfast

    code = compile(fragment, "<page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = {"holdfast": holdfast, **names}
    result = eval(code, names)
    if inspect.isawaitable(result):
        await result
    return names


def shows(shown, printed):
    """Whether a page shows what was printed; … stands for any text."""
    lines = [[line.rstrip() for line in text.splitlines()] for text in (shown, printed)]
    expected, actual = ("\n".join(each).strip() for each in lines)
    return re.fullmatch(re.escape(expected).replace("…", ".*"), actual, re.DOTALL) is not None


class Page:
    """A page, by its path below the root of the repository."""

    def __init__(self, path):
        self.path = ROOT / path
        self.text = self.path.read_text()
        self.blocks = re.findall(r"```python\n(.*?)```", self.text, flags=re.DOTALL)
        self.texts = re.findall(r"```text\n(.*?)```", self.text, flags=re.DOTALL)

    def block(self, text):
        """The block that has a text in it."""
        [block] = [block for block in self.blocks if text in block]
        return block

    def output(self, command):
        """The output that the page shows below a block of commands that ends with this one."""
        pairs = re.findall(r"```console\n([^`]*)```\n\n```text\n(.*?)```", self.text, re.DOTALL)
        [output] = [shown for commands, shown in pairs if commands.endswith(f"$ {command}\n")]
        return output

    def output_below(self, block):
        """The output that the page shows below a block of code."""
        return re.match(r"```\n\n```text\n(.*?)```", self.text.split(block)[1], re.DOTALL)[1]

    def check_complete(self, *texts):
        """Each of the texts is in one block, and each block has one of them."""
        assert sorted(self.block(text) for text in texts) == sorted(self.blocks)

    def check_pastes(self, *files):
        """Each block can be pasted, line by line, into ``python -m asyncio``.

        There, ``input()`` would read the line that follows: only the last statement may call it.

        Blocks that have one of the texts of `files` are files, and are not checked.
        """
        compiler = codeop.CommandCompiler()
        compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        for block in self.blocks:
            if any(text in block for text in files):
                continue
            lines, reads_input = [], False
            for line in [*block.splitlines(), ""]:
                lines.append(line)
                if compiler("\n".join(lines)) is not None:
                    assert not (reads_input and any(lines)), block
                    reads_input = bool(re.search(r"(?<![\w.])input\(", "\n".join(lines)))
                    lines = []
            assert not any(lines), block

    def check_commands(self, *, at_least):
        """Each command line of the page names a command of `holdfast`, and options that it has."""
        import click

        from holdfast._cli.app import app

        text = self.text.replace("\\\n", "")
        lines = re.findall(r"^\$ holdfast (.*)$", text, flags=re.MULTILINE)
        assert len(lines) >= at_least
        for line in lines:
            words, command = shlex.split(line, comments=True), app
            while isinstance(command, click.Group) and not words[0].startswith("-"):
                name = words.pop(0)
                if words and f"{name} {words[0]}" in command.commands:
                    name += f" {words.pop(0)}"
                command = command.commands[name]
            options = {name for parameter in command.params for name in parameter.opts}
            assert {word for word in words if word.startswith("-")} - {"-"} <= options, line

    def check_links(self):
        """Each link leads to a heading or a file."""
        for target in re.findall(r"\]\(([^)]+)\)", self.text):
            if target.startswith("https://"):
                continue
            name, _, anchor = target.partition("#")
            there = self.path.parent / name if name else self.path
            assert there.is_file(), target
            assert not anchor or f"#{anchor}" in anchors(there.read_text()), target


def anchors(text):
    """Where links into a page can lead, as GitHub names headings."""
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {"#" + re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}
