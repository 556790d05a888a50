"""The project's words: ``python -m tests.glossary`` lists where other words stand for them.

One word for one thing makes pages easy to search. Each rule has words that readers would not
search for, and what to write instead. Code on pages is not checked, nor are code spans.
"""

import ast
import re
import sys

from tests.kit.paths import ROOT

__all__ = ["PATTERNS", "findings", "main", "prose"]

PATTERNS = {
    r"told|untold": "emitted, delivered, yielded; reported",
    r"(goes|go|going|gone|went) on with": "resume, continue",
    r"under way|on its way|on their way": "in flight, pending",
    r"(look|looks|looked|looking) for": "search for, reconcile",
    r"given up|gave up": "stopped, retry_stopped_reason; only callers give up",
    r"left alone": "circuit open, short-circuited",
    r"at hand": "buffered",
    r"written down": "recorded, committed",
    r"lent": "caller-supplied, borrowed",
    r"whoever|somebody|nobody|anybody": "the actor by name: the caller, the client, the agent",
    r"in vain": "without success, or the failure itself",
    r"by way of": "through, by",
    r"(comes?|came) to (its|an) end": "ends, terminal state",
    r"(comes?|came) of it": "result, reply, answer",
    r"died?|dies": "crash, exit",
    r"in peace|come later": "rate limiting",
    r"vouch(es|ed)?": "signature verification",
}
"""Words that are not used, as regular expressions, and what to write instead."""

_PAGES = ("*.md", "docs/**/*.md", "src/holdfast/_cli/skills/**/*.md")
_MADE = ("docs/reference/cli-compliance.md", "tests/RULES.md")
_RULES = [(re.compile(rf"\b(?:{each})\b", re.IGNORECASE), say) for each, say in PATTERNS.items()]
_CODE = re.compile(r"```.*?```|``.*?``|`.*?`|^ {4,}>>>.*?$", re.DOTALL | re.MULTILINE)


def prose(text):
    """Return a text with its code blanked out, in which lines keep their numbers."""
    return _CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def findings(text, line=1):
    """Yield the line, the word and the advice for each word that is not used."""
    text = prose(text)
    for rule, advice in _RULES:
        for match in rule.finditer(text):
            yield line + text.count("\n", 0, match.start()), match[0], advice


def _pages():
    for pattern in _PAGES:
        for path in sorted(ROOT.glob(pattern)):
            if path.relative_to(ROOT).as_posix() not in _MADE:
                yield path, path.read_text(), 1


def _docstrings():
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield path, text, node.lineno


def main():
    """List the findings, and return the exit code."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word!r}: {advice}\n"
        for path, text, first in [*_pages(), *_docstrings()]
        for line, word, advice in findings(text, first)
    ]
    sys.stdout.writelines(found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
