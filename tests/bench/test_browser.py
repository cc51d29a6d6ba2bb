"""The page in a real browser: nothing runs out of a phone's width, and a picture can be drawn of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
#: Pixels of a phone, a small window and a desk.
WIDTHS = (360, 800, 1280)
#: The browser says in the title how wide the page is, every part of it opened.
MEASURE = """<script>
for (const each of document.querySelectorAll("details")) each.open = true;
document.title = document.documentElement.scrollWidth + " of " + window.innerWidth + ", "
  + matchMedia("(prefers-color-scheme: dark)").matches + ", " + getComputedStyle(document.body).backgroundColor;
</script>"""


@pytest.fixture(scope="module")
def run(headrace: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all that a page can have: rounds, latencies, a sweep."""
    if not BROWSER:
        said = "no chromium: apt-get install --no-install-recommends chromium"
        pytest.fail(said) if os.environ.get("CI") == "true" else pytest.skip(said)
    folder = tmp_path_factory.mktemp("page")
    files = []
    for action in ("run", "latency", "sweep"):
        files.append(str(folder / f"{action}.json"))
        words = ["tcp-echo", "--contenders", "asyncio,asyncio-streams", "--cases", "1 KB", "--quick"]
        done = [*headrace, "bench", action, *words, "--json", files[-1]]
        subprocess.run(done, check=True, capture_output=True, timeout=100)
    page = folder / "page.html"
    subprocess.run([*headrace, "bench", "report", *files, "--html", str(page)], check=True, timeout=60)
    return page


def shown(page: Path, folder: Path, width: int, *options: str) -> str:
    """The page's title when the browser has laid it out."""
    measured = folder / "measured.html"
    measured.write_text(page.read_text().replace("</body>", MEASURE + "</body>"))
    words = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder}/profile",
        *options,
    ]
    words += [f"--window-size={width},900", "--dump-dom", measured.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=True)
    found = re.search(r"<title>([^<]*)</title>", done.stdout)
    assert found is not None
    return found.group(1)


@pytest.mark.once
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_its_window(run: Path, tmp_path: Path, width: int):
    wide, _, window = shown(run, tmp_path, width).partition(",")[0].partition(" of ")
    assert int(wide) <= int(window)


@pytest.mark.once
def test_a_dark_browser_gets_a_dark_page(run: Path, tmp_path: Path):
    light = shown(run, tmp_path, 800)
    dark = shown(run, tmp_path, 800, "--force-dark-mode")
    assert "false" in light and "true" in dark
    assert light.partition("rgb")[2] != dark.partition("rgb")[2]


@pytest.mark.once
def test_a_picture_is_drawn_of_chosen_cases(run: Path, tmp_path: Path):
    out = tmp_path / "picture.png"
    words = [
        sys.executable,
        str(ROOT / "tools" / "report_picture.py"),
        str(run.parent / "run.json"),
        str(out),
    ]
    done = subprocess.run(
        [*words, "--show", "tcp-echo:1 KB"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert out.read_bytes().startswith(b"\x89PNG") and 5_000 < out.stat().st_size < 300_000
    done = subprocess.run(
        [*words, "--show", "nothing"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "tcp-echo" in done.stderr
    assert json.loads((run.parent / "run.json").read_text())["tool"] == "headrace bench"
