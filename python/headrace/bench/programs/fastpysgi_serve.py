"""Runs fastpysgi on an application named ``MODULE:ATTR``."""

from __future__ import annotations

import argparse
import importlib

import fastpysgi
from bench_support import host_port


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("app", metavar="MODULE:ATTR")
    parser.add_argument("interface", choices=("asgi", "wsgi"))
    parser.add_argument("--bind", required=True)
    args = parser.parse_args()
    module, _, name = args.app.partition(":")
    app = getattr(importlib.import_module(module), name)
    host, port = host_port(args.bind)
    fastpysgi.run(app, host, port)


if __name__ == "__main__":
    main()
