"""The Python blocks of the documents, each run as a program of its own on a real server."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, SOON

import holdline

PAGES = [
    "README.md",
    "bindings/python/README.md",
    "docs/python.md",
    "docs/tasks/python.md",
    "docs/migrate/redis-py.md",
    "docs/migrate/python-redis-lock.md",
]
# Those marked `python run` are for other libraries: the step `examples` runs them.
BLOCK = re.compile(r"^```python(?: holdline)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(block, id=f"{page}-{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.findall((ROOT / page).read_text()), 1)
    # The build of the oldest interpreter lacks SQLite; the newest one runs these blocks too.
    if "sqlite3" not in block or importlib.util.find_spec("_sqlite3")
]


def test_each_page_has_blocks() -> None:
    pages = {str(block.id).rsplit("-", 1)[0] for block in BLOCKS}
    assert pages == set(PAGES)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs(block: str, url_of: Callable[[str], str], tmp_path: Path) -> None:
    program = tmp_path / "block.py"
    for server in ("redis://localhost", "redis://locks.example"):
        block = block.replace(server, url_of("redis"))
    program.write_text(block)
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SOON,
    )
    # It may warn: a lost lease and a late writer are logged.
    assert ran.returncode == 0, ran.stderr


def test_help_and_the_page_list_all_options() -> None:
    options, of_slots = holdline.Options.__optional_keys__, holdline.SlotOptions.__optional_keys__
    of_lock = holdline.Client.lock.__doc__ or ""
    assert [key for key in options if f"- `{key}`: " not in of_lock] == []
    of_once = holdline.Client.once.__doc__ or ""
    assert [key for key in of_slots - options if f"- `{key}`: " not in of_once] == []
    rows = [row for row in (ROOT / "docs/python.md").read_text().splitlines() if row[:3] == "| `"]
    assert [key for key in options if not any(f"`{key}`" in row for row in rows)] == []
