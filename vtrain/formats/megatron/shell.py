"""Read the options of a launch script without running it.

Understands what launch scripts are made of: assignments, arrays, `+=`, `${X:-default}`,
`$((A * B))`, quotes, comments and continued lines. Branches are not decided: where a variable or
an option is set more than once with different values the last one is taken, and reported.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass

_SEPARATORS = "\n;|&<>()"
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_EXPANSION = re.compile(r"\$\(\((.*?)\)\)|\$\{([^}]*)\}|\$(\w+)", re.DOTALL)
_SBATCH = re.compile(r"^#SBATCH\s+--([\w-]+)(?:[= ]\s*(\S+))?", re.MULTILINE)
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
UNKNOWN = "${?}"
"""Stands for the output of a command, which only a shell could tell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """What a launch script says.

    Attributes:
        options: values of each `--option` (dashes and underscores alike), in order; empty for a
            bare flag.
        words: every other word of a command.
        variables: shell variables at the end of the script.
        batch: options of `#SBATCH` lines.
        ambiguous: what is set more than once with different values, ready to print.
    """

    options: dict[str, tuple[str, ...]]
    words: tuple[str, ...]
    variables: dict[str, str]
    batch: dict[str, str]
    ambiguous: tuple[str, ...]


def read_script(text: str) -> Script:
    """Read a shell script or a plain list of options."""
    variables: dict[str, str] = {}
    history: dict[str, list[str]] = {}
    commands: list[str] = []
    stream = iter(_words(text))
    pending: tuple[str, bool] | None = None
    for word, quoted in stream:
        match = None if quoted else _ASSIGNMENT.fullmatch(word)
        if match is None:
            commands.extend([word] if word in _SEPARATORS else _split(word, variables))
            continue
        name, append, value = match.groups()
        if value == "":
            # NAME=( ... ): an array when the parenthesis follows at once.
            pending = next(stream, None)
            if pending is not None and pending[0] == "(":
                value = " ".join(_array(stream))
            elif pending is not None and pending[0] not in _SEPARATORS:
                commands.extend(_split(pending[0], variables))
        before = variables.get(name, "")
        expanded = _expand(value, variables)
        variables[name] = f"{before} {expanded}".strip() if append else expanded
        if not append and f"${name}" not in value and f"${{{name}" not in value:
            history.setdefault(name, []).append(expanded)
    options, words, ambiguous = _options(commands)
    if not any("num_layers" in name for name in options):
        more, _, again = _options(" ".join(variables.values()).split())
        options, ambiguous = {**more, **options}, [*ambiguous, *again]
    for name, values in history.items():
        if len(set(values)) > 1:
            ambiguous.append(f"shell variable {name} is set to {' and '.join(values)}")
    batch = {m.group(1).replace("-", "_"): m.group(2) or "" for m in _SBATCH.finditer(text)}
    return Script(
        options=options,
        words=tuple(words),
        variables=variables,
        batch=batch,
        ambiguous=tuple(f"{line}: the last was taken" for line in ambiguous),
    )


def _array(stream: Iterator[tuple[str, bool]]) -> Iterator[str]:
    for word, _ in stream:
        if word == ")":
            return
        if word not in _SEPARATORS:
            yield word


def _split(word: str, variables: dict[str, str]) -> list[str]:
    return _expand(word, variables).split()


def _options(
    tokens: list[str],
) -> tuple[dict[str, tuple[str, ...]], list[str], list[str]]:
    """Sort words into options with their values and the rest."""
    options: dict[str, tuple[str, ...]] = {}
    words: list[str] = []
    ambiguous: list[str] = []
    current: str | None = None
    values: list[str] = []

    def close() -> None:
        if current is None:
            return
        old = options.get(current)
        if old is not None and old != tuple(values):
            shown = " and ".join(" ".join(v) or "(flag)" for v in (old, tuple(values)))
            ambiguous.append(f"--{current.replace('_', '-')} is given as {shown}")
        options[current] = tuple(values)

    for token in tokens:
        if token.startswith("--") and len(token) > 2:
            close()
            name, _, value = token[2:].partition("=")
            current = name.replace("-", "_").replace(".", "_")
            values = [value] if value else []
        elif token in _SEPARATORS:
            close()
            current, values = None, []
        elif current is None:
            words.append(token)
        else:
            values.append(token)
            words.append(token)
    close()
    return options, words, ambiguous


