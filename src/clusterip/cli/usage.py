"""What click says of a command line that it cannot use, said as all our errors are: on what, what failed; a hint."""

import difflib
from collections.abc import Iterable

import click

from clusterip.errors import BadInput


def bad_input(error: click.UsageError, command: str, commands: Iterable[str]) -> BadInput:
    """`command`: whose words these were, as it was typed ("clusterip trace"); `commands`: those that there are, to
    guess which one was meant."""
    match error:
        case click.MissingParameter(param=click.Option() as missing):
            what = " ".join(filter(None, (_name(missing), missing.metavar, missing.help and f"({missing.help})")))
            return BadInput(f"{command}: an option is missing: {_name(missing)}", hint=what)
        case click.MissingParameter(param=click.Parameter() as missing):
            return BadInput(f"{command}: an argument is missing: {_name(missing)}", hint=_usage(error, command))
        case click.BadParameter(param=click.Parameter() as given):
            return _bad_value(_name(given), given.type, error.message.rstrip("."), f"{command} --help")
        case click.NoSuchOption():
            near = " or ".join(sorted(error.possibilities or ()))
            hint = f"did you mean {near}?" if near else f"{command} --help lists them"
            return BadInput(f"{command}: no such option: {error.option_name}", hint=hint)
    if error.message.startswith("No such command"):
        asked = error.message.split("'")[1]
        near = " or ".join(difflib.get_close_matches(asked, list(commands)))
        return BadInput(
            f"{command} {asked}: no such command", hint=f"did you mean {near}?" if near else f"{command} --help"
        )
    message = error.message.rstrip(".")
    return BadInput(f"{command}: {message[:1].lower()}{message[1:]}", hint=_usage(error, command))


def _bad_value(name: str, kind: object, message: str, more: str) -> BadInput:
    value, is_not, _ = message.partition(" is not ")
    if not is_not:
        return BadInput(f"{name}: {message}", hint=more)
    match kind:
        case click.Choice():
            return BadInput(f"{name}: {value} is unknown", hint=f"one of: {', '.join(map(str, kind.choices))}")
        case click.IntRange() | click.FloatRange():
            number = "whole number" if isinstance(kind, click.IntRange) else "number"
            return BadInput(f"{name}: {value} is no {number}{_within(kind)}", hint=more)
        case click.types.IntParamType():
            return BadInput(f"{name}: {value} is no whole number", hint=more)
        case click.types.FloatParamType():
            return BadInput(f"{name}: {value} is no number", hint=more)
        case click.types.BoolParamType():
            return BadInput(f"{name}: {value} is neither true nor false", hint=f"{name}=true")
    return BadInput(f"{name}: {message}", hint=more)


def _within(kind: click.IntRange | click.FloatRange) -> str:
    if kind.min is not None and kind.max is not None:
        return f" from {kind.min:g} to {kind.max:g}"
    if kind.min is not None:
        return f" {'above' if kind.min_open else 'from'} {kind.min:g}{'' if kind.min_open else ' on'}"
    return "" if kind.max is None else f" up to {kind.max:g}"


def _name(param: click.Parameter) -> str:
    """ "--output", "SOURCE": the long form of an option."""
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return param.human_readable_name


def _usage(error: click.UsageError, command: str) -> str:
    """ "clusterip trace [OPTIONS] SOURCE DESTINATION"."""
    return " ".join(error.ctx.get_usage().removeprefix("Usage: ").split()) if error.ctx else f"{command} --help"
