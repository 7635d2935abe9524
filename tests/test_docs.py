# SPDX-License-Identifier: Apache-2.0
"""docs/ builds as a site, every page of it is found, and what a page says of messages and files is so."""

from __future__ import annotations

import ast
import importlib.util
import itertools
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


# -- The messages of docs/troubleshooting.md --------------------------------------------------------------------------------------

# The place of the problem among the arguments of each call that tells of one.
TELLS = {"findings.error": 1, "findings.warn": 1, "self.error": 0, "Refused": 2, "Unreadable": 2, "_bad": 2, "_none": 4}
# Whatever goes wrong in these is in the page: what a file, its data or an option can be refused for. Others have their common ones.
COVERED = [
    "reader",
    "nodes",
    "hdf5",
    "discretise",
    "schedule",
    "quantise",
    "pipeline",
    "data",
    "options",
    "names",
    "api",
    "scons/request",
]
GAP = "..."


def texts_of(node: ast.expr | None, scope: ast.AST) -> list[str]:
    """What an expression may be as text, with GAP for what is put in; [] where that is not to be seen."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return ["".join(part.value if isinstance(part, ast.Constant) else GAP for part in node.values)]
    if isinstance(node, ast.IfExp):
        return texts_of(node.body, scope) + texts_of(node.orelse, scope)
    if isinstance(node, ast.BinOp):
        return [a + b for a in texts_of(node.left, scope) or [GAP] for b in texts_of(node.right, scope) or [GAP]]
    if isinstance(node, ast.Name):
        assigned = (a for a in ast.walk(scope) if isinstance(a, ast.Assign) and ast.unparse(a.targets[0]) == node.id)
        return [text for a in assigned for text in texts_of(a.value, scope)]
    return []


def problems(file: Path) -> list[str]:
    """The texts of every problem that a module tells of, with its remedy behind."""
    found = []
    for scope in ast.walk(ast.parse(file.read_text())):
        if isinstance(scope, ast.FunctionDef) and scope.name not in TELLS:
            for call in ast.walk(scope):
                if isinstance(call, ast.Call) and (at := TELLS.get(ast.unparse(call.func))) is not None:
                    parts = [texts_of(part, scope) or [GAP] for part in call.args[at : at + 2]]
                    found += ["; ".join(words) for words in itertools.product(*parts) if words[0] != GAP]
    return found


def literals() -> list[str]:
    """Every text in the package, and sconsw."""
    found = [(ROOT / "sconsw").read_text()]
    for file in (ROOT / "snn_builder").glob("**/*.py"):
        tree = ast.parse(file.read_text())
        found += [text for node in ast.walk(tree) if isinstance(node, ast.expr) for text in texts_of(node, node)]
    return found


def says(text: str, fragment: str) -> bool:
    """Whether the fixed parts of a fragment are in the text, in order."""
    at = 0
    for part in filter(None, map(str.strip, fragment.split(GAP))):
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def fragments() -> list[str]:
    page = (DOCS / "troubleshooting.md").read_text()
    return re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)


def test_the_messages_are_in_the_source() -> None:
    known = literals()
    assert len(fragments()) > 80
    for fragment in fragments():
        assert len(re.sub(r"\W|\.\.\.", "", fragment)) >= 6, f"'{fragment}' says too little to be found by"
        assert any(says(text, fragment) for text in known), f"no message says '{fragment}'"


@pytest.mark.parametrize("module", COVERED)
def test_the_page_has_every_message_of(module: str) -> None:
    told = problems(ROOT / "snn_builder" / f"{module}.py")
    assert told
    shown = fragments()
    assert [text for text in told if not any(says(text, fragment) for fragment in shown)] == []
