"""Runs a program whose wall clock is off: wall_clock.py SECONDS PROGRAM ARGUMENTS...

A library that is loaded first cannot do that to a program that asks the kernel itself. So the program is traced: it
starts without the kernel's fast clock page, and every answer of clock_gettime(CLOCK_REALTIME) is moved. All other
clocks tell the truth. Linux on x86-64.
"""
import ctypes, os, signal, struct, sys

TRACEME, CONT_SYSCALL, GETREGS, SETOPTIONS = 0, 24, 12, 0x4200
SYSGOOD, TRACE_CLONE, KILL_WITH_US = 1, 8, 1 << 20
CLOCK_GETTIME, CLOCK_REALTIME, AT_IGNORE, AT_SYSINFO_EHDR = 228, 0, 1, 33
PRCTL, GET_AUXV = 157, 0x41555856
ORIG_RAX, RAX, RDI, RSI, RSP = 15, 10, 14, 13, 19

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def ptrace(request, pid, data=0):
    if libc.ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def registers(pid):
    area = (ctypes.c_ulonglong * 27)()
    ptrace(GETREGS, pid, ctypes.cast(area, ctypes.c_void_p))
    return area


def hide_fast_clock(pid):
    """At the first instruction the stack holds argc, the arguments, the environment and then pairs of numbers."""
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        def word(at):
            memory.seek(at)
            return struct.unpack("Q", memory.read(8))[0]
        at = registers(pid)[RSP]
        at += 8 * (word(at) + 2)
        while word(at):
            at += 8
        at += 8
        while word(at) not in (0, AT_SYSINFO_EHDR):
            at += 16
        memory.seek(at)
        memory.write(struct.pack("Q", AT_IGNORE))


def hide_it_again(pid, state):
    """The kernel keeps its own list of those pairs, and hands it out."""
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for at in range(state[RSI], state[RSI] + state[RAX], 16):
            memory.seek(at)
            if struct.unpack("Q", memory.read(8))[0] == AT_SYSINFO_EHDR:
                memory.seek(at)
                memory.write(struct.pack("Q", AT_IGNORE))


def move(pid, seconds):
    state = registers(pid)
    if (state[ORIG_RAX], state[RDI]) == (PRCTL, GET_AUXV):
        hide_it_again(pid, state)
    if (state[ORIG_RAX], state[RDI]) != (CLOCK_GETTIME, CLOCK_REALTIME):
        return 0
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(state[RSI])
        now = struct.unpack("q", memory.read(8))[0]
        memory.seek(state[RSI])
        memory.write(struct.pack("q", now + seconds))
    return 1


def main():
    seconds, command = int(sys.argv[1]), sys.argv[2:]
    first = os.fork()
    if first == 0:
        libc.ptrace(TRACEME, 0, None, None)
        os.execv(command[0], command)
    os.waitpid(first, 0)
    ptrace(SETOPTIONS, first, SYSGOOD | TRACE_CLONE | KILL_WITH_US)
    hide_fast_clock(first)
    ptrace(CONT_SYSCALL, first)
    inside, moved = set(), 0
    while True:
        pid, status = os.waitpid(-1, 0x40000000)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if pid != first:
                continue
            print(f"wall clock moved {moved} times", file=sys.stderr)
            sys.exit(os.waitstatus_to_exitcode(status))
        got, deliver = os.WSTOPSIG(status), 0
        if got == signal.SIGTRAP | 0x80:
            if pid in inside:
                moved += move(pid, seconds)
            inside ^= {pid}
        elif got not in (signal.SIGTRAP, signal.SIGSTOP):
            deliver = got
        try:
            ptrace(CONT_SYSCALL, pid, deliver)
        except OSError:
            pass  # It ended meanwhile.


main()
