#!/usr/bin/env python
"""Puts tables into docs/benchmarks.md: tools/benchmarks_tables.py FILE SECTION RUN.json...

They stand between ``<!-- tables: SECTION -->`` and ``<!-- end of tables -->``; what else is in the file stays. Whoever
wants other figures there measures them anew.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.bench import report_markdown
from headrace.bench.run import read

END = "<!-- end of tables -->"


def with_tables(text: str, section: str, tables: str) -> str:
    """The text with the tables of the section in the place of those that it had.

    :raises ValueError: when the text has no such section.
    """
    begin = f"<!-- tables: {section} -->"
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"no {begin} … {END} in it")
    return f"{before}{begin}\n\n{tables}\n{END}{after}"


def main() -> int:
    """Run the tool."""
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    path, section, runs = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    found = [read(run) for run in runs]
    servers = report_markdown.glance_at_servers(found)
    loops = report_markdown.glance(found, "headrace")
    tables = f"{servers if section == 'server' else loops}\n{report_markdown.page(found)}"
    try:
        text = with_tables(path.read_text(), section, tables)
    except (OSError, ValueError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
