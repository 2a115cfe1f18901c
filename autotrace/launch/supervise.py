"""Stay as the parent of a command that cannot wait for delivery itself, and as process 1 of a container.

The launcher forwards every signal, collects orphans as process 1 must, and ends as the command ended: by exit code or
by signal.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import NoReturn

from autotrace.config import exit_codes
from autotrace.config.stderr import say
from autotrace.launch.command import Command
from autotrace.launch.options import Options
from autotrace.run import files, layout
from autotrace.run.drain import summary, wait_for_delivery
from autotrace.run.losses import losses

GRACE = 8.0
"""Limits the wait after a forwarded SIGTERM (seconds): ``docker stop`` kills after 10, Kubernetes after 30."""

# Not forwarded: signals that only the kernel sends for a fault of this process, and signals that stop a job (the
# terminal stops both).
_OWN = {
    signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS,
    signal.SIGPIPE,
}  # fmt: skip
_FORWARDED = signal.valid_signals() - _OWN
_FROM_TERMINAL = {signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH}
"""Lists signals that a terminal sends to all foreground processes (a hang-up goes to the session's first process)."""
_ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
"""Lists the signals with which a person ends a command."""
_FROM_KERNEL = 0x80
"""Value of ``si_code`` for SI_KERNEL: not sent by a process."""


def supervise(program: Command, environ: Mapping[str, str], run_folder: str, options: Options) -> NoReturn:
    """Run ``program`` as a child, wait for the child and for delivery, and end as the child ended."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED | {signal.SIGCHLD})
    on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an ignored SIGCHLD would never report the command's end
    child = os.fork()
    if not child:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL if on_child is None else on_child)
        _be_the_command(program, environ, before)
    status, terminated = _forward_until_exit(child, run_folder)

    def interrupted() -> bool:
        return bool(signal.sigpending() & _ENDING)

    timeout = min(options.drain_timeout, GRACE) if terminated else options.drain_timeout
    try:
        outcome = wait_for_delivery(run_folder, timeout, interrupted=interrupted, quiet=options.quiet)
        if not options.quiet or outcome.reason != "done" or losses(outcome.status.get("drops") or {}):
            say(summary(run_folder, outcome))
    except OSError as error:
        say(f"autotrace: cannot wait for delivery ({error.strerror})")
    _end_like(status)


def _be_the_command(program: Command, environ: Mapping[str, str], mask: set[int | signal.Signals]) -> NoReturn:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        program.execute(environ)
    except OSError as error:
        say(f"autotrace: {program.path}: {error.strerror}")
    finally:
        os._exit(exit_codes.NOT_EXECUTABLE)


def _forward_until_exit(child: int, run_folder: str) -> tuple[int, bool]:
    """Return the command's wait status, and whether the command was asked to terminate."""
    terminated = False
    while True:
        number, from_terminal = _next_signal()
        if number == signal.SIGCHLD:
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    return exit_codes.FAILED << 8, terminated
                if pid == child:
                    return status, terminated
                if pid == 0:
                    break
            continue
        if number in _ENDING:
            with contextlib.suppress(OSError):
                files.touch(os.path.join(run_folder, layout.ENDING))
        if not from_terminal:
            terminated = terminated or number == signal.SIGTERM
            os.kill(child, number)


def _next_signal() -> tuple[int, bool]:
    """Wait for the next signal; also tell whether the terminal sent the signal to the command."""
    wanted = _FORWARDED | {signal.SIGCHLD}
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(wanted)
        return info.si_signo, info.si_code == _FROM_KERNEL and info.si_signo in _FROM_TERMINAL
    number = signal.sigwait(wanted)
    return number, number in _FROM_TERMINAL and os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()


def _end_like(status: int) -> NoReturn:
    """Exit with the command's code, or die by the command's signal, as a shell's ``$?`` would show."""
    sys.stdout.flush()
    sys.stderr.flush()
    if not os.WIFSIGNALED(status):
        os._exit(os.waitstatus_to_exitcode(status))
    number = os.WTERMSIG(status)
    # A single core dump is enough.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # process 1 is not killed by its own signal
