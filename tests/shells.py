"""A shell in which `dosimeter` starts at once: forked from a process that has imported it.

A page of thirty commands would spend most of its time on imports. Each command still has a
process of its own, with the shell's arguments, folder, environment and streams.
"""

import contextlib
import importlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys

CALL = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as there:
    there.connect({address!r})
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(there, [len(request).to_bytes(8, "big")], [0, 1, 2])
    there.sendall(request)
    code = there.recv(1)
sys.exit(code[0] if code else 255)
"""

LOADED = (
    *("rich.console", "rich.table", "sqlite3"),
    *("dosimeter.cli.app", "dosimeter.ledger.audit", "dosimeter.ledger.ledger"),
    "dosimeter.service",
)
"""What is imported before anybody calls."""


@contextlib.contextmanager
def shell(folder):
    """The environment of a shell whose `dosimeter` and `python` are those under test."""
    programs = pathlib.Path(folder) / "bin"
    programs.mkdir(exist_ok=True)
    address = str(programs / "socket")
    for name, text in {
        "dosimeter": CALL.format(python=sys.executable, address=address),
        "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
    }.items():
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if k not in ("DOSIMETER_DB", "COLUMNS")}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    listening = socket.socket(socket.AF_UNIX)
    with listening:
        pathlib.Path(address).unlink(missing_ok=True)  # of a shell before this one
        listening.bind(address)
        listening.listen()
        handed = listening.fileno()
        server = subprocess.Popen([sys.executable, __file__, str(handed)], pass_fds=[handed])
    try:
        yield {**kept, "PATH": path, "PYTHONIOENCODING": "utf-8"}
    finally:
        server.terminate()
        server.wait()


def serve(listening):
    """Answers every call by a process of its own."""
    for name in LOADED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        call, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            answer(call)
            os._exit(0)
        call.close()


def answer(call):
    """Runs a command, and ends it when its caller is gone."""
    size, streams, _, _ = socket.recv_fds(call, 8, 3)
    text = b""
    while len(text) < int.from_bytes(size, "big"):
        text += call.recv(1 << 16)
    words, folder, environment = json.loads(text)
    child = os.fork()
    if child == 0:
        call.close()
        run(words, folder, environment, streams)
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(child)
    ready, _, _ = select.select([ended, call], [], [])
    if ended not in ready:
        os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):
        call.send(bytes([code if code >= 0 else 128 - code]))


def run(words, folder, environment, streams):
    """The command in this process, which ends with it."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["dosimeter", *words]
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        mode = "r" if number == 0 else "w"
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))
    from dosimeter.cli import main

    code = 1
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
