"""Job control as a shell sees it: this process is the shell, its terminal is a pseudo-terminal.

usage: terminal.py HOLDLINE SCENARIO

`HOLDLINE_URL` names a store of the scenario's own; files go into the current folder.

Every wait ends by an event or by the alarm, which fails the scenario.
"""

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

HOLDLINE = sys.argv[1]
DEADLINE = 240

# The command under test: it prints what it sees, and does what its first argument says.
COMMAND = r"""
import os, select, signal, sys, termios, tty
terminal = os.open("/dev/tty", os.O_RDWR)
def say(*words):
    os.write(terminal, (" ".join(map(str, words)) + "\n").encode())
task = sys.argv[1]
front = os.tcgetpgrp(terminal) == os.getpgrp()
counted = (signal.SIGINT, signal.SIGWINCH, signal.SIGCONT, signal.SIGUSR1)
if task == "count":
    signal.pthread_sigmask(signal.SIG_BLOCK, counted)
else:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
say("pid", os.getpid())
say("front", front)
if task == "count":
    counts = {}
    say("ready")
    while True:
        number = signal.sigwait(counted)
        counts[number] = counts.get(number, 0) + 1
        say("got", signal.Signals(number).name, counts[number])
        if number == signal.SIGUSR1:
            sys.exit(0)
if task == "pause":
    say("ready")
    while True:
        signal.pause()
if task == "echo":
    say("ready")
    while True:
        line = os.read(terminal, 100).decode().strip()
        say("read", line, os.tcgetpgrp(terminal) == os.getpgrp())
        if line == "end":
            sys.exit(0)
if task == "deaf":
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1,))
    say("ready")
    signal.sigwait((signal.SIGUSR1,))
    say("read", os.read(terminal, 100).decode().strip())
    sys.exit(0)
if task == "stop":
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    say("continued")
    sys.exit(4)
if task == "raw":
    tty.setraw(terminal)
    say("ready")
    os.kill(os.getpid(), signal.SIGKILL)
if task == "stubborn":
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        say("ready", os.getpid())
    while True:
        signal.pause()
"""


# What a wrapper around a leased grant does more is done with these options.
LEASED = ("--lease", "30s")


def run(command, name="n", options=()):
    return [HOLDLINE, "--quiet", "run", *options, name, "--", *command]


def wrapped(task, *more, options=()):
    return run([sys.executable, "-c", COMMAND, task, *more], options=options)