def _expand(text: str, variables: dict[str, str]) -> str:
    """Replace variables; what has no value stays as it is written."""

    def value(match: re.Match[str]) -> str:
        arithmetic, braced, plain = match.groups()
        if arithmetic is not None:
            return _arithmetic(_expand(arithmetic, variables), variables) or UNKNOWN
        if plain is not None:
            return variables.get(plain, match.group())
        name = re.match(r"\w+", braced)
        if name is None:
            return match.group()
        known = variables.get(name.group())
        default = re.fullmatch(r"\w+:?[-=](.*)", braced, re.DOTALL)
        if known is not None:
            return known
        return _expand(default.group(1).strip("\"'"), variables) if default else match.group()

    return _EXPANSION.sub(value, text)


def _arithmetic(text: str, variables: dict[str, str]) -> str | None:
    """Evaluate whole-number arithmetic; None when a part is not a number."""

    def evaluate(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return int(_OPERATORS[type(node.op)](evaluate(node.left), evaluate(node.right)))
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            return int(variables[node.id])
        raise ValueError

    try:
        return str(evaluate(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError):
        return None


def _words(text: str) -> Iterator[tuple[str, bool]]:
    """Yield words and separators; the flag says that a word began inside quotes."""
    word: list[str] = []
    started = quoted = False
    i = 0
    while i < len(text):
        c = text[i]
        if c == "\\":
            if text[i + 1 : i + 2] != "\n":
                word.append(text[i + 1 : i + 2])
                started = True
            i += 2
            continue
        if c == "#" and not started:
            end = text.find("\n", i)
            i = len(text) if end < 0 else end
            continue
        if c in "'\"`" or (c == "$" and text[i + 1 : i + 2] in ("(", "{")):
            piece, length = _piece(text, i)
            quoted = quoted or (not started and c in "'\"")
            word.append(piece)
            started = True
            i += length
            continue
        if c.isspace() or c in _SEPARATORS:
            if started:
                yield "".join(word), quoted
                word, started, quoted = [], False, False
            if c in _SEPARATORS:
                yield c, False
        else:
            word.append(c)
            started = True
        i += 1
    if started:
        yield "".join(word), quoted


def _piece(text: str, start: int) -> tuple[str, int]:
    """Return a quoted or bracketed piece as it counts, and how much text it covers."""
    c = text[start]
    if c in "'`":
        end = text.find(c, start + 1)
        end = len(text) if end < 0 else end
        inner = text[start + 1 : end] if c == "'" else UNKNOWN
        return inner, end + 1 - start
    if c == "$":
        opening = text[start + 1]
        closing = {"(": ")", "{": "}"}[opening]
        depth = 0
        for i in range(start + 1, len(text)):
            depth += (text[i] == opening) - (text[i] == closing)
            if depth == 0:
                whole = text[start : i + 1]
                is_value = opening == "{" or whole.startswith("$((")
                return whole if is_value else UNKNOWN, i + 1 - start
        return UNKNOWN, len(text) - start
    parts: list[str] = []
    i = start + 1
    while i < len(text) and text[i] != '"':
        if text[i] == "\\":
            parts.append("" if text[i + 1 : i + 2] == "\n" else text[i + 1 : i + 2])
            i += 2
        elif text[i] == "$" and text[i + 1 : i + 2] in ("(", "{"):
            piece, length = _piece(text, i)
            parts.append(piece)
            i += length
        else:
            parts.append(text[i])
            i += 1
    return "".join(parts), i + 1 - start
