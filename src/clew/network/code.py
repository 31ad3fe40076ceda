"""A mark of a user's function: it changes when the function does, and with nothing else.

Taken from the syntax tree of the source, so that neither comments nor another Python change it. Code without source
(made by `exec`, say) counts as its bytecode, which is this Python's own; such a mark names the Python.
"""

from __future__ import annotations

import ast
import dataclasses
import dis
import enum
import functools
import hashlib
import json
import linecache
import os
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from clew.errors import CodeMissing
from clew.network.naming import PACKAGE

Facts = Any  # texts in nested lists
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_PLAIN = (
    type(None), bool, int, float, complex, str, bytes, range, type(...),
    Decimal, date, datetime, time, timedelta, UUID,
)  # fmt: skip
_WITHOUT_EFFECT = {"ctx", "annotation", "returns", "type_comment", "kind"}
_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_INSTALLED = (
    PACKAGE,
    *sorted({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}),
)


def function_name(call: Any) -> str:
    """What a function is called, also one that is an object."""
    return str(getattr(call, "__qualname__", type(call).__qualname__))


class MissingFunction:
    """Stands for a user's function of which a store remembers the name and the mark; calling it raises `CodeMissing`.

    `called` says whether it was.
    """

    def __init__(self, name: str, mark: str) -> None:
        self.__qualname__ = name
        self.mark = mark
        self.called = False

    def __call__(self, *_: Any) -> Any:
        self.called = True
        raise CodeMissing(
            f"function '{self.__qualname__}' would have to run, and a store does not hold a function's code",
            hint="say where it is: --network-file FILE on the command line, in Python the network itself",
        )


def code_mark(call: Callable[..., Any]) -> str:
    """A mark of a function: its code, defaults, what it encloses, and the globals and own functions that it uses."""
    if isinstance(call, MissingFunction):
        return call.mark
    marker = _Marker(call)
    text = json.dumps(marker.of(call))
    mark = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{mark} (Python {sys.version_info[0]}.{sys.version_info[1]})" if marker.without_source else mark


class _Marker:
    """What one function and all that it uses are made of."""

    def __init__(self, call: Any) -> None:
        while isinstance(call, functools.partial | types.MethodType):
            call = call.func if isinstance(call, functools.partial) else call.__func__
        home = call if isinstance(call, types.FunctionType) else type(call)
        self.without_source = False
        self._package = _package(home)
        self._known: dict[int, Facts] = {}  # by id: functions and objects live as long as the one that is marked

    def of(self, value: Any) -> Facts:
        kind = type(value).__qualname__
        match value:
            case enum.Enum():
                return [kind, value.name, self.of(value.value)]
            case _ if type(value) in _PLAIN:
                return [kind, repr(value)]
            case tuple() | list():
                return [kind, *map(self.of, value)]
            case set() | frozenset():
                return [kind, *sorted(map(self.of, value), key=json.dumps)]
            case dict():
                return [kind, *sorted(([self.of(k), self.of(v)] for k, v in value.items()), key=json.dumps)]
            case np.generic() | np.ndarray():
                return [kind, str(value.dtype), self.of(value.tolist())]
            case re.Pattern():
                return [kind, self.of(value.pattern), int(value.flags)]
            case pa.DataType() | pa.Schema():
                return [kind, str(value)]
            case functools.partial():
                return [kind, self.of(value.func), self.of(value.args), self.of(value.keywords)]
            case types.MethodType():
                return [kind, self.of(value.__self__), self.of(value.__func__)]
            case types.FunctionType() | type():
                return self._once(value, self._function if isinstance(value, types.FunctionType) else self._class)
            case types.ModuleType() | types.BuiltinFunctionType():
                return [kind, value.__name__]
        if isinstance(wrapped := getattr(value, "__wrapped__", None), types.FunctionType):  # lru_cache
            return [kind, self.of(wrapped)]
        return self._once(value, self._object)

    def _once(self, value: Any, facts: Callable[[Any], Facts]) -> Facts:
        """The facts of what may use itself."""
        if id(value) not in self._known:
            self._known[id(value)] = ["again", function_name(value)]
            self._known[id(value)] = _digest(facts(value))
        return self._known[id(value)]

    def _function(self, function: types.FunctionType) -> Facts:
        if not self._is_own(function):
            return ["installed", f"{function.__module__}.{function.__qualname__}"]
        names = sorted(set(_globals_of(function.__code__)) & function.__globals__.keys())
        return [
            self._code(function.__code__, function.__globals__),
            self.of(function.__defaults__),
            self.of(function.__kwdefaults__),
            [[name, self._cell(cell)] for name, cell in _enclosed(function)],
            [[name, self.of(function.__globals__[name])] for name in names],
        ]

    def _cell(self, cell: types.CellType) -> Facts:
        try:
            return self.of(cell.cell_contents)
        except ValueError:
            return "not set yet"

    def _class(self, cls: type) -> Facts:
        """An own class: what it adds to its bases. One that is installed: its name."""
        if not self._is_own(cls):
            return ["installed", f"{cls.__module__}.{cls.__qualname__}"]
        if issubclass(cls, enum.Enum):
            return [cls.__qualname__, [[name, self.of(member.value)] for name, member in cls.__members__.items()]]
        parts: list[Facts] = []
        for name, part in sorted(vars(cls).items()):
            inner = part.fget if isinstance(part, property) else getattr(part, "__func__", part)
            if _is_written(cls, name, inner):
                parts.append([name, self.of(inner)])
        return [cls.__qualname__, [self.of(base) for base in cls.__bases__], parts]

    def _object(self, value: Any) -> Facts:
        """An object of an own class with what it holds; of one that is installed, the class alone."""
        cls = type(value)
        if isinstance(name := getattr(value, "__qualname__", None), str):  # a function that is not Python's
            return [self.of(cls), f"{getattr(value, '__module__', '')}.{name}"]
        return [self.of(cls), self.of(getattr(value, "__dict__", {})) if self._is_own(cls) else []]

    def _is_own(self, value: types.FunctionType | type) -> bool:
        """Whether the user wrote this: it is of the marked function's own package, or not installed."""
        if _package(value) in (self._package, "__main__"):
            return True
        if isinstance(value, types.FunctionType):
            file = value.__code__.co_filename
        else:
            file = getattr(sys.modules.get(value.__module__), "__file__", None) or "<no file>"
        return not file.startswith(("<frozen", "<no file", *_INSTALLED))

    def _code(self, code: types.CodeType, scope: Mapping[str, Any]) -> Facts:
        tree = _tree_of(code, scope)
        if tree is not None:
            return _syntax(tree)
        self.without_source = True
        return self._bytecode(code)

    def _bytecode(self, code: types.CodeType) -> Facts:
        constants = [self._bytecode(c) if isinstance(c, types.CodeType) else self.of(c) for c in code.co_consts]
        variables = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        numbers = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        return [code.co_code.hex(), code.co_exceptiontable.hex(), constants, variables, numbers]


