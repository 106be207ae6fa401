"""Run a program in a fork of the fork server, for a test that starts it by the path of an executable.

Usage: python -IS tests/fork_launcher.py SOCKET PROGRAM [WORD ...]

The program is the command, or the interpreter with a script; with other words, the interpreter itself runs. The fork
has the streams, the folder and the environment of this process, gets its signals, and ends if it is killed.
"""

import json
import os
import signal
import socket
import sys


def main() -> None:
    address, *words = sys.argv[1:]
    if words[0] == sys.executable and not (words[1:] and words[1].endswith(".py")):
        os.execv(sys.executable, words)  # noqa: S606 - the test wrote the words
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        life, _held = os.pipe()  # the kernel closes the other end when this process ends
        socket.send_fds(server, [b"+"], [life, 0, 1, 2])
        request = {"words": words, "cwd": os.getcwd(), "env": dict(os.environ)}  # noqa: PTH109 - fast
        server.sendall(json.dumps(request).encode() + b"\n")
        replies = server.makefile("r", encoding="ascii")
        fork = int(replies.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(fork, number))
        # The other ends of the pipes must see it when the fork closes its own.
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        code = int(replies.readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
