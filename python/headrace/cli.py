"""The ``headrace`` command: finds the part that a subcommand names, parses, runs it.

Each part has a module ``command.py`` with ``HELP`` (one line), ``configure(parser)`` and ``run(args) -> int``.
It is imported only when its command is asked for: ``headrace serve`` must not pay for the bench.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
from collections.abc import Callable, Sequence

#: Subcommand, the module that has it, and its line in ``headrace --help``.
COMMANDS = {
    "serve": ("headrace.server.command", "serve an ASGI, WSGI or Tornado application"),
    "load": ("headrace.load.command", "generate load and measure latency"),
    "bench": ("headrace.bench.command", "compare stacks on the same workload"),
}


class UsageError(Exception):
    """A mistake that the user can mend: printed as one line, exit status 2, no traceback."""


def version() -> str:
    """The line that ``headrace --version`` prints: version, build profile, commit, compiler, interpreter."""
    from headrace._native import build_info

    build = build_info()
    return (
        f"headrace {build['version']} ({build['profile']} build of {build['commit']}, {build['rustc']}, "
        f"{sys.implementation.name} {sys.version.split()[0]})"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    :param argv: the words after ``headrace``; by default the process's.
    :returns: the exit status: 0 well, 1 failed, 2 wrong usage, 130 interrupted.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="headrace", description="A native runtime for Python network services."
    )
    parser.add_argument("--version", action="store_true", help="say what this build is, and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    wanted = next((word for word in words if not word.startswith("-")), None)
    run = None
    for name, (module_name, line) in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=line, description=line)
        if name == wanted:
            module = importlib.import_module(module_name)
            module.configure(subparser)
            run = module.run
    args, unknown = parser.parse_known_args(words)
    try:
        if unknown:
            raise UsageError(_unknown(unknown[0], subparsers.choices.get(args.command, parser)))
        return _run(parser, args, run)
    except UsageError as error:
        print(f"headrace: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output left (``headrace bench list | head``).
        sys.stderr.close()
        return 0


def _run(
    parser: argparse.ArgumentParser, args: argparse.Namespace, run: Callable[[argparse.Namespace], int] | None
) -> int:
    if args.version:
        print(version())
        return 0
    if run is None:
        parser.print_help()
        return 2
    return int(run(args))


def _unknown(word: str, parser: argparse.ArgumentParser) -> str:
    """What to say of a word that nobody knows: the nearest one that is known, if there is any."""
    if not word.startswith("-"):
        return f"unexpected argument {word!r}"
    word = word.partition("=")[0]
    known = [name for action in parser._actions for name in action.option_strings]
    nearest = difflib.get_close_matches(word, known, 1)
    return f"there is no option {word}" + (f"; did you mean {nearest[0]}?" if nearest else "; see --help")


if __name__ == "__main__":
    sys.exit(main())
