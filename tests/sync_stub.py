"""Writes src/holdfast/sync/__init__.pyi, what type checkers and editors see of `holdfast.sync`.

    python -m tests.sync_stub

It is made of the source of the asynchronous classes: annotations and documentation are theirs.
"""

import ast
import importlib
import inspect
import subprocess
import sys
import textwrap
from pathlib import Path

import holdfast.sync
from holdfast._sync import blocking
from holdfast._sync.blocking import strip_async

STUB = Path(holdfast.sync.__file__).with_suffix(".pyi")
HEAD = f'# Written by `python -m tests.sync_stub`.\n\n"""{holdfast.sync.__doc__}"""\n'
INSTEAD = {"AsyncIterator": "Iteration"}
"""What is returned in place of what is iterated over asynchronously."""

MADE_BY_CALLERS = {"A2ACardResolver", "ClientFactory", "ClientTaskManager", "Coordinator"}
OWN = '''
class Iteration(Generic[_T]):
    """A walk through what comes, which keeps what it comes from."""

    def __iter__(self) -> Self:
        """The iteration itself."""
        ...
    def __next__(self) -> _T:
        """The next one."""
        ...
    def close(self) -> None:
        """Ends it early. Can be called twice."""
        ...

def run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    {run}
    ...
'''
OWN_NAMES = {
    "Generic": "typing",
    "Self": "typing",
    "TypeVar": "typing",
    "TypeAlias": "typing",
    "Any": "typing",
    "Coroutine": "collections.abc",
    "Sequence": "collections.abc",
}


class _Module:
    """The source of a module: its definitions, and where its names come from."""

    def __init__(self, name):
        self.name = name
        self.tree = ast.parse(Path(importlib.import_module(name).__file__).read_text())
        self.origins = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.origins[alias.asname or alias.name] = node.module
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    self.origins[alias.asname or alias.name] = None
        self.defined = {}
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                self.defined[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name):
                    self.defined[target.id] = node


class _Stub:
    """The stub, and what it has to import."""

    def __init__(self):
        self.modules = {}
        self.imports = {}
        self.type_vars = {"_T"}
        self.twins = set(holdfast.sync.__all__)

    def module(self, name):
        if name not in self.modules:
            self.modules[name] = _Module(name)
        return self.modules[name]

    def note(self, node, module):
        """Sees to it that the names in an annotation are known."""
        for name in {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}:
            if name in module.origins:
                if name not in self.twins:
                    self.imports[name] = module.origins[name]
            elif "TypeVar" in ast.dump(module.defined.get(name, ast.Pass())):
                self.type_vars.add(name)
            elif name in module.defined and name not in self.twins:
                self.imports[name] = module.name

    def function(self, node, module, name, *, is_property=False):
        arguments = node.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if argument.annotation is not None:
                self.note(argument.annotation, module)
        if arguments.kwarg is not None:
            self.note(arguments.kwarg.annotation, module)
        for defaults in (arguments.defaults, arguments.kw_defaults):
            defaults[:] = [default and _value(default, module) for default in defaults]
        returns = node.returns
        if isinstance(returns, ast.Subscript) and ast.unparse(returns.value) in INSTEAD:
            returns.value = ast.Name(INSTEAD[returns.value.id])
        if returns is not None:
            self.note(returns, module)
        decorated = "@property\n" if is_property else ""
        shown = ast.unparse(
            ast.FunctionDef(
                name=name,
                args=arguments,
                body=[ast.Expr(ast.Constant(...))],
                decorator_list=[],
                returns=returns,
                lineno=0,
                type_params=[],
            )
        )
        head = shown.rpartition(":\n")[0]
        return f"{decorated}{head}:\n{textwrap.indent(_documented(node), '    ')}\n    ...\n"

    def twin(self, kind):
        lines = [f"class {kind.__name__}:", textwrap.indent(_quoted(kind.__doc__), "    ")]
        for name in _in_order(kind):
            spelled = blocking._SPECIAL_METHODS.get(name, name)
            owner = next(one for one in kind.__mro__ if name in vars(one))
            module = self.module(_source(vars(owner)[name]))
            [node] = [one for one in module.defined[owner.__name__].body if _name(one) == name]
            is_property = isinstance(vars(owner)[name], property)
            shown = self.function(node, module, spelled, is_property=is_property)
            lines.append(textwrap.indent(shown, "    "))
        return "\n".join(lines)

    def text(self):
        parts = []
        for name in holdfast.sync.__all__:
            thing = getattr(holdfast.sync, name)
            if isinstance(thing, type) and thing is not holdfast.sync.Iteration:
                [kind] = [kind for kind, twin in blocking._twins.items() if twin is thing]
                parts.append(self.twin(kind))
            elif name in {"ask", "connect", "diagnose"}:
                function = thing.__wrapped__
                module = self.module(_source(function))
                parts.append(self.function(module.defined[name], module, name))
        self.imports.pop("Agent", None)  # which has the other client
        self.imports.pop("Self", None)
        imports = {**self.imports, **OWN_NAMES, "AgentTarget": "holdfast._client.targets"}
        by_module = {}
        for name, origin in imports.items():
            by_module.setdefault(origin, set()).add(name)
        lines = [HEAD]
        lines += [f"import {name}" for name in sorted(by_module.pop(None, ()))]
        lines += [f"from {m} import {', '.join(sorted(n))}" for m, n in sorted(by_module.items())]
        lines += [f"{name} = TypeVar({name!r})" for name in sorted(self.type_vars)]
        lines.append("Agent: TypeAlias = AgentTarget | Sequence[AgentTarget] | Client")
        lines.append(f"__all__ = {holdfast.sync.__all__!r}")
        run = textwrap.indent(_quoted(inspect.getdoc(holdfast.sync.run)), "    ").strip()
        return "\n\n".join([*lines, *parts, OWN.replace("{run}", run)])


def _source(member):
    """The module that defines it; its `__module__` is the public one."""
    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
    return inspect.unwrap(function).__globals__["__name__"]


def _value(default, module):
    """A default, by its value."""
    if not isinstance(default, ast.Name):
        return default
    return ast.Constant(getattr(importlib.import_module(module.name), default.id))


def _name(node):
    return getattr(node, "name", None)


def _in_order(kind):
    """The members that a twin has, as they are written in the class."""
    order = list(dict.fromkeys(name for owner in kind.__mro__ for name in vars(owner)))
    wanted = {name for name in dir(kind) if not name.startswith("_")}
    wanted |= {
        name
        for name in blocking._SPECIAL_METHODS
        if name != "__repr__" and getattr(kind, name, None) is not getattr(object, name, None)
    }
    if kind.__name__ in MADE_BY_CALLERS:
        wanted.add("__init__")
    return [name for name in order if name in wanted]


def _documented(node):
    doc = ast.get_docstring(node)
    return "" if doc is None else _quoted(doc)


def _quoted(doc):
    doc = strip_async(inspect.cleandoc(doc))
    prefix = "r" if "\\" in doc else ""
    return f'{prefix}"""{doc}\n"""' if "\n" in doc else f'{prefix}"""{doc}"""'


def stub():
    """What the stub has to be, but for its format."""
    return _Stub().text()


if __name__ == "__main__":
    STUB.write_text(stub())
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "format", "-q", STUB], check=True)
    subprocess.run([*ruff, "check", "--fix", "-q", STUB], check=True)
    subprocess.run([*ruff, "format", "-q", STUB], check=True)
