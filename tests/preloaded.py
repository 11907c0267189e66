"""A `seqwright` command for shell blocks that starts in milliseconds: a server that has imported torch forks for each
call, and the child has the arguments, folder, environment and standard streams of the caller."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLIENT = """#!{python} -IS
import json, os, socket, sys
call = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [len(call).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(call)
    sys.exit(int(server.recv(8) or 1))
"""


@functools.cache
def folder() -> Path:
    """A folder with the command, for PATH; the server behind it ends with this process."""
    path = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    address = str(path / "socket")
    (path / "seqwright").write_text(CLIENT.format(python=sys.executable, address=address))
    (path / "seqwright").chmod(0o755)
    server = subprocess.Popen([sys.executable, "-m", "tests.preloaded", address], cwd=Path(__file__).parents[1])
    atexit.register(server.kill)
    while not Path(address).exists():
        assert server.poll() is None, "the server ended"
        time.sleep(0.02)
    return path


def serve(address: str) -> None:
    """Forks for each call until the process that started it ends, in whatever way."""
    import seqwright.api  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps the children
    parent = os.getppid()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        server.settimeout(1.0)
        while os.getppid() == parent:
            try:
                caller, _ = server.accept()
            except TimeoutError:
                continue
            caller.setblocking(True)
            if os.fork() == 0:
                handle(caller)
            caller.close()


def handle(caller: socket.socket) -> None:
    """Runs one call as the caller would, and sends back its exit status."""
    from seqwright.cli import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, streams, _, _ = socket.recv_fds(caller, 8, 3)
    call = b""
    while len(call) < int.from_bytes(head, "big"):
        call += caller.recv(1 << 16)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.argv, directory, environment = json.loads(call)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    status = 1
    try:
        main()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    caller.sendall(str(status).encode())
    os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
