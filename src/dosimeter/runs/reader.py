# SPDX-License-Identifier: Apache-2.0
"""Reads a config strictly: every key is known, of its type, and blamed by its line."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from dosimeter.nearest import hint as suggested
from dosimeter.nearest import nearest
from dosimeter.runs.config import Config

T = TypeVar("T")

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def read_config(path: pathlib.Path) -> tuple[Config, str]:
    """The run that a TOML file describes, and the text that says so.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not TOML, or a key is unknown, missing or wrong; the line is named.
    """
    values, text = read_toml(path)
    with blaming(path, text):
        return config_from(values), text


def read_toml(path: pathlib.Path) -> tuple[dict[str, Any], str]:
    """The tables of a TOML file, and its text.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not TOML.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"config must be a TOML file, got no file at {str(path)!r}; "
            f"write one with: dosimeter train --init {path}"
        )
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text), text
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} must be TOML: {error}{_quotes(str(error))}") from error


def _quotes(said: str) -> str:
    """What to do about a key that no bare key can be, such as the name of a column."""
    if not re.match(r"Expected '=' after a key|Invalid initial character for a key part", said):
        return ""
    return """; a name with spaces or signs goes in quotes, as in { "mean radius" = [0, 100] }"""


@contextmanager
def blaming(path: pathlib.Path, text: str) -> Iterator[None]:
    """Puts the file, and the line of the key that an error begins with, before the error."""
    try:
        yield
    except (TypeError, ValueError) as error:
        line = line_of(text, str(error))
        where = f"{path}, line {line}" if line else str(path)
        raise ValueError(f"{where}: {error}") from error


def config_from(values: Mapping[str, Any]) -> Config:
    """The run that the tables of a config describe."""
    tables = {field.name: field for field in dataclasses.fields(Config)}
    require_known("", values, tables)
    made: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(Config).items():
        (kind,) = kinds_of(hint)
        if name in values:
            if not isinstance(values[name], dict):
                raise ValueError(f"{name} must be a table, got {values[name]!r}; write [{name}]")
            made[name] = table_from(kind, name, values[name])
        elif tables[name].default is dataclasses.MISSING:
            raise ValueError(f"{name} must be given, got no table [{name}]")
    return Config(**made)


def first_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """The first key in which two parsed configs differ, with both values; None if none does."""
    for table in [*old, *(name for name in new if name not in old)]:
        was, now = old.get(table, {}), new.get(table, {})
        for key in [*was, *(name for name in now if name not in was)]:
            if was.get(key) != now.get(key):
                return f"{table}.{key} must stay {_said(was.get(key))}, got {_said(now.get(key))}"
    return None


def line_of(text: str, message: str) -> int | None:
    """The line of the key or table that a message begins with."""
    name, inside = message.split(" ", 1)[0].rstrip(":"), ""
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line)
        if header:
            inside = f"{header[1]}."
            if header[1] == name:
                return number
        elif name.startswith(inside):
            key = re.escape(name.removeprefix(inside))
            if re.match(rf"""\s*["']?{key}["']?\s*=""", line):
                return number
    return None


def table_from(kind: type[T], table: str, values: Mapping[str, Any]) -> T:
    """One table of a config, each of its keys known and of its type."""
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    require_known(f"{table}.", values, fields)
    for key, field in fields.items():
        if key not in values and field.default is dataclasses.MISSING:
            raise ValueError(f"{table}.{key} must be given, got none")
    hints = typing.get_type_hints(kind)
    return kind(**{key: typed(f"{table}.{key}", hints[key], v) for key, v in values.items()})


def require_known(prefix: str, values: Iterable[str], known: Iterable[str]) -> None:
    """Raises for the first name that is not known, with the nearest that is."""
    for key in values:
        if key not in known:
            close = nearest(key, known)
            way = f"did you mean {close!r}?" if close else f"known are {', '.join(known)}"
            raise ValueError(f"{prefix}{key} must be a known name, got {key!r}; {way}")


def typed(key: str, hint: Any, value: Any) -> Any:
    """The value as its type wants it."""
    kinds = kinds_of(hint)
    if typing.get_origin(kinds[0]) is Literal:
        return _choice(key, typing.get_args(kinds[0]), value)
    for kind in kinds:
        if _fits(kind, value):
            return float(value) if kind is float else value
    words = " or ".join(_in_words(kind) for kind in kinds)
    raise ValueError(f"{key} must be {words}, got {value!r}")


def kinds_of(hint: Any) -> tuple[Any, ...]:
    """The types of which a value may be, without None, which no config can say."""
    # Until Python 3.14 `Literal[...] | None` is of another class than `int | None`.
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    kinds = typing.get_args(hint) if union else (hint,)
    return tuple(kind for kind in kinds if kind is not type(None))


def _choice(key: str, choices: tuple[str, ...], value: Any) -> str:
    if value not in choices:
        raise ValueError(
            f"{key} must be one of {', '.join(choices)}, got {value!r}"
            f"{suggested(str(value), choices)}"
        )
    return str(value)


def _fits(kind: Any, value: Any) -> bool:
    if typing.get_origin(kind) is list:
        (item,) = typing.get_args(kind)
        return isinstance(value, list) and all(_fits(item, one) for one in value)
    if typing.get_origin(kind) is dict:
        return isinstance(value, dict) and all(
            _fits(typing.get_args(kind)[1], one) for one in value.values()
        )
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _in_words(kind: Any) -> str:
    if typing.get_origin(kind) is list:
        inner = _in_words(typing.get_args(kind)[0]).removeprefix("a ")
        return f"a list of {inner}s" if "list" not in inner else "a list of pairs"
    if typing.get_origin(kind) is dict:
        return "a pair for each name"
    return _WORDS[kind]


def _said(value: object) -> str:
    return "left out" if value is None else repr(value)
