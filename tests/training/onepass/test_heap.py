"""Freed memory stays with the process where an engine trains on a CPU, unless others said so."""

import os
import platform
import shutil
import subprocess
import sys

import pytest

from dosimeter.training.onepass import heap

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the heap of glibc is what is set"
)

FREED = """
import ctypes, pathlib

def resident():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

def freed(pieces=200, size=2**20):
    process = ctypes.PyDLL(None)
    process.malloc.restype = ctypes.c_void_p
    taken = [ctypes.c_void_p(process.malloc(ctypes.c_size_t(size))) for _ in range(pieces)]
    for piece in taken:
        ctypes.memset(piece, 1, size)
    most = resident()
    for piece in reversed(taken):
        process.free(piece)
    return most - resident()
"""
"""How many MiB go back to the system when so many pieces of so many bytes are freed."""

ENGINE = """
import torch

import dosimeter as dm
from dosimeter.training import PrivateEngine

def engine():
    model = torch.nn.Linear(3, 2)
    data = torch.utils.data.TensorDataset(torch.zeros(9, 3), torch.zeros(9))
    PrivateEngine(dm.Odometer(1e-6)).make_private(
        model, torch.optim.SGD(model.parameters(), lr=0.1), data, noise_multiplier=1.0,
        max_grad_norm=1.0, batch_size=3,
    )
"""

HEAP = f"scope = {{}}; exec(open({heap.__file__!r}).read(), scope)\n"
"""The module without the libraries of its package."""

KEEP = HEAP + "scope['keep_freed']()\n"


def printed(code: str, **environment: str) -> list[float]:
    """The numbers that a process of its own prints."""
    others = {
        name: v for name, v in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC"))
    }
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FREED + code],
        capture_output=True, text=True, check=True, env={**others, **environment},
    )  # fmt: skip
    return [float(number) for number in run.stdout.split()]


def test_an_engine_keeps_what_is_freed():
    before, after = printed(ENGINE + "print(freed())\nengine(); print(freed())")
    assert before > 100
    assert after < 20


def test_pieces_of_some_megabytes_are_kept_too():
    (found,) = printed(KEEP + "print(freed(20, 2**23))")
    assert found < 20


def test_whatever_goes_beyond_the_most_is_given_back():
    code = HEAP + "scope['KEPT'] = 2**27; scope['keep_freed'](); print(freed(100), freed(200))"
    below, above = printed(code)
    assert below < 20
    assert above > 100


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "1048576"),
        ("MALLOC_ARENA_MAX", "1"),
        ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=1048576"),
    ],
)
def test_a_heap_that_was_set_by_others_stays_as_it_was(name, value):
    (found,) = printed(KEEP + "print(freed())", **{name: value})
    assert found > 100


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_another_allocator_in_front_is_left_alone(tmp_path):
    """The one in front hands all to glibc, so that a change of glibc would show."""
    source, library = tmp_path / "front.c", tmp_path / "front.so"
    source.write_text(
        "#include <stddef.h>\nvoid *__libc_malloc(size_t);\n"
        "void *malloc(size_t size) { return __libc_malloc(size); }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    (found,) = printed(KEEP + "print(freed())", LD_PRELOAD=str(library))
    assert found > 100


@pytest.mark.parametrize("missing", [OSError("no such library"), AttributeError("mallopt")])
def test_systems_without_glibc_are_no_error(monkeypatch, missing):
    asked = []

    def absent(name):
        asked.append(name)
        raise missing

    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(heap.ctypes, "CDLL", absent)
    heap.keep_freed()
    assert asked == ["libc.so.6"]
