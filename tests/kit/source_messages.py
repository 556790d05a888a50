"""The texts of errors, warnings and log lines, read from the source without running it.

A message that is built elsewhere in its module (by a variable, a function or an argument) is
followed to its texts. In a template, ``{name}`` is a value, and ``[a | b]`` one of several texts.
"""

import ast
import builtins
import functools
import re
from collections import defaultdict
from typing import NamedTuple

from tests.kit.paths import ROOT

from holdfast import errors

__all__ = ["LOG", "PARTS", "Message", "messages"]

SOURCE = ROOT / "src" / "holdfast"

LOG = "Log lines"
PARTS = "Parts of messages"
ADDITIONS = "Additions to messages"

LEVELS = {"debug", "info", "warning", "error", "exception", "log"}
DEPTH = 5
"""Steps from a constructor to the texts that its message is made of."""

DEADLINE_ERRORS = {
    "deadline_error": ("deadline",),
    "callback_deadline_error": ("deadline", "executed=True"),
}
"""Functions that make an error of what did not happen before a deadline, with its facts."""

FACTS = {*errors.Facts.__annotations__, "deadline", "phase", "failure", "reason"}
"""Keyword arguments of errors that are facts for programs."""

NO_MESSAGE = {
    *("AssertionError", "AttributeError", "CancelledError", "GeneratorExit", "Interrupted"),
    *("KeyError", "KeyboardInterrupt", "StopAsyncIteration", "StopIteration", "SystemExit"),
}
FOREIGN = {"BadParameter", "UsageError"}
"""Classes of other libraries."""

NO_PROSE = re.compile(
    r"^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|SET|WHERE|WITH|map<|HTTP/1)\b"
    r"|\bIS (NOT )?NULL\b|\bmake_interval\b|^[\w.]+\[.*\]|[\w/+-]+/[\w+-]+[;,]"
    r"|\\[a-zA-Z(]|^<|\||^[A-Z]\w+\("
)
"""Statements, type annotations, media types, regular expressions and representations."""


class Message(NamedTuple):
    """A text that users may read."""

    kind: str
    text: str
    facts: tuple[str, ...]
    module: str


class Module:
    """One file of the source, with what the texts of its messages are found by."""

    def __init__(self, path):
        self.name = path.relative_to(SOURCE).as_posix()
        self.tree = ast.parse(path.read_text())
        self.used = set()
        self.parents = {}
        self.calls, self.functions = defaultdict(list), defaultdict(list)
        self.assigned = defaultdict(list)
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
            match node:
                case ast.Call():
                    self.calls[called(node)].append(node)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self.functions[node.name].append(node)
        for node in self.parents:
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
                for name in targets(node):
                    self.assigned[self.scope(node), name].append(node)

    def around(self, node):
        """The nodes around a node, the innermost first."""
        while (node := self.parents.get(node)) is not None:
            yield node

    def scope(self, node):
        """The innermost function around a node, or None."""
        kinds = ast.FunctionDef | ast.AsyncFunctionDef
        return next((each for each in self.around(node) if isinstance(each, kinds)), None)

    def values(self, name, node):
        """The expressions that a name may stand for at a node."""
        scope, around = self.scope(node), set(self.around(node))
        while True:
            found = [
                each
                for each in self.assigned[scope, name]
                if each not in around and each.value is not None
            ]
            if found:
                return self.latest(found, node, around)
            if scope is None:
                return []
            if name in arguments(scope):
                return self.passed(scope, name)
            scope = self.scope(scope)

    def latest(self, found, node, around):
        """The last assignment that happens in any case, and those after it that may happen."""
        before = sorted((each for each in found if each.lineno <= node.lineno), key=line_of)
        certain = [index for index, each in enumerate(before) if self.parents[each] in around]
        return [each.value for each in (before or found)[certain[-1] if certain else 0 :]]

    def passed(self, function, name):
        """The texts that this module passes to a function as one of its arguments."""
        names = arguments(function)
        position = names.index(name)
        found = []
        for call in self.calls[function.name]:
            keywords = {each.arg: each.value for each in call.keywords}
            is_bound = names[0] in {"self", "cls"} and isinstance(call.func, ast.Attribute)
            if name in keywords:
                found.append(keywords[name])
            elif position - is_bound < len(call.args):
                found.append(call.args[position - is_bound])
        return found

    def returned(self, name):
        """The texts that a function of this module returns."""
        return [
            each.value
            for function in self.functions[name]
            for each in ast.walk(function)
            if isinstance(each, ast.Return) and each.value is not None and has_text(each.value)
        ]


