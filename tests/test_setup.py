# SPDX-License-Identifier: Apache-2.0
"""Set-up: sconsw, with stubs for Python and pip, so without a network; requirements, packaging, licence lines."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import snn_builder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
MAKING = "sconsw: making .venv with Python 3.11 (once; downloads about 290 MB)\n"
ADDING = "sconsw: adding the test tools to .venv (once; downloads about 140 MB)\n"
WAITING = "sconsw: waiting for another run to set up .venv\n"
MADE = ["venv", "pip requirements.txt"]
TOOLS = ("cat", "cksum", "readlink")  # all that a run without an installation takes from PATH

# A Python that answers -c truly but for its version and modules, and writes down what else it is asked to do. pip fails
# while there is a file pip-fails, and takes as long as there is a file pip-waits.
STUB = """#!/bin/sh
case "$1 $2" in
'-c '*)
    exec {python} -c "import sys; sys.version_info = ({major}, {minor}, 0, 'final', 0); sys.executable = '$0'; {prelude}
$2" ;;
'-m venv')
    echo venv >>{log}
    mkdir -p "$3/bin" && ln -s "$0" "$3/bin/python" ;;
'-m pip')
    shift 2
    for last; do :; done
    echo "pip ${{last##*/}}" >>{log}
    echo "PIP_USER=$PIP_USER" >{log}.pip
    printf '<%s>' "$@" >>{log}.pip
    while [ -e {folder}/pip-waits ]; do sleep 0.02; done
    [ ! -e {folder}/pip-fails ] || {{ echo 'ERROR: no network'; exit 1; }} ;;