class Shell:
    """A job-control shell with one terminal."""

    def __init__(self):
        os.setsid()
        self.master, self.terminal = os.openpty()
        fcntl.ioctl(self.terminal, termios.TIOCSCTTY, 0)
        # Output as it was written, and no echo of what is typed.
        modes = termios.tcgetattr(self.terminal)
        modes[1] &= ~termios.OPOST
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(self.terminal, termios.TCSANOW, modes)
        for number in (signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        self.seen = b""

    def start(self, *commands, foreground=True):
        """Starts a pipeline as one job; returns its pids, of which the first leads."""
        pids, source = [], self.terminal
        for position, command in enumerate(commands):
            last = position + 1 == len(commands)
            reader, writer = (None, self.terminal) if last else os.pipe()
            go, release = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.read(go, 1)
                for number in (signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP, signal.SIGINT):
                    signal.signal(number, signal.SIG_DFL)
                os.dup2(source, 0)
                os.dup2(writer, 1)
                os.dup2(self.terminal, 2)
                os.closerange(3, 100)
                os.execvp(command[0], command)
            pids.append(pid)
            os.setpgid(pid, pids[0])
            if foreground and position == 0:
                os.tcsetpgrp(self.terminal, pid)
            os.write(release, b"!")
            for descriptor in (go, release):
                os.close(descriptor)
            if source != self.terminal:
                os.close(source)
            if writer != self.terminal:
                os.close(writer)
            source = reader
        return pids

    def front(self):
        return os.tcgetpgrp(self.terminal)

    def type(self, text):
        os.write(self.master, text)

    def expect(self, text):
        """Reads up to a line that starts with `text`; returns the rest of that line."""
        while True:
            line, newline, rest = self.seen.partition(b"\n")
            if newline:
                self.seen = rest
                line = line.rstrip(b"\r")
                if line.startswith(text):
                    return line[len(text):].strip().decode()
                continue
            self.seen += os.read(self.master, 1000)

    def expect_only(self, text):
        """The next line is exactly this."""
        line = self.expect(b"")
        check(line == text, f"the next line is {line!r}, not {text!r}")

    def end_of(self, pid):
        """Waits for an end and returns it as `exited N`, `killed N` or `stopped N`."""
        return ended(os.waitpid(pid, os.WUNTRACED)[1])

    def expect_end(self, pid, expected):
        end = self.end_of(pid)
        check(end == expected, f"the wrapper {end}, not {expected}; output {self.seen!r}")

    def take(self):
        os.tcsetpgrp(self.terminal, os.getpgrp())

    def resume(self, pids, foreground=True):
        if foreground:
            os.tcsetpgrp(self.terminal, pids[0])
        os.killpg(pids[0], signal.SIGCONT)


STOPPED = f"stopped {int(signal.SIGTSTP)}"


def ended(status):
    if os.WIFSTOPPED(status):
        return f"stopped {os.WSTOPSIG(status)}"
    if os.WIFSIGNALED(status):
        return f"killed {os.WTERMSIG(status)}"
    return f"exited {os.WEXITSTATUS(status)}"


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def state(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def parent(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


def await_true(condition):
    """The alarm is the deadline.

    The kernel notifies nobody here of another process's state or of the terminal's foreground.
    So this polls, and only what it has seen ends it.
    """
    while not condition():
        time.sleep(0.002)


def await_state(pid, wanted):
    await_true(lambda: state(pid) == wanted)


def foreground_from_the_first_instruction(shell):
    (wrapper,) = shell.start(wrapped("echo"))
    child = int(shell.expect(b"pid "))
    shell.expect_only("front True")
    check(shell.front() == child, "the command's group is in front")
    shell.expect(b"ready")
    shell.type(b"end\n")
    shell.expect_only("read end True")
    shell.expect_end(wrapper, "exited 0")
    check(shell.front() == wrapper, "the wrapper took the terminal back")


def interrupt_arrives_once_at_the_terminal(shell):
    (wrapper,) = shell.start(wrapped("count"))
    shell.expect(b"ready")
    shell.type(b"\x03")
    shell.expect_only("got SIGINT 1")
    # Whatever the wrapper passed on, it passed on before this.
    os.kill(wrapper, signal.SIGUSR1)
    shell.expect_only("got SIGUSR1 1")
    shell.expect_end(wrapper, "exited 0")


def interrupt_arrives_once_in_a_pipeline(shell):
    wrapper, cat = shell.start(wrapped("count"), ["sh", "-c", "trap '' INT; cat"])
    shell.expect(b"pid ")
    shell.expect_only("front False")
    shell.expect(b"ready")
    check(shell.front() == wrapper, "the pipeline keeps the terminal")
    shell.type(b"\x03")
    shell.expect_only("got SIGINT 1")
    os.kill(wrapper, signal.SIGUSR1)
    shell.expect_only("got SIGUSR1 1")
    shell.expect_end(wrapper, "exited 0")
    shell.expect_end(cat, "exited 0")


def interrupt_ends_command_and_wrapper(shell):
    for key, number in ((b"\x03", 2), (b"\x1c", 3)):
        (wrapper,) = shell.start(wrapped("pause"))
        shell.expect(b"ready")
        shell.type(key)
        shell.expect_end(wrapper, f"killed {number}")
        check(shell.front() == wrapper, "the wrapper took the terminal back")
        shell.take()


def script_around(task, ending="done; echo went on"):
    """A script that starts the command again and again."""
    return ["sh", "-c", f'while :; do "$@"; {ending}', "sh", *wrapped(task)]


def interrupt_ends_a_script_around_us(shell):
    (script,) = shell.start(script_around("pause"))
    shell.expect(b"pid ")
    shell.expect_only("front False")
    shell.expect(b"ready")
    shell.type(b"\x03")
    shell.expect_end(script, "killed 2")


def interrupt_ends_a_script_whose_command_took_the_terminal(shell):
    (script,) = shell.start(script_around("echo"))
    shell.expect(b"ready")
    shell.type(b"one\n")
    shell.expect_only("read one True")
    check(shell.front() != script, "the command has the terminal")
    shell.type(b"\x03")
    shell.expect_end(script, "killed 2")


def interrupt_ends_a_loop_in_bash(shell):
    (bash,) = shell.start(["bash", "--norc", "--noprofile", "-i"])
    words = " ".join("'" + word.replace("'", "'\\''") + "'" for word in wrapped("pause"))
    with open("loop", "w") as script:
        script.write(f"PS1=; unset PROMPT_COMMAND\nfor i in 1 2; do {words}; echo went on; done\n")
    shell.type(b". ./loop\n")
    shell.expect(b"ready")
    shell.type(b"\x03")
    shell.type(b"echo after $?\n")
    line = shell.expect(b"")
    while line != "after 130":
        check(line != "went on", "the loop went on")
        line = shell.expect(b"")
    shell.type(b"exit 0\n")
    shell.expect_end(bash, "exited 0")


class Holder:
    """Has the name, in a session of its own."""

    def __enter__(self):
        command = run(["sh", "-c", "echo up; read line"])
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
        check(self.process.stdout.readline() == b"up\n", "the holder runs")
        return self

    def __exit__(self, *_):
        self.let_go()

    def await_waiting(self):
        """Waits until somebody waits for the name."""
        who = [HOLDLINE, "--json", "who", "n"]
        await_true(lambda: json.loads(subprocess.check_output(who))["queue_length"] == 1)

    def let_go(self):
        self.process.stdin.close()
        self.process.wait()


def interrupt_ends_the_wait(shell):
    with Holder() as holder:
        (wrapper,) = shell.start(wrapped("pause"))
        holder.await_waiting()
        shell.type(b"\x03")
        shell.expect_end(wrapper, "killed 2")


def stop_while_waiting(shell):
    with Holder() as holder:
        pids = shell.start(wrapped("echo"))
        holder.await_waiting()
        shell.type(b"\x1a")
        shell.expect_end(pids[0], STOPPED)
        shell.take()
        shell.resume(pids)
        holder.let_go()
        shell.expect(b"pid ")
        shell.expect_only("front True")
        shell.expect(b"ready")
        shell.type(b"end\n")
        shell.expect_only("read end True")
        shell.expect_end(pids[0], "exited 0")


def stop_while_connecting(shell):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = "redis://127.0.0.1:%d/?connect_timeout_ms=60000" % silent.getsockname()[1]
        pids = shell.start(run(["true"], options=("--url", url)))
        connection, _ = silent.accept()
        with connection:
            shell.type(b"\x1a")
            shell.expect_end(pids[0], STOPPED)
            shell.take()
            shell.resume(pids)
            shell.type(b"\x03")
            shell.expect_end(pids[0], f"killed {int(signal.SIGINT)}")


def stopped_at_the_start(shell, options=()):
    """Starts a wrapper that is stopped by ^Z when it has the name and opens the program's file."""
    with open("program", "w") as program:
        program.write("#!/bin/sh\necho started\n")
    os.chmod("program", 0o755)
    file = os.open("program", os.O_RDWR)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGIO,))
    # While we have a lease on the file, a process that opens it waits until we give it back.
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    pids = shell.start(run(["./program"], options=options))
    signal.sigwait((signal.SIGIO,))
    # What the terminal does for ^Z, but done when this returns.
    os.killpg(pids[0], signal.SIGTSTP)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    os.close(file)
    shell.expect_end(pids[0], STOPPED)
    shell.take()
    return pids


def stop_at_the_start_outlasts_the_lease(shell):
    pids = stopped_at_the_start(shell, options=("--lease", "6s", "--grace", "50ms"))
    # The lease of the one that is stopped ends, and another gets the name.
    subprocess.check_call(run(["true"]))
    shell.resume(pids)
    shell.expect_end(pids[0], "exited 79")
    fcntl.fcntl(shell.master, fcntl.F_SETFL, os.O_NONBLOCK)
    said = shell.seen + os.read(shell.master, 10_000)
    check(b"lost before the job started" in said and b"started\n" not in said.replace(
        b"the job started\n", b""), f"the job did not start: {said!r}")


def stop_at_the_start(shell):
    pids = stopped_at_the_start(shell)
    # It was stopped in no transaction: others take names meanwhile.
    subprocess.check_call(run(["true"], name="other", options=("--wait", "30s")))
    shell.resume(pids)
    shell.expect_only("started")
    shell.expect_end(pids[0], "exited 0")


def stops_while_the_command_is_started(shell):
    # Its input is no terminal, so nothing is handed over, and the grant is live.
    command = " ".join(run(["true"])) + " </dev/null"
    begun = time.monotonic()
    for turn in range(200):
        if turn >= 60 and time.monotonic() - begun > 60:
            # Each moment was met once, and the machine is slow.
            break
        (pid,) = shell.start(["sh", "-c", "exec " + command])
        while True:
            # Another length each turn, so that some stop meets the moment between fork and exec.
            busy_for(seconds=turn % 60 * 10e-6)
            os.killpg(pid, signal.SIGTSTP)
            end = shell.end_of(pid)
            if end != STOPPED:
                break
            os.killpg(pid, signal.SIGCONT)
        check(end == "exited 0", f"the wrapper {end}")


def busy_for(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def stop_and_foreground(shell):
    pids = shell.start(wrapped("echo"))
    child = int(shell.expect(b"pid "))
    shell.expect(b"ready")
    for turn in range(3):
        shell.type(b"\x1a")
        shell.expect_end(pids[0], STOPPED)
        check(state(child) == "T", "the command is stopped")
        check(shell.front() == pids[0], "the wrapper took the terminal back")
        shell.take()
        shell.resume(pids)
        shell.type(b"again\n")
        shell.expect_only("read again True")
        check(shell.front() == child, "the command has the terminal again")
    shell.type(b"end\n")
    shell.expect_only("read end True")
    shell.expect_end(pids[0], "exited 0")


def stop_and_background(shell):
    pids = shell.start(wrapped("echo"))
    child = int(shell.expect(b"pid "))
    shell.expect(b"ready")
    shell.type(b"\x1a")
    shell.expect_end(pids[0], STOPPED)
    shell.take()
    # In the background it reads, so it stops again, and the shell is notified again.
    shell.resume(pids, foreground=False)
    shell.expect_end(pids[0], STOPPED)
    check(shell.front() == os.getpgrp(), "the shell keeps the terminal")
    check(state(child) == "T", "the command is stopped")
    shell.resume(pids)
    shell.type(b"end\n")
    shell.expect_only("read end True")
    shell.expect_end(pids[0], "exited 0")


def stop_of_a_script_around_us(shell):
    (script,) = shell.start(["sh", "-c", '"$@"; exit 5', "sh", *wrapped("echo")])
    child = int(shell.expect(b"pid "))
    shell.expect(b"ready")
    # Once with the terminal at the script's group, once at the command's.
    shell.type(b"\x1a")
    check(shell.end_of(script).startswith("stopped"), "the script stops")
    await_state(child, "T")
    shell.take()
    shell.resume([script])
    shell.type(b"one\n")
    shell.expect_only("read one True")
    shell.type(b"\x1a")
    check(shell.end_of(script).startswith("stopped"), "the script stops")
    check(state(child) == "T", "the command is stopped")
    shell.take()
    shell.resume([script])
    shell.type(b"end\n")
    shell.expect_only("read end True")
    shell.expect_end(script, "exited 5")


def stop_of_a_script_holds_for_a_command_that_ignores_it(shell):
    (script,) = shell.start(["sh", "-c", '"$@"; exit 5', "sh", *wrapped("deaf")])
    child = int(shell.expect(b"pid "))
    shell.expect(b"ready")
    shell.type(b"\x1a")
    check(shell.end_of(script).startswith("stopped"), "the script stops")
    # The script's group still has the foreground, but it is stopped: no hand-over now.
    os.kill(child, signal.SIGUSR1)
    await_state(parent(child), "T")
    check(shell.front() == script, "the script's group keeps the terminal")
    shell.resume([script])
    shell.type(b"line\n")
    shell.expect_only("read line")
    shell.expect_end(script, "exited 5")


def continue_arrives_once(shell):
    pids = shell.start(wrapped("count"))
    shell.expect(b"ready")
    shell.type(b"\x1a")
    shell.expect_end(pids[0], STOPPED)
    shell.take()
    shell.resume(pids)
    shell.expect_only("got SIGCONT 1")
    os.kill(pids[0], signal.SIGUSR1)
    shell.expect_only("got SIGUSR1 1")
    shell.expect_end(pids[0], "exited 0")


def stop_freezes_those_who_ignore_it(shell):
    for options, frozen in (((), False), (LEASED, True)):
        pids = shell.start(wrapped("stubborn", options=options))
        stubborn = int(shell.expect(b"ready "))
        shell.type(b"\x1a")
        shell.expect_end(pids[0], STOPPED)
        if frozen:
            await_state(stubborn, "T")
        else:
            check(state(stubborn) != "T", "without the option it goes on")
        shell.take()
        shell.resume(pids)
        await_state(stubborn, "S")
        shell.type(b"\x03")
        shell.expect_end(pids[0], "killed 2")


def stop_without_a_shell_above(shell):
    """The first process of a terminal: there is nobody to continue it."""
    pid = os.fork()
    if pid == 0:
        inner = Shell()
        for descriptor in (0, 1, 2):
            os.dup2(inner.terminal, descriptor)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.write(inner.master, b"")
        os.set_inheritable(inner.master, True)
        command = wrapped("stop", "SIGTSTP")
        os.execvp(command[0], command)
    shell.expect_end(pid, "exited 4")


def pause_of_the_foreground_job_stops_us(shell):
    pids = shell.start(wrapped("stop", "SIGSTOP"))
    shell.expect(b"front True")
    shell.expect_end(pids[0], STOPPED)
    shell.take()
    shell.resume(pids)
    shell.expect_only("continued")
    shell.expect_end(pids[0], "exited 4")


def terminal_on_demand_in_a_pipeline(shell):
    _, wrapper = pids = shell.start(["echo", "input"], wrapped("echo"))
    child = int(shell.expect(b"pid "))
    shell.expect_only("front False")
    shell.expect(b"ready")
    # It reads from /dev/tty, as a pager does.
    shell.type(b"end\n")
    shell.expect_only("read end True")
    shell.expect_end(wrapper, "exited 0")
    check(shell.front() == pids[0] != child, "the job took the terminal back")


def continued_after_a_pause_from_outside(shell):
    """Somebody stops the wrapper alone; the shell takes the terminal, and gives it again."""
    pids = shell.start(wrapped("echo"))
    child = int(shell.expect(b"pid "))
    shell.expect(b"ready")
    os.kill(pids[0], signal.SIGSTOP)
    shell.expect_end(pids[0], f"stopped {int(signal.SIGSTOP)}")
    shell.take()
    shell.resume(pids)
    await_true(lambda: shell.front() == child)
    os.kill(pids[0], signal.SIGSTOP)
    shell.expect_end(pids[0], f"stopped {int(signal.SIGSTOP)}")
    shell.take()
    # In the background: its end must not take the terminal from the shell.
    shell.resume(pids, foreground=False)
    os.kill(pids[0], signal.SIGTERM)
    shell.expect_end(pids[0], "exited 143")
    check(shell.front() == os.getpgrp(), "the shell keeps the terminal")


def resize_arrives_once(shell):
    for number, commands in enumerate(([wrapped("count")], [wrapped("count"), ["cat"]])):
        wrapper = shell.start(*commands)[0]
        shell.expect(b"ready")
        size = struct.pack("HHHH", 10 + number, 20, 0, 0)
        fcntl.ioctl(shell.master, termios.TIOCSWINSZ, size)
        shell.expect_only("got SIGWINCH 1")
        os.kill(wrapper, signal.SIGUSR1)
        shell.expect_only("got SIGUSR1 1")
        shell.expect_end(wrapper, "exited 0")
        shell.take()


def modes_are_restored_after_a_kill(shell):
    before = termios.tcgetattr(shell.terminal)
    (wrapper,) = shell.start(wrapped("raw"))
    shell.expect(b"ready")
    shell.expect_end(wrapper, "exited 137")
    check(termios.tcgetattr(shell.terminal) == before, "the modes are as before")


def nested_wrappers_stop_and_continue(shell):
    pids = shell.start(run(wrapped("echo"), name="outer"))
    child = int(shell.expect(b"pid "))
    shell.expect_only("front True")
    shell.expect(b"ready")
    shell.type(b"\x1a")
    shell.expect_end(pids[0], STOPPED)
    check(state(child) == "T", "the command is stopped")
    shell.take()
    shell.resume(pids)
    shell.type(b"end\n")
    shell.expect_only("read end True")
    shell.expect_end(pids[0], "exited 0")


def too_late(*_):
    """Shows who waits for whom."""
    session = os.getsid(0)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(pid)) == session:
                with open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/cmdline") as command:
                    words = command.read().split("\0")
                    fields = stat.read().rpartition(")")[2].split()[:6]
                    print(*fields, pid, *words[:3], words[-2:-1])
        except OSError:
            pass
    raise TimeoutError("state, parent, group, session, terminal, foreground, pid are as above")


def main():
    # A child of this process, so that it can lead a session regardless of what started it.
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        sys.exit(0 if status == 0 else 1)
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(DEADLINE)
    globals()[sys.argv[2]](Shell())


main()
