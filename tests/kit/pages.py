"""Pages of the documentation: their blocks of code, which run as they stand, and their links."""

import ast
import codeop
import inspect
import re
import shlex

from tests.kit.paths import ROOT

__all__ = ["ROOT", "Page", "anchors", "execute"]


async def execute(fragment, **names):
    """Runs a fragment that awaits at its top level, and gives the names that it leaves."""
    import holdfast

    code = compile(fragment, "<page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = {"holdfast": holdfast, **names}
    result = eval(code, names)
    if inspect.isawaitable(result):
        await result
    return names


class Page:
    """A page, by its path below the root of the repository."""

    def __init__(self, path):
        self.path = ROOT / path
        self.text = self.path.read_text()
        self.blocks = re.findall(r"```python\n(.*?)```", self.text, flags=re.DOTALL)

    def block(self, text):
        """The block that has a text in it."""
        [block] = [block for block in self.blocks if text in block]
        return block

    def check_complete(self, *texts):
        """Each of the texts is in one block, and each block has one of them."""
        assert sorted(self.block(text) for text in texts) == sorted(self.blocks)

    def check_pastes(self):
        """Each block can be pasted, line by line, into ``python -m asyncio``."""
        compiler = codeop.CommandCompiler()
        compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        for block in self.blocks:
            lines = []
            for line in [*block.splitlines(), ""]:
                lines.append(line)
                if compiler("\n".join(lines)) is not None:
                    lines = []
            assert not any(lines), block

    def check_commands(self, *, at_least):
        """Each command line of the page names a command of `holdfast`, and options that it has."""
        import click

        from holdfast._cli.app import app

        lines = re.findall(r"^\$ holdfast (.*)$", self.text, flags=re.MULTILINE)
        assert len(lines) >= at_least
        for line in lines:
            words, command = shlex.split(line, comments=True), app
            while isinstance(command, click.Group) and not words[0].startswith("-"):
                command = command.commands[words.pop(0)]
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