*)
    shift
    printf 'scons' >>{log}
    [ $# -eq 0 ] || printf ' <%s>' "$@" >>{log}
    echo >>{log}
    exit 3 ;;
esac
"""


def link_tool(name: str, folder: Path) -> None:
    found = shutil.which(name)
    assert found, name
    (folder / name).symlink_to(found)


class Checkout:
    """A folder with sconsw and short requirement files in it, and a PATH of its own. The folder's name has spaces."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "a check out"
        self.bin = folder / "bin"
        self.log = folder / "log"
        self.venv = self.root / ".venv"
        self.environment = {"PATH": str(self.bin)}
        self.root.mkdir()
        self.bin.mkdir()
        shutil.copy2(ROOT / "sconsw", self.root)
        for name in ("requirements.txt", "requirements-test.txt"):
            (self.root / name).write_text(f"# {name}\n")
        for tool in (*TOOLS, "ln", "mkdir", "rm", "sleep", "uname"):
            link_tool(tool, self.bin)

    def python(self, name: str = "python3", version: tuple[int, int] = (3, 11), prelude: str = "") -> Path:
        """Put a stub on PATH. Prelude is Python that runs before what the stub is given with -c."""
        path = self.bin / name
        path.write_text(
            STUB.format(
                python=shlex.quote(sys.executable),
                major=version[0],
                minor=version[1],
                prelude=prelude,
                log=shlex.quote(str(self.log)),
                folder=shlex.quote(str(self.folder)),
            )
        )
        path.chmod(0o755)
        return path

    def leave_on_path(self, *tools: str) -> None:
        """From now on PATH has these and no Python."""
        folder = self.folder / "tools"
        folder.mkdir()
        for tool in tools:
            link_tool(tool, folder)
        self.environment["PATH"] = str(folder)

    def start(self, *arguments: str, cwd: Path | None = None, command: Path | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(command or self.root / "sconsw"), *arguments],
            cwd=cwd or self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, cwd: Path | None = None, command: Path | None = None) -> tuple[int, str]:
        """Run sconsw; its exit status and what it wrote to stderr. It writes nothing to stdout, which is SCons's."""
        process = self.start(*arguments, cwd=cwd, command=command)
        out, err = process.communicate(timeout=60)
        assert out == ""
        return process.returncode, err

    def taken_log(self) -> list[str]:
        """What the stubs were asked to do since the last call."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines

    def wait_for(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture
def made(checkout: Checkout) -> Checkout:
    """A checkout after the first run."""
    checkout.python()
    assert checkout.run() == (3, MAKING)
    assert checkout.taken_log() == [*MADE, "scons"]
    return checkout


def test_first_run_makes_the_environment(checkout: Checkout) -> None:
    checkout.python()
    assert checkout.run("model=a b.nir", "-j2", "") == (3, MAKING)
    assert checkout.taken_log() == [*MADE, "scons <model=a b.nir> <-j2> <>"]


def test_second_run_needs_neither_python_nor_network(made: Checkout) -> None:
    made.leave_on_path(*TOOLS)
    assert made.run("run") == (3, "")
    assert made.taken_log() == ["scons <run>"]


def test_pip_checks_hashes_and_builds_nothing(made: Checkout) -> None:
    user, arguments = Path(f"{made.log}.pip").read_text().splitlines()
    assert user == "PIP_USER=0"  # a `user = true` in somebody's pip.conf is an error in a venv
    assert arguments.startswith("<install><--quiet>")
    assert "<--only-binary><:all:>" in arguments
    assert arguments.endswith(f"<--require-hashes><-r><{made.root}/requirements.txt>")


@pytest.mark.parametrize("target", ["test", "bench"])
def test_test_tools_come_when_asked_for(made: Checkout, target: str) -> None:
    assert made.run("board=host", target) == (3, ADDING)
    assert made.taken_log() == ["pip requirements-test.txt", f"scons <board=host> <{target}>"]
    assert made.run(target) == made.run() == (3, "")
    assert made.taken_log() == [f"scons <{target}>", "scons"]


def test_test_tools_need_no_other_python(made: Checkout) -> None:
    made.leave_on_path(*TOOLS, "uname")
    assert made.run("test") == (3, ADDING)


def test_first_run_of_the_tests(checkout: Checkout) -> None:
    checkout.python()
    assert checkout.run("test") == (3, MAKING + ADDING)
    assert checkout.taken_log() == [*MADE, "pip requirements-test.txt", "scons <test>"]


@pytest.mark.parametrize("argument", ["name=test", "tests", "-test"])
def test_what_only_looks_like_a_target_brings_no_test_tools(made: Checkout, argument: str) -> None:
    assert made.run(argument) == (3, "")


def test_changed_requirements_make_it_anew(made: Checkout) -> None:
    made.run("test")
    made.taken_log()
    (made.venv / "left over").touch()
    (made.root / "requirements.txt").write_text("# other\n")
    assert made.run("run") == (3, MAKING)
    assert made.taken_log() == [*MADE, "scons <run>"]
    assert not (made.venv / "left over").exists()
    assert made.run("test") == (3, ADDING)


def test_touched_requirements_change_nothing(made: Checkout) -> None:
    os.utime(made.root / "requirements.txt", (1, 1))
    assert made.run() == (3, "")


def test_changed_test_requirements_are_added(made: Checkout) -> None:
    made.run("test")
    made.taken_log()
    (made.root / "requirements-test.txt").write_text("# other\n")
    assert made.run() == (3, "")
    assert made.run("test") == (3, ADDING)
    assert made.taken_log() == ["scons", "pip requirements-test.txt", "scons <test>"]


def test_failed_installation_is_begun_again(checkout: Checkout) -> None:
    checkout.python()
    (checkout.folder / "pip-fails").touch()
    problem = "ERROR: no network\nsconsw: pip could not install requirements.txt, see above; the next run tries again\n"
    assert checkout.run() == checkout.run() == (2, MAKING + problem)
    assert checkout.taken_log() == 2 * MADE
    (checkout.folder / "pip-fails").unlink()
    assert checkout.run() == (3, MAKING)


def test_failed_test_tools_leave_the_rest_usable(made: Checkout) -> None:
    (made.folder / "pip-fails").touch()
    assert made.run("test")[0] == 2
    assert made.run("run") == (3, "")
    (made.folder / "pip-fails").unlink()
    assert made.run("test") == (3, ADDING)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_installation_is_begun_again(checkout: Checkout, number: signal.Signals) -> None:
    checkout.python()
    waits = checkout.folder / "pip-waits"
    waits.touch()
    process = checkout.start()
    checkout.wait_for(lambda: checkout.log.exists() and "pip" in checkout.log.read_text())
    os.killpg(process.pid, number)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert checkout.taken_log() == MADE
    waits.unlink()
    assert checkout.run() == (3, MAKING)
    assert checkout.taken_log() == [*MADE, "scons"]


def test_two_first_runs_at_once(checkout: Checkout) -> None:
    checkout.python()
    waits = checkout.folder / "pip-waits"
    waits.touch()
    first = checkout.start("first")
    checkout.wait_for(lambda: checkout.log.exists() and "pip" in checkout.log.read_text())
    second = checkout.start("second")
    assert second.stderr
    assert second.stderr.readline() == WAITING
    waits.unlink()
    assert first.communicate(timeout=60) == ("", MAKING)
    assert second.communicate(timeout=60) == ("", "")
    assert (first.returncode, second.returncode) == (3, 3)
    assert sorted(checkout.taken_log()) == ["pip requirements.txt", "scons <first>", "scons <second>", "venv"]


def test_no_python(checkout: Checkout) -> None:
    problem = "sconsw: python3 not found; run: apt-get install python3 python3-venv, or name a Python 3.10 to 3.14 in SNN_PYTHON\n"
    assert checkout.run() == (2, problem)


@pytest.mark.parametrize("version", [(2, 7), (3, 9), (3, 15)])
def test_python_of_a_version_without_wheels(checkout: Checkout, version: tuple[int, int]) -> None:
    checkout.python(version=version)
    found = f"{version[0]}.{version[1]}"
    problem = f"sconsw: python3 is Python {found}, 3.10 to 3.14 is needed; install one, or name one in SNN_PYTHON\n"
    assert checkout.run() == (2, problem)
    assert checkout.taken_log() == []


@pytest.mark.parametrize("version", [(3, 10), (3, 14)])
def test_oldest_and_newest_python(checkout: Checkout, version: tuple[int, int]) -> None:
    checkout.python(version=version)
    assert checkout.run() == (3, MAKING.replace("3.11", f"{version[0]}.{version[1]}"))


def test_python_without_ensurepip(checkout: Checkout) -> None:
    checkout.python(prelude="sys.modules['ensurepip'] = None")
    assert checkout.run() == (2, "sconsw: Python 3.11 cannot make a venv; run: apt-get install python3.11-venv\n")
    assert checkout.taken_log() == []
    assert not checkout.venv.exists()


def test_next_python_is_taken_where_the_first_will_not_do(checkout: Checkout) -> None:
    checkout.python(version=(3, 9))
    checkout.python("python3.13", version=(3, 13), prelude="sys.modules['ensurepip'] = None")
    checkout.python("python3.12", prelude="sys.exit('a shim without an interpreter behind it')")
    checkout.python("python3.11")
    assert checkout.run() == (3, MAKING)


def test_snn_python_is_taken_at_its_word(checkout: Checkout) -> None:
    checkout.python()
    checkout.environment["SNN_PYTHON"] = "python3.9"
    assert checkout.run()[1].startswith("sconsw: python3.9 not found; run: ")
    checkout.python("python3.9", version=(3, 9))
    assert checkout.run()[1].startswith("sconsw: python3.9 is Python 3.9, ")
    checkout.environment["SNN_PYTHON"] = str(checkout.python("python3.12", version=(3, 12)))
    assert checkout.run() == (3, MAKING.replace("3.11", "3.12"))


def test_another_snn_python_makes_it_anew(made: Checkout) -> None:
    other = made.python("other python", version=(3, 13))
    made.environment["SNN_PYTHON"] = str(other)
    assert made.run() == (3, MAKING.replace("3.11", "3.13"))
    assert made.run() == (3, "")
    del made.environment["SNN_PYTHON"]
    assert made.run() == (3, "")


def test_replaced_interpreter_makes_it_anew(made: Checkout) -> None:
    """As when a distribution goes from one Python to the next: what .venv leads to is gone, or is another one."""
    old = made.python("python3.12", version=(3, 12))
    (made.bin / "python3").unlink()
    assert made.run() == (3, MAKING.replace("3.11", "3.12"))
    new = made.python("python3.13", version=(3, 13))
    old.unlink()
    old.symlink_to(new)
    assert made.run() == (3, MAKING.replace("3.11", "3.13"))


def test_somebody_elses_venv_is_left_alone(checkout: Checkout) -> None:
    checkout.python()
    (checkout.venv / "bin").mkdir(parents=True)
    (checkout.venv / "bin" / "python").symlink_to(checkout.bin / "python3")
    problem = f"sconsw: {checkout.venv} is not of its making; remove it, or run: {checkout.venv}/bin/scons\n"
    assert checkout.run() == (2, problem)
    assert checkout.taken_log() == []
    assert (checkout.venv / "bin" / "python").exists()


def test_from_another_folder(made: Checkout) -> None:
    link = made.folder / "link"
    link.symlink_to(made.root / "sconsw")
    inside = made.root / "models"
    inside.mkdir()
    assert made.run("run", cwd=made.folder) == made.run("run", cwd=inside, command=link) == (3, "")
    assert made.taken_log() == 2 * [f"scons <-C> <{made.root}> <run>"]


def test_another_machine(checkout: Checkout) -> None:
    checkout.python()
    (checkout.bin / "uname").unlink()
    (checkout.bin / "uname").write_text("#!/bin/sh\necho Darwin arm64\n")
    (checkout.bin / "uname").chmod(0o755)
    assert checkout.run() == (2, "sconsw: needs Linux on x86-64 or aarch64, this is Darwin arm64\n")


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_shells(checkout: Checkout, shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    checkout.python()
    script = checkout.root / "sconsw"
    text = script.read_text()
    assert text.startswith("#!/bin/sh\n")
    script.write_text(f"#!{found}" + text[len("#!/bin/sh") :])
    assert checkout.run("a b") == (3, MAKING)
    assert checkout.run("test") == (3, ADDING)
    (checkout.root / "requirements.txt").write_text("# other\n")
    (checkout.folder / "pip-fails").touch()
    assert checkout.run()[0] == 2
    assert checkout.taken_log() == [*MADE, "scons <a b>", "pip requirements-test.txt", "scons <test>", *MADE]


# What lies in the repository


def tracked() -> list[Path]:
    """The files of the repository, and those that would be in it once added."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in sorted(set(result.stdout.split("\0"))) if name and (ROOT / name).is_file()]


