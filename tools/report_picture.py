"""A picture of a bench report for a README: the page of chosen cases, drawn by headless Chromium.

    python tools/report_picture.py RUN.json [RUN.json ...] OUT.png [--show SCENARIO[:CASE],...] [--dark]

Needs the command ``chromium`` (or ``google-chrome``, ``chromium-browser``). The picture has to stay below 300 KB.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from headrace.bench import report_html
from headrace.bench.run import merged, read
from headrace.cli import UsageError

#: Bytes that a picture may have.
LARGEST = 350_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SHOW = "http-hello,websocket-echo,tornado-hello,tcp-echo:1 KB,redis:GET existing"
#: Pixels that the page is wide.
WIDTH = 760


def chosen(document: dict[str, Any], show: str) -> dict[str, Any]:
    """The document with nothing but the cases that are shown, in the order asked for.

    :raises UsageError: for one that the run does not have.
    """
    known = {each["name"]: each for each in document["scenarios"]}
    scenarios = []
    for word in show.split(","):
        name, _, case = word.strip().partition(":")
        if name not in known:
            raise UsageError(f"the run has no scenario {name!r}; it has: {', '.join(known)}")
        cases = [each for each in known[name]["cases"] if not case or each["name"] == case]
        if not cases:
            raise UsageError(f"{name} has no case {case!r}")
        scenarios.append({**known[name], "cases": cases[:1], "missing": []})
    return {**document, "scenarios": scenarios, "left_out": [], "sources": []}


def lean(page: str) -> str:
    """The page without what a picture cannot open (details, links), verdicts in words and the table of the machine."""
    page = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    page = re.sub(r'<ul class="verdicts">.*?</ul>', "", page, flags=re.DOTALL)
    page = re.sub(r"<nav>.*?</nav>", "", page, flags=re.DOTALL)
    return re.sub(r"<h2>Machine and method</h2>.*(?=</body>)", "", page, flags=re.DOTALL)


def browser() -> str:
    """The browser's path.

    :raises UsageError: when there is none.
    """
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise UsageError("no chromium: apt-get install --no-install-recommends chromium")
    return found


def run(words: list[str]) -> str:
    """Run the browser, and give what it printed."""
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout


def draw(page: str, out: Path, dark: bool) -> None:
    """Draw a page as high as it is."""
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder) / "page.html"
        measure = "<script>document.title = document.documentElement.scrollHeight</script>"
        where.write_text(page.replace("</body>", measure + "</body>"))
        base = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        base += [f"--user-data-dir={folder}/profile", *(["--force-dark-mode"] if dark else [])]
        found = re.search(
            r"<title>(\d+)</title>", run([*base, f"--window-size={WIDTH},400", "--dump-dom", where.as_uri()])
        )
        if found is None:
            raise UsageError("the browser did not say how high the page is")
        size = f"--window-size={WIDTH},{found.group(1)}"
        run([*base, size, f"--screenshot={out.resolve()}", where.as_uri()])


def main() -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", metavar="RUN.json")
    parser.add_argument("out", metavar="OUT.png", type=Path)
    parser.add_argument("--show", default=SHOW, help=f"cases, in their order ({SHOW})")
    parser.add_argument("--dark", action="store_true", help="as in dark mode")
    args = parser.parse_args()
    try:
        document = chosen(merged([read(file) for file in args.runs]), args.show)
        draw(lean(report_html.page(document)), args.out, args.dark)
    except UsageError as error:
        print(f"report_picture: {error}", file=sys.stderr)
        return 2
    size = args.out.stat().st_size
    print(f"{args.out}: {size / 1000:.0f} KB")
    if size > LARGEST:
        print(f"report_picture: more than {LARGEST // 1000} KB: show fewer cases", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
