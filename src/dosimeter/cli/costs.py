# SPDX-License-Identifier: Apache-2.0
"""Costs as the command line writes them: one option for each mechanism that has one, and JSON."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dosimeter.cli.commands import Command

if TYPE_CHECKING:
    from dosimeter.rdp import Cost, Neighbours

_GIVEN = "dosimeter.cli.costs"
_EXAMPLE = """'{"kind": "gaussian", "noise_multiplier": 20}'"""


class CostCommand(Command):
    """A command that takes a cost, by the options that the mechanisms state.

    They are looked up when the command is used: the help of others loads no mechanism.
    """

    def get_params(self, ctx: Any) -> Any:
        """The arguments, the options of costs, then the other options."""
        params = super().get_params(ctx)
        first = next(i for i, one in enumerate(params) if one.param_type_name == "option")
        return [*params[:first], *_params(), *params[first:]]


def given_cost(context: typer.Context) -> Cost:
    """The cost that a command was given by exactly one option.

    Raises:
        ValueError: None or several were given, or one that describes no cost.
    """
    options = dict(context.meta.get(_GIVEN, {}))
    neighbours = options.pop("neighbours", None)
    return cost_from(options, neighbours)


def is_cost_given(context: typer.Context) -> bool:
    """Whether a command was given a cost by an option."""
    return any(value is not None for value in context.meta.get(_GIVEN, {}).values())


def menu_from(texts: Iterable[str], neighbours: str) -> list[Cost]:
    """The costs of a menu, each as `in_words` writes it, or as JSON."""
    return [_item_from(text, neighbours) for text in texts]


def _item_from(text: str, neighbours: str) -> Cost:
    if text.lstrip().startswith("{"):
        return cost_from({"cost": text})
    name, _, numbers = text.strip().partition(" ")
    known = _mechanisms()
    if name.replace("-", "_") not in known:
        names = ", ".join(one.replace("_", "-") for one in known)
        raise ValueError(
            f"--menu must be a mechanism and its numbers such as 'gaussian 20', or JSON, got "
            f"{text!r}; mechanisms: {names}"
        )
    return cost_from({name.replace("-", "_"): numbers.strip()}, neighbours)


def cost_from(options: Mapping[str, str | None], neighbours: str | None = None) -> Cost:
    """The cost that exactly one of the options describes, of a relation in words."""
    from dosimeter.rdp import Neighbours
    from dosimeter.rdp.plain import from_plain

    given = {name: text for name, text in options.items() if text is not None}
    if len(given) != 1:
        got = _dashed(given) or "none"
        raise ValueError(f"cost must be given by exactly one of {_dashed(options)}, got {got}")
    ((name, text),) = given.items()
    if name != "cost":
        said = neighbours if neighbours is not None else str(Neighbours.ADD_REMOVE_RECORD)
        return _from_numbers(name, text, Neighbours.named(said))
    if neighbours is not None:
        raise ValueError(f"--neighbours must not come with --cost, which says it, got {text}")
    try:
        return from_plain(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"--cost must be JSON such as {_EXAMPLE}, got {text}: {error}") from error


def _from_numbers(name: str, text: str, neighbours: Neighbours) -> Cost:
    from dosimeter.rdp.cost import parameters

    made = _mechanisms()[name]
    names = parameters(made)
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    wanted = ",".join(names).upper()
    if not sum(names.values()) <= len(numbers) <= len(names):
        raise ValueError(f"{_dashed([name])} must be {wanted}, got {text!r}")
    given: dict[str, Any] = dict(zip(names, numbers, strict=False))
    try:
        return made(**given, neighbours=neighbours)
    except ValueError as error:
        if len(names) > 1:
            error.add_note(f"{_dashed([name])} takes {wanted} in this order")
        raise


def in_words(plain: Mapping[str, Any]) -> str:
    """A plain cost as `dosimeter budget spend` takes it; one with lists only by its kind."""
    from dosimeter.rdp.cost import figure, parameters

    words = str(plain["kind"])
    for name, made in _mechanisms().items():
        if made.kind == plain["kind"]:
            numbers = ",".join(
                figure(part, float(plain[part])).removesuffix(".0") for part in parameters(made)
            )
            words = f"{_dashed([name])[2:]} {numbers}"
    return f"{words}, {plain['neighbours']}" if "neighbours" in plain else words


@cache
def _mechanisms() -> dict[str, type[Cost]]:
    """The mechanisms that have an option, by its name."""
    from dosimeter.rdp import MECHANISMS

    return {made.option.name: made for made in MECHANISMS if made.option is not None}


@cache
def _params() -> list[Any]:
    """The options of costs, made by Typer as it makes those of any function."""

    def kept(context: typer.Context, param: typer.CallbackParam, value: str | None) -> None:
        context.meta.setdefault(_GIVEN, {})[param.name] = value

    def command(**options: str | None) -> None:
        pass

    about = {name: made.option for name, made in _mechanisms().items() if made.option is not None}
    rows = [(name, option.metavar, option.help) for name, option in about.items()]
    rows.append(("cost", "JSON", "A cost as JSON."))
    rows.append(("neighbours", "RELATION", "If not add/remove one record."))
    command.__annotations__ = {
        name: Annotated[
            str | None, typer.Option(metavar=metavar, help=text, callback=kept, expose_value=False)
        ]
        for name, metavar, text in rows
    }
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in command.__annotations__.items()
        ]
    )
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return list(typer.main.get_command(app).params)


def _dashed(names: Iterable[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)