def texts() -> Iterator[tuple[str, str]]:
    """Name and content of each text file of the repository."""
    for path in tracked():
        content = path.read_bytes()
        if b"\0" not in content:
            yield path.relative_to(ROOT).as_posix(), content.decode()


def is_source(name: str) -> bool:
    """Is this a file that a person wrote in a language? Expected results of tests are not."""
    path = Path(name)
    if path.name in ("SConstruct", "SConscript", "sconsw", "Makefile", "CMakeLists.txt") or name == ".ci/run":
        return True
    if path.parts[0] == "tests" and path.suffix != ".py":
        return False
    return path.suffix in (".py", ".c", ".h", ".S", ".ld", ".mlir", ".sh", ".cmake", ".toml", ".yaml", ".yml", ".in")


def test_sources_name_their_licence() -> None:
    def names_it(text: str) -> bool:
        first, second = [*text.splitlines(), "", ""][:2]
        return "SPDX-License-Identifier: Apache-2.0" in (second if first.startswith("#!") else first)

    sources = [(name, text) for name, text in texts() if is_source(name)]
    assert len(sources) > 20
    assert [name for name, text in sources if not names_it(text)] == []


def test_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License\n                           Version 2.0, January 2004\n" in text
    assert [n for n in range(1, 10) if f"\n   {n}. " not in text] == []
    assert "END OF TERMS AND CONDITIONS" in text