def line_of(node):
    return node.lineno


def targets(node):
    """The names that a node assigns to."""
    found = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {each.id for each in found if isinstance(each, ast.Name)}


def arguments(function):
    """The names of the arguments of a function."""
    spec = function.args
    return [each.arg for each in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]


def called(call):
    """The last name of what is called."""
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def has_text(node):
    """Whether an expression contains words, which a message may be made of."""
    return any(
        isinstance(each, ast.Constant) and isinstance(each.value, str) and " " in each.value
        for each in ast.walk(node)
    )


def template(module, node, depth=DEPTH):  # noqa: C901  a row for each kind of expression
    """The text of an expression, with its values as placeholders."""
    if depth == 0:
        return "{…}"
    match node:
        case ast.Constant(value=value):
            module.used.add(node)
            return str(value)
        case ast.JoinedStr(values=values):
            return "".join(template(module, each, depth) for each in values)
        case ast.FormattedValue(value=value):
            return template(module, value, depth)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return template(module, left, depth) + template(module, right, depth)
        case ast.BinOp(left=left, op=ast.Mod()):
            return template(module, left, depth)
        case ast.IfExp(body=body, orelse=orelse) if has_text(node) or is_plain(body, orelse):
            found = [body, orelse]
        case ast.BoolOp(values=values) if has_text(node):
            found = values
        case ast.Name(id=name):
            values = [each for each in module.values(name, node) if has_text(each)]
            return named(module, node, values, depth)
        case ast.Call() if called(node) in module.functions:
            found = module.returned(called(node))
        case _:
            found = []
    if not found:
        return "{" + placeholder(node) + "}"
    return one_of(template(module, each, depth - 1) for each in found)


def named(module, node, values, depth):
    """The text of a variable: one of its values, and what may be appended to it."""
    texts, endings = [], ""
    for each in values:
        text = template(module, each, depth - 1)
        if isinstance(module.parents[each], ast.AugAssign):
            endings += f"[{text}]"
        else:
            texts.append(text)
    return (one_of(texts) if texts else "{" + placeholder(node) + "}") + endings


def is_plain(*nodes):
    return all(isinstance(each, ast.Constant | ast.JoinedStr) for each in nodes)


def one_of(texts):
    """The form of a choice of texts, or of one that may be missing."""
    found = list(dict.fromkeys(texts))
    return found[0] if len(found) == 1 else f"[{' | '.join(text for text in found if text)}]"


def placeholder(node):
    """A short name of a value."""
    match node:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name.strip("_")
        case ast.Attribute(value=value, attr=name):
            return f"{placeholder(value)}.{name.strip('_')}"
        case ast.Subscript(value=value):
            return placeholder(value)
        case ast.Call(func=ast.Attribute(attr="join"), args=[items]):
            return f"{placeholder(items)}, …"
        case ast.Call(func=ast.Name(id="len"), args=[items]):
            return f"number of {placeholder(items)}"
        case ast.Call(func=ast.Name(id="type"), args=[value]):
            return f"type of {placeholder(value)}"
        case ast.Call(func=ast.Name(id="sorted" | "map" | "list" | "tuple" | "str"), args=args):
            return placeholder(args[-1]) if args else "…"
        case ast.Call():
            return called(node).strip("_")
        case ast.GeneratorExp(generators=[first, *_]) | ast.ListComp(generators=[first, *_]):
            return placeholder(first.iter)
    return "…"


