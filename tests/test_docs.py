# SPDX-License-Identifier: Apache-2.0
"""docs/ builds as a site, every page of it is found, and what a page says of messages and files is so."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("**/*.md"))
CONFIG = (ROOT / "mkdocs.yml").read_text()

needs_mkdocs = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("mkdocs", "material")),
    reason="mkdocs or mkdocs-material is not installed: pip install -r requirements-test.txt",
)


def mkdocs_build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Without the notice of mkdocs-material about its successor, which is about no page of ours."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", site]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@needs_mkdocs
def test_the_site_builds_without_warnings_and_needs_no_network(tmp_path: Path) -> None:
    done = mkdocs_build(ROOT / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 0 and "WARNING" not in done.stdout + done.stderr, done.stdout + done.stderr
    for page in PAGES:
        html = (tmp_path / "site" / page.relative_to(DOCS).with_suffix(".html")).read_text()
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=\"?([^\s\">]+)", html)
        loaded += re.findall(r"<link[^>]*rel=\"?(?:stylesheet|preconnect|icon)[^>]*href=\"?([^\s\">]+)", html)
        assert loaded and not [target for target in loaded if "//" in target], f"{page.name} loads from elsewhere"


@needs_mkdocs
def test_a_link_to_a_page_that_is_not_there_is_seen(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# One\n\n[gone](gone.md)\n")
    (tmp_path / "mkdocs.yml").write_text(CONFIG.partition("nav:")[0])
    done = mkdocs_build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0 and "'gone.md'" in done.stdout + done.stderr


def test_every_page_is_in_the_nav() -> None:
    listed = re.findall(r"^ +- (\S+\.md)$", CONFIG.partition("nav:")[2], re.MULTILINE)
    assert sorted(listed) == [page.relative_to(DOCS).as_posix() for page in PAGES]