def test_no_name_of_a_machine() -> None:
    """Neither folders of whoever wrote it nor the hosts of package registries: what is here works elsewhere."""
    folders = r"(?<![\w.~$}/-])/(?:" + "|".join(("root", "work", "Users", "home/[a-z]+", "tmp/dev")) + r")\b"
    hosts = r"\b(?:" + "|".join(("pypi", r"files\.pythonhosted", "npmjs", r"deb\.debian")) + r")\.(?:org|com)\b"
    unwanted = re.compile(f"{folders}|{hosts}")
    assert unwanted.search("in /ro" + "ot/x") and unwanted.search("https://py" + "pi.org")
    assert [f"{name}: {m[0]}" for name, text in texts() for m in unwanted.finditer(text)] == []


def test_commands_are_executable() -> None:
    assert [name for name in ("sconsw", ".ci/run") if not os.access(ROOT / name, os.X_OK)] == []


# Requirements and packaging


def pinned(name: str) -> dict[str, list[tuple[str, str]]]:
    """Package -> (version, marker) of a requirements file; asserts that it is made of nothing but pins with hashes."""
    text = "".join(line for line in (ROOT / name).read_text().splitlines(True) if not line.lstrip().startswith("#"))
    pins: dict[str, list[tuple[str, str]]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        match = re.fullmatch(r"([a-z0-9-]+)==([\w.]+)(?: ; ([^-]+?))?((?:\s+--hash=sha256:[0-9a-f]{64})+)\s*", line)
        assert match, f"{name}: {line[:80]}"
        pins.setdefault(match[1], []).append((match[2], match[3] or ""))
    return pins


def wanted(name: str) -> dict[str, str]:
    """Package -> version of a .in file, an empty version where it is left open."""
    lines = [line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    split = (line.partition("==") for line in lines if line and not line.startswith("-"))
    return {package: version for package, _, version in split}


@pytest.mark.parametrize("name", ["requirements", "requirements-test"])
def test_requirements_are_pinned_with_hashes(name: str) -> None:
    pins = pinned(f"{name}.txt")
    for package, version in wanted(f"{name}.in").items():
        assert package in pins
        assert version in ("", *(found for found, _ in pins[package]))
    assert "://" not in (ROOT / f"{name}.txt").read_text()


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_version_is_one() -> None:
    assert project()["version"] == snn_builder.__version__
    assert f"## [{snn_builder.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_package_asks_for_what_is_tested() -> None:
    """pyproject.toml names the packages of the .in files, in ranges that hold the pinned versions."""
    requirements = pytest.importorskip("packaging.requirements")
    extras = project()["optional-dependencies"]
    for ranges, name in ((project()["dependencies"], "requirements"), (extras["test"], "requirements-test")):
        parsed = {r.name: r.specifier for r in map(requirements.Requirement, ranges)}
        assert sorted(parsed) == sorted(wanted(f"{name}.in"))
        for package, specifier in parsed.items():
            assert all(specifier.contains(version) for version, _ in pinned(f"{name}.txt")[package]), package


def test_wheel_holds_the_package() -> None:
    """Every folder with modules is a package, and every other file of it is package data."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    files = [path for path in tracked() if ROOT / "snn_builder" in path.parents]
    assert [f for f in files if f.suffix == ".py" and not (f.parent / "__init__.py").exists()] == []
    others = [f for f in files if f.suffix != ".py"]
    assert others
    assert [f for f in others if not any(fnmatch.fnmatch(f.name, pattern) for pattern in data)] == []
    assert (ROOT / "snn_builder" / "py.typed").exists()
    folders = {str(f.parent.relative_to(ROOT)).replace(os.sep, ".") for f in files}
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert sorted(packages) == sorted({*folders, "snn_builder._share"})
