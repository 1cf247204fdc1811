"""Types at a real shell on a terminal of its own: runs a command through oncely, stops it, resumes it.

usage: job.py ONCELY DIRECTORY; ends with 0 if the screen showed all that it should, else shows the screen.
"""
import os
import pty
import select
import sys
import time

ONCELY, DIRECTORY = sys.argv[1:3]
# Far beyond what a busy machine needs: a hang ends here.
PATIENCE_SECONDS = 60

child, terminal = pty.fork()
if child == 0:
    os.chdir(DIRECTORY)
    environment = dict(os.environ, PS1="ready> ", ONCELY_STORE=f"sqlite:{DIRECTORY}/ledger.db", TERM="dumb")
    os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], environment)

screen = b""
seen = 0


def type_in(keys):
    os.write(terminal, keys)


def expect(text):
    """Waits until the text shows up behind all that was expected before."""
    global screen, seen
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (at := screen.find(text, seen)) < 0:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([terminal], [], [], left)[0]:
            sys.exit(f"{text!r} was not seen. The screen:\n{screen.decode(errors='replace')}")
        screen += os.read(terminal, 4096)
    seen = at + len(text)


expect(b"ready> ")
with open(f"{DIRECTORY}/command", "w") as file:
    file.write("echo started\nread line\necho got $line\necho once >> effects\n")
type_in(f"{ONCELY} run --key job -- sh command\n".encode())
expect(b"started")
type_in(b"\x1a")
expect(b"Stopped")
expect(b"ready> ")
type_in(b"fg\n")
type_in(b"hello\n")
expect(b"got hello")
expect(b"ready> ")
# Started in the background, it may read once it is brought to the foreground.
type_in(f"{ONCELY} run --key other -- sh command &\n".encode())
expect(b"ready> ")
type_in(b"fg\n")
type_in(b"again\n")
expect(b"got again")
expect(b"ready> ")
type_in(b"exit\n")
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
