"""Stands before a server and keeps what it is sent, so that a test can count the calls that reached it.

    tap.py stdio LOG COMMAND...     passes its input on to the command and appends it to LOG
    tap.py tcp LOG PORT             prints its own address, and passes connections on to a port of this machine

Nothing is read into the bytes; answers are passed back as they are.
"""

import os
import socket
import subprocess
import sys
import threading


def pump(read, write, end, log=None):
    while chunk := read(65536):
        if log is not None:
            os.write(log, chunk)
        write(chunk)
    end()


def hang_up(peer):
    try:
        peer.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # it hung up first


def guarded(*arguments):
    try:
        pump(*arguments)
    except OSError:
        pass  # a connection that breaks is passed on by ending ours


def tcp(log, port):
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    while True:
        client, _ = listening.accept()
        server = socket.create_connection(("127.0.0.1", port))
        ways = [
            (client.recv, server.sendall, lambda s=server: hang_up(s), log),
            (server.recv, client.sendall, lambda c=client: hang_up(c)),
        ]
        for way in ways:
            threading.Thread(target=guarded, args=way, daemon=True).start()


def stdio(log, command):
    child = subprocess.Popen(command, stdin=subprocess.PIPE)
    threading.Thread(
        target=guarded,
        args=(lambda n: os.read(0, n), lambda b: os.write(child.stdin.fileno(), b), child.stdin.close, log),
        daemon=True,
    ).start()
    sys.exit(child.wait())


log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
if sys.argv[1] == "stdio":
    stdio(log, sys.argv[3:])
else:
    tcp(log, int(sys.argv[3]))