def kinds_in(modules):
    """The names of all classes of errors and warnings, of the source and of Python."""
    found = {
        name
        for name, each in vars(builtins).items()
        if isinstance(each, type) and issubclass(each, BaseException)
    }
    classes = [
        (node.name, {ast.unparse(base).rpartition(".")[2] for base in node.bases})
        for module in modules
        for node in module.parents
        if isinstance(node, ast.ClassDef)
    ]
    while more := {name for name, bases in classes if name not in found and bases & found}:
        found |= more
    return (found | FOREIGN) - NO_MESSAGE


def message_of(call):
    """The expression of the message in a call that makes an error, or None."""
    by_name = {each.arg: each.value for each in call.keywords}
    if called(call) == "OSError" and len(call.args) > 1:
        return call.args[1]
    return call.args[0] if call.args else by_name.get("message")


def deadline_text(module, what, call):
    """The text of an error that `deadline_error` makes, about what did not happen."""
    then = next((each.value for each in call.keywords if each.arg == "then"), None)
    end = "" if then is None else template(module, then)
    limit = "the {deadline.name} timeout of {deadline.shown}"
    return f"{template(module, what)} within {limit}{end}"


def facts_of(call):
    """The facts that a constructor is given; constants with their values."""
    for each in call.keywords:
        if each.arg is None:
            yield "…"
        elif each.arg in FACTS:
            is_constant = isinstance(each.value, ast.Constant)
            yield f"{each.arg}={each.value.value!r}" if is_constant else each.arg


def found_in(module, kinds):
    """The messages of a module: kind, text and facts."""
    for node in module.parents:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="logger"), attr=level)) if (
                level in LEVELS
            ):
                shown = "level by case" if level == "log" else level
                text = node.args[1 if level == "log" else 0]
                yield f"{LOG} ({shown})", template(module, text), ()
            case ast.Call(
                func=ast.Attribute(attr="log"),
                args=[ast.Attribute(value=ast.Name(id="logging"), attr=level), text, *_],
            ):  # of an operation
                yield f"{LOG} ({level.lower()})", template(module, text), ()
            case ast.Call(func=ast.Attribute(value=ast.Name(id="warnings"), attr="warn")):
                yield ast.unparse(node.args[1]), template(module, node.args[0]), ()
            case ast.Call(func=ast.Name(id=name), args=[what, *_]) if (
                name in DEADLINE_ERRORS and name not in module.functions
            ):
                facts = (*DEADLINE_ERRORS[name], *facts_of(node))
                yield "DeadlineExceededError", deadline_text(module, what, node), facts
            case ast.Call() if called(node) in kinds and (text := message_of(node)) is not None:
                yield called(node), template(module, text), tuple(facts_of(node))
            case (
                ast.Assign(targets=[ast.Attribute(attr="message")], value=text)
                | ast.AugAssign(target=ast.Attribute(attr="message"), value=text)
            ) if has_text(text):
                yield ADDITIONS, template(module, text), ()


def rest_of(module):
    """The texts of a module that no message above is made of, but for documentation."""
    for node in module.parents:
        parent = module.parents[node]
        is_text = isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
        if not is_text or isinstance(parent, ast.Expr | ast.JoinedStr | ast.FormattedValue):
            continue
        if module.used.isdisjoint(ast.walk(node)):
            text = template(module, node)
            words = re.findall(r"[A-Za-z]{2,}", re.sub(r"\{[^}]*\}", "", text))
            if len(words) >= 3 and " " in text and not NO_PROSE.search(text):
                yield PARTS, text, ()


@functools.cache
def messages():
    """All messages of the source, in the order of its files."""
    modules = [Module(path) for path in sorted(SOURCE.rglob("*.py"))]
    kinds = kinds_in(modules)
    return tuple(
        Message(kind, " ".join(text.split()), facts, module.name)
        for module in modules
        for kind, text, facts in (*found_in(module, kinds), *rest_of(module))
        if re.search(r"[A-Za-z]{3}", re.sub(r"\{[^}]*\}", "", text))
    )