def _digest(facts: Facts) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _package(value: Any) -> str:
    return str(value.__module__).partition(".")[0]


def _is_written(cls: type, name: str, part: Any) -> bool:
    """Whether the user wrote this part of a class, or Python added it."""
    if not isinstance(part, types.FunctionType):
        return not name.startswith("__")
    file = part.__code__.co_filename
    generated = dataclasses.is_dataclass(cls) and (file == "<string>" or file == dataclasses.__file__)
    return not generated and not name.startswith("__annotate")


def _enclosed(function: types.FunctionType) -> list[tuple[str, types.CellType]]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return sorted(cells, key=lambda named: named[0])


def _globals_of(code: types.CodeType) -> Iterator[str]:
    """The globals that a function and those in it read."""
    yield from (str(step.argval) for step in dis.get_instructions(code) if step.opname in _GLOBALS)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _globals_of(inner)


def _tree_of(code: types.CodeType, scope: Mapping[str, Any]) -> _Function | None:
    """The syntax tree of a function's source; None if there is none, or another by now."""
    text = "".join(linecache.getlines(code.co_filename, dict(scope)))
    functions, codes = _written(text, code.co_filename)
    if code not in codes:
        return None
    found = [f for f in functions if _first_line(f) == code.co_firstlineno and _may_be(f, code)]
    if len(found) > 1:  # lambdas on one line: the innermost around all that the code does
        found = sorted((f for f in found if _holds(f, code)), key=_body_begins)
    return found[-1] if found else None


@functools.lru_cache(maxsize=32)
def _written(text: str, file: str) -> tuple[tuple[_Function, ...], frozenset[types.CodeType]]:
    """The functions in a source, and all code that this Python makes of it."""
    try:
        tree = ast.parse(text)
        code = compile(tree, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return (), frozenset()
    return tuple(node for node in ast.walk(tree) if isinstance(node, _Function)), frozenset(_codes_in(code))


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield inner
            yield from _codes_in(inner)


def _first_line(function: _Function) -> int:
    decorators = [] if isinstance(function, ast.Lambda) else function.decorator_list
    return min([function.lineno, *(d.lineno for d in decorators)])


def _may_be(function: _Function, code: types.CodeType) -> bool:
    return code.co_name == ("<lambda>" if isinstance(function, ast.Lambda) else function.name)


def _body_begins(function: _Function) -> tuple[int, int]:
    assert isinstance(function, ast.Lambda)
    return function.body.lineno, function.body.col_offset


def _holds(function: _Function, code: types.CodeType) -> bool:
    """Whether all that a lambda's code does stands in the body of this one."""
    assert isinstance(function, ast.Lambda)
    body = function.body
    places = [p for p in code.co_positions() if None not in p and p[3]]
    return bool(places) and all(
        (body.lineno, body.col_offset) <= (line, column)
        and (end_line, end_column) <= (body.end_lineno, body.end_col_offset)
        for line, end_line, column, end_column in places
    )


def _syntax(node: Any) -> Facts:
    """A syntax tree without what has no effect: places, comments, annotations, docstrings."""
    if isinstance(node, list):
        return [_syntax(part) for part in node]
    if not isinstance(node, ast.AST):
        return [type(node).__name__, repr(node)]
    facts: list[Facts] = [type(node).__name__]
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            value = value[1:] if ast.get_docstring(node, clean=False) is not None else value
        if name not in _WITHOUT_EFFECT and value is not None and value != []:
            facts.append([name, _syntax(value)])
    return facts
