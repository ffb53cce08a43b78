"""The `clusterip` command: finds the module of a subcommand only when that one is called.

Data goes to stdout, everything else to stderr. Exit status: 0 done, 1 it could not be done or the answer is no,
2 the input cannot be used.
"""

import importlib
import sys
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from clusterip import __version__
from clusterip.errors import BadInput, ClusterIPError

# command -> (module below clusterip.cli that holds a click command called `command`, what `--help` says of it)
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("up", "bring up a cluster of several nodes on this machine"),
    "down": ("down", "take the cluster away, all of it"),
    "status": ("status", "components, addresses, and what each node's proxy last did"),
    "mode": ("mode", "which dataplane each node has; another one while it runs"),
    "check": ("check", "reach every Service port from every kind of client"),
    "exec": ("exec", "run a command in a pod or on a node"),
    "kubeconfig": ("kubeconfig", "print the path of the cluster's kubeconfig"),
    "demo": ("demo", "walk the road of a packet on a real cluster"),
    "trace": ("trace", "where does this packet go, with which probability, by which rule"),
    "doctor": ("doctor", "what is wrong with the Services, and what to do about it"),
    "verify": ("verify", "does the kernel hold what the API says, for every packet"),
    "collect": ("collect", "all that a bug report needs to know of a node, secrets left out"),
    "rules": ("rules", "print what the proxy would write for manifests; no kernel, no root"),
    "apiserver": ("apiserver", "run the API server"),
    "controllers": ("controllers", "run the controllers"),
    "node": ("node", "run the node agent"),
    "proxy": ("proxy", "run the proxy of one node"),
    "dns": ("dns", "run the cluster's name server"),
    "echo": ("echo", "run the server behind the image clusterip/echo"),
}


class Lazy(click.Group):
    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Raises BadInput where click would print its usage, as `invoke` does for the commands below."""
        try:
            return super().make_context(*args, **kwargs)
        except NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise _in_our_words(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _in_our_words(error, ctx.invoked_subcommand or "") from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"clusterip.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _in_our_words(error: click.UsageError, subcommand: str = "") -> BadInput:
    from clusterip.cli.usage import bad_input

    return bad_input(error, f"clusterip {subcommand}".rstrip(), COMMANDS)


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="clusterip")
def cli() -> None:
    """The stable virtual address in front of a changing set of pods."""


def main() -> None:
    try:
        cli(prog_name="clusterip")
    except ClusterIPError as error:
        click.echo(f"error: {error.message}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        sys.exit(2 if isinstance(error, BadInput) else 1)
