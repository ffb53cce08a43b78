"""`clusterip proxy`: kube-proxy's job, with kube-proxy's configuration file and flags."""

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from clusterip import __version__
from clusterip.errors import BadInput, ClusterIPError
from clusterip.proxy import configfile, durations, flags, rules
from clusterip.proxy.config import ProxyConfig
from clusterip.proxy.flags import FLAGS, Flag

F = TypeVar("F", bound=Callable[..., None])

HELP = """Run the proxy of one node: keep the kernel's rules equal to the Services and EndpointSlices of the API.

Takes kube-proxy's configuration file (--config) or kube-proxy's flags; with a file most flags have no effect.

\b
  clusterip proxy --kubeconfig /etc/kubernetes/proxy.conf --cluster-cidr 10.244.0.0/16
  clusterip proxy --config /var/lib/kube-proxy/config.conf
  clusterip proxy --cleanup
"""


def _listed(words: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in words.split(",") if word.strip())


def _gates(words: str) -> dict[str, bool]:
    found = {}
    for pair in filter(None, words.split(",")):
        name, _, word = pair.partition("=")
        if word.lower() not in ("true", "false"):
            raise ValueError(f"{pair!r} must be a gate's name, =, and true or false")
        found[name.strip()] = word.lower() == "true"
    return found


# Kind of a flag -> what click makes of its word, how the help calls it, and what we make of that.
_KINDS: dict[flags.Kind, tuple[type, str | None, Callable[[Any], object]]] = {
    "text": (str, None, str),
    "bool": (bool, None, bool),
    "int": (int, None, int),
    "float": (float, None, float),
    "duration": (str, "DURATION", durations.parse),
    "list": (str, "A,B", _listed),
    "gates": (str, "NAME=BOOL,...", _gates),
}


def _with_flags(command: F) -> F:
    """Adds kube-proxy's flags, each None unless it is given."""
    for flag in reversed(FLAGS):
        command = _option(flag)(command)
    return command


def _option(flag: Flag) -> Callable[[F], F]:
    names = (f"--{flag.name}", *(("-v",) if flag.name == "v" else ()), f"flag_{flag.name.replace('-', '_')}")
    as_type, metavar, read = _KINDS[flag.kind]

    def value(_ctx: click.Context, _param: click.Parameter, word: Any) -> object:
        try:
            return None if word is None else read(word)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    if flag.kind == "bool":  # as in Go: --flag alone is true, --flag=false is false
        return click.option(*names, is_flag=False, flag_value="true", type=bool, callback=value, help=flag.help)
    return click.option(*names, type=as_type, metavar=metavar, callback=value, help=flag.help)


@click.command(help=HELP)
@click.option("--config", "config_file", metavar="FILE", help="KubeProxyConfiguration, v1alpha1")
@click.option(
    "--write-config-to", metavar="FILE", help="write the configuration, defaults and all, and end; - is stdout"
)
@click.option("--init-only", is_flag=True, flag_value=True, help="set what needs privileges, and end")
@click.option("--cleanup", is_flag=True, flag_value=True, help="take all rules away, and end")
@click.option("--master", default="", help="URL of the API server; wins over the kubeconfig's")
@click.option("--version", "show_version", is_flag=True, help="say which version this is, and end")
@_with_flags
def command(
    config_file: str | None, write_config_to: str | None, init_only: bool, cleanup: bool, master: str, **rest: Any
) -> None:
    if rest.pop("show_version"):
        click.echo(f"clusterip {__version__} (kube-proxy v1.36.0)")
        return
    given = {name.removeprefix("flag_").replace("_", "-"): v for name, v in rest.items() if v is not None}
    config, ignored = _configuration(config_file, given)
    _log(config)
    for flag in ignored:
        click.echo(f"{flag} has no effect beside --config", err=True)
    if write_config_to:
        _write(write_config_to, config)
    elif cleanup:
        _clean_up(config)
    else:
        from clusterip.proxy import process

        def read() -> ProxyConfig:
            return _configuration(config_file, given)[0]

        asyncio.run(process.run(config, process.Options(master, config_file or "", read, init_only)))


def _configuration(config_file: str | None, given: dict[str, Any]) -> tuple[ProxyConfig, tuple[str, ...]]:
    source = config_file or "command line"
    start = ProxyConfig()
    if config_file:
        try:
            start = configfile.read(Path(config_file).read_bytes(), config_file)
        except OSError as error:
            raise BadInput(f"{config_file}: cannot be read: {error.strerror}") from error
    applied = flags.apply(start, given, from_file=config_file is not None)
    return flags.switched_off(rules.complete(applied.config, source), applied.off), applied.ignored


class _Json(logging.Formatter):
    """One object a line, with the keys that Kubernetes components write."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"ts": round(record.created * 1000, 3), "level": record.levelname.lower(), "msg": record.getMessage()}
        return json.dumps(line)


def _log(config: ProxyConfig) -> None:
    handler = logging.StreamHandler(sys.stderr)
    as_json = config.logging.format == "json"
    handler.setFormatter(_Json() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = logging.DEBUG if config.logging.verbosity >= 4 else logging.INFO
    logging.basicConfig(level=level, handlers=[handler])


def _write(target: str, config: ProxyConfig) -> None:
    text = configfile.write(config)
    if target == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(target).write_text(text)
    except OSError as error:
        raise BadInput(f"{target}: cannot be written: {error.strerror}") from error


def _clean_up(config: ProxyConfig) -> None:
    from clusterip.proxy import leftovers

    errors = asyncio.run(leftovers.remove_all(directory=config.ebpf.directory))
    for error in errors:
        click.echo(f"error: {error.message}", err=True)
    if errors:
        raise ClusterIPError(f"{len(errors)} of the clean-ups failed; the rest is clean")
