"""What a reader types in a fresh clone works there, also twice, and leaves the tree clean."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest

from blocks import blocks

ROOT = pathlib.Path(__file__).parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "quick-start.md")

NETWORK = {
    "make test": "it would run this test",
    "pip install": "packages come from the network",
}
"""Commands that are not run here, and why."""

SLOW = (
    *("make demo", "dosimeter demo", "dosimeter report", "dosimeter compare"),
    *("dosimeter attack", "dosimeter audit"),
)
"""Commands that take long, or read what one of those has made."""

OWN = ("DOSIMETER_DB", "PYTHONPATH", "COLUMNS", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL")
"""What the shell of a test run sets and a reader's does not."""

TRAIN = "dosimeter train"
"""It never writes over a run: the second time it says so, and what to do."""


def git(*words, cwd):
    done = subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def clone(tmp_path):
    """The tracked files in a repository of their own, with an environment in `.venv`.

    It holds the copy in place of the tree under test, and the packages that are installed here.
    """
    try:
        names = git("ls-files", "-z", cwd=ROOT).split("\0")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this tree is no git checkout")
    clone = tmp_path / "clone"
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
    who = ("-c", "user.name=reader", "-c", "user.email=reader@example.org")
    git("init", "--quiet", cwd=clone)
    git("add", "--all", "--force", cwd=clone)
    git(*who, "commit", "--quiet", "--no-verify", "--message", "clone", cwd=clone)
    install(clone)
    source = typed(clone, "python -c 'import dosimeter; print(dosimeter.__file__)'").stdout
    assert source.startswith(str(clone)), "the commands must be those of the clone"
    return clone


def install(clone):
    """Make `.venv` without the network, and the stamps by which make knows that it is there."""
    venv = clone / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/*/site-packages")
    shared = sysconfig.get_path("purelib")
    (site / "clone.pth").write_text(f"{clone / 'src'}\n{shared}\n", encoding="utf-8")
    program = venv / "bin" / "dosimeter"
    program.write_text(
        f"#!{venv}/bin/python\nimport sys\nfrom dosimeter.cli import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    for name in ("core", "demo"):
        (venv / f"{name}.stamp").touch()


def lines():
    """Every command of the pages, in the order of a reader."""
    for page in PAGES:
        for code, _ in blocks(page, "bash"):
            for line in code.splitlines():
                if line.strip() and not line.startswith(tuple(NETWORK)):
                    yield line


def typed(clone, line):
    """One line as a reader types it, in the environment of the clone."""
    kept = {name: value for name, value in os.environ.items() if name not in OWN}
    path = f"{clone / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", line],
        cwd=clone,
        env={**kept, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def type_in(clone, line, *, again):
    """Type one line in the clone, and check how it ends."""
    done = typed(clone, line)
    if again and line.split("#")[0].strip() == TRAIN:
        assert (done.returncode, done.stdout) == (2, ""), (line, done)
        assert "go on with --resume, or choose another" in done.stderr
    else:
        assert done.returncode == 0, (line, done)


def test_what_commands_write_is_not_tracked():
    """A file that is tracked though git is told to ignore it is a leftover of somebody's."""
    try:
        tracked = git("ls-files", "--cached", "--ignored", "--exclude-standard", cwd=ROOT)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this tree is no git checkout")
    assert tracked == ""


def test_short_commands_run_twice_and_leave_the_tree_clean(clone):
    quick = [
        line
        for line in lines()
        if not line.startswith(SLOW) and (not line.startswith(TRAIN) or "--init" in line)
    ]
    assert any("budget create" in line for line in quick)
    for again in (False, True):
        for line in quick:
            type_in(clone, line, again=again)
    assert git("status", "--porcelain", cwd=clone) == ""


@pytest.mark.slow
def test_all_commands_run_twice_and_leave_the_tree_clean(clone):
    for again in (False, True):
        for line in lines():
            type_in(clone, line, again=again)
    assert git("status", "--porcelain", cwd=clone) == ""
