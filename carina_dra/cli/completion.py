"""`carina completion`: what a shell needs so that it completes the command line of `carina`."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from typing import Final

from argcomplete.shell_integration import shellcode

from carina_dra.cli.command import Command

__all__ = ["COMMAND"]

_SHELLS: Final = ("bash", "fish", "zsh")
_EXAMPLES: Final = """\
examples:
  bash, in ~/.bashrc:                    eval "$(carina completion bash)"
  zsh, in ~/.zshrc, after compinit:      eval "$(carina completion zsh)"
  fish, in ~/.config/fish/config.fish:   carina completion fish | source

kubectl completes `kubectl carina` by itself if kubectl_complete-carina is in the PATH.
"""


def run(arguments: Namespace) -> int:
    """Prints the shell's code."""
    print(shellcode(["carina"], shell=arguments.shell))
    return 0


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument("shell", choices=_SHELLS, help="the shell")


COMMAND: Final = Command(_add_arguments, run)
