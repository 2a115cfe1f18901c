"""Children that end in every way: no call is lost, and the end of a process on purpose is no finding.

One program starts all of them: children of ``multiprocessing``, ``multiprocess`` and ``billiard``, and those of
``os.fork`` itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from autotrace.run.info import find_runs
from autotrace.run.status import Status
from tests.waiting import DEADLINE

NUMBERS = 6
WORK = """
import time
def task(case, number): return number
async def later(case, number): return number
def hang(case, number, ready):
    ready.send(number)
    time.sleep(600)
"""
PROGRAM = f"""
import asyncio, atexit, concurrent.futures, functools, glob, importlib, os, pickle, signal, sys, time

last = []
atexit.register(lambda: [work.task(*arguments) for arguments in last])  # comes after what is registered from here on

import work

NUMBERS = range({NUMBERS})

def context(library, start): return importlib.import_module(library).get_context(start)

def forked(child):
    for number in NUMBERS:
        pid = os.fork()
        if not pid:
            child(number)
            os._exit(99)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def leaves(case): forked(lambda number: (work.task(case, number), os._exit(0)))
def asynchronous(case): forked(lambda number: (asyncio.run(work.later(case, number)), os._exit(0)))
def at_exit(case): forked(lambda number: (atexit.register(work.task, case, number), sys.exit(0)))
def at_exit_last(case): forked(lambda number: (last.append((case, number)), sys.exit(0)))
def executes(case): forked(lambda number: (work.task(case, number), os.execvp("true", ["true"])))

def killed(case):  # right after its answer
    for number in NUMBERS:
        receiver, sender = os.pipe()
        pid = os.fork()
        if not pid:
            work.task(case, number)
            os.write(sender, b"done")
            time.sleep(600)
        assert os.read(receiver, 4)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

def pool(library, start, case):
    with context(library, start).Pool(2) as workers:  # which it terminates
        assert workers.map(functools.partial(work.task, case), NUMBERS, 1) == list(NUMBERS)

def process(library, start, case):
    children = [context(library, start).Process(target=work.task, args=(case, number)) for number in NUMBERS]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0

def executor(case):
    with concurrent.futures.ProcessPoolExecutor(2) as workers:
        assert list(workers.map(work.task, [case] * len(NUMBERS), NUMBERS)) == list(NUMBERS)

def terminated(case):
    own = context("multiprocessing", "fork")
    receiver, sender = own.Pipe()
    child = own.Process(target=work.hang, args=(case, 0, sender))
    child.start()
    receiver.recv()
    spool = f"{{os.environ['AUTOTRACE_RUN_FOLDER']}}/spool/*-{{child.pid}}-*"
    while not any(case.encode() in open(path, "rb").read() for path in glob.glob(spool)):
        time.sleep(0.01)
    child.terminate()
    child.join()

if __name__ == "__main__":
    for one in (leaves, asynchronous, at_exit, at_exit_last, executes, killed, executor, terminated):
        one(one.__name__)
    for library in ("multiprocessing", "multiprocess", "billiard"):
        process(library, "fork", f"process {{library}}")
        for start in ("fork", "spawn", "forkserver"):
            pool(library, start, f"pool {{library}} {{start}}")
    assert pickle.loads(pickle.dumps(os._exit)) is os._exit
    try:
        os.execv("/nowhere", ["nowhere"])
    except FileNotFoundError as error:
        assert error.__traceback__.tb_next is None
    work.task("the program itself", 0)
    os.execv(sys.executable, [sys.executable, "-c", "import work; work.task('another program', 0)"])
"""
SPEC = "".join(f"- {{target: work.{name}, role: trajectory}}\n" for name in ("task", "later", "hang"))


def test_no_call_of_a_child_is_lost_however_it_ends(tmp_path: Path) -> None:
    for name, text in {"work.py": WORK, "program.py": PROGRAM, "spec.yaml": SPEC}.items():
        (tmp_path / name).write_text(text)
    launcher = [sys.executable, "-m", "autotrace.launch.main", "--backend", "jsonl", "--run-dir", "runs"]
    done = subprocess.run(
        [*launcher, "--spec", "spec.yaml", "--", sys.executable, "program.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = find_runs(tmp_path / "runs")[0][-1]
    roots = [json.loads(line)["spans"][0] for line in (run / "trajectories.jsonl").read_text().splitlines()]
    counts = Counter((root["inputs"]["case"], root["status"]) for root in roots)
    once = {("terminated", "INTERRUPTED"), ("the program itself", "OK"), ("another program", "OK")}
    assert {case: count for case, count in counts.items() if count != NUMBERS} == dict.fromkeys(once, 1)
    assert len(counts) == len(once) + 7 + 3 * 4
    status = Status.read(run)
    assert (status.died, status.drops, status.found.findings) == (0, {}, 0)
