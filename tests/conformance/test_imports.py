"""Imports of every kind end as they did, with the module's functions wrapped."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import subprocess
import sys
import threading
import zipfile
from importlib.machinery import SourceFileLoader

import pytest

from tests.waiting import DEADLINE

from .conftest import Host
from .processes import run


def test_a_module_keeps_its_loader_and_its_spec(host: Host) -> None:
    host.watch("plain.f")
    module = host.load("plain", "def f(): return 1\n")
    assert type(module.__loader__) is SourceFileLoader and module.__spec__.loader is module.__loader__
    assert set(vars(module.__loader__)) == {"name", "path"}
    assert not module.__spec__._initializing and module.f() == 1 and host.opened() == ["f"]


def test_looking_for_a_module_imports_nothing_and_binds_nothing(host: Host) -> None:
    host.watch("plain.f")
    host.write("plain", "def f(): return 1\n")
    for _ in range(2):
        spec = importlib.util.find_spec("plain")
        assert spec is not None and type(spec.loader) is SourceFileLoader and "plain" not in sys.modules
    assert importlib.util.find_spec("no_such_module") is None
    assert not host.reports()
    module = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    assert module.f() == 1 and host.opened() == ["f"]


def test_what_is_imported_already_is_bound(host: Host) -> None:
    module = host.load(
        "plain", "def f(): return 1\nclass C:\n    def m(self): return 2\nclass D(C):\n    def m(self): return 3\n"
    )
    host.watch("plain.f", "plain.C.m")
    assert (module.f(), module.C().m(), module.D().m()) == (1, 2, 3)
    assert host.opened() == ["f", "C.m"] and host.reports()["plain:D.m"][0] == "shadowed"


def test_a_reloaded_module_is_bound_again(host: Host) -> None:
    host.watch("plain.f", "plain.C.m")
    module = host.load("plain", "def f(): return 1\nclass C:\n    def m(self): return 1\n")
    old = module.C()
    host.write("plain", "def f(): return 'two'\nclass C:\n    def m(self): return 'two'\n")
    assert importlib.reload(module) is module
    assert (module.f(), module.C().m(), old.m()) == ("two", "two", 1)
    assert host.opened() == ["f", "C.m", "C.m"]


def test_a_failing_import_fails_as_it_did_and_can_be_tried_again(host: Host) -> None:
    host.watch("plain.f")
    host.write("plain", "def f(): return 1\nraise ImportError('not today')\n")
    for _ in range(2):
        with pytest.raises(ImportError, match="not today"):
            importlib.import_module("plain")
        assert "plain" not in sys.modules
    host.write("plain", "def f(): return 1\n")
    assert importlib.import_module("plain").f() == 1 and host.opened() == ["f"]


def test_modules_that_import_each_other(host: Host) -> None:
    """``b`` takes ``f`` from the half-made ``a``: both names stay one function, and both are recorded."""
    host.write("circle.__init__", "")
    host.write("circle.a", "def f(): return 1\nfrom circle import b\ndef g(): return b.f()\n")
    host.write("circle.b", "from circle.a import f\n")
    host.watch("circle.**")
    a = importlib.import_module("circle.a")
    b = importlib.import_module("circle.b")
    assert a.f is b.f and pickle.loads(pickle.dumps(b.f)) is a.f
    assert a.g() == 1 and host.opened() == ["g", "f"]
    host.stop()
    assert a.f is b.f and a.f.__code__.co_filename == a.__file__


def test_a_package_and_its_lazy_attributes(host: Host) -> None:
    """A module's ``__getattr__`` (PEP 562) is not asked; what it makes later is reported as pending."""
    host.watch("lazy.f", "lazy.made.g", "lazy.sub.h")
    package = host.load(
        "lazy.__init__",
        """
import importlib
asked = []
def __getattr__(name):
    asked.append(name)
    if name == "sub":
        return importlib.import_module("lazy.sub")
    raise AttributeError(name)
""",
    )
    host.write("lazy.sub", "def h(): return 3\n")
    package = importlib.import_module("lazy")
    assert [name for name in package.asked if not name.startswith("__")] == []
    assert package.sub.h() == 3 and host.opened() == ["h"]


def test_a_package_that_puts_a_function_over_its_submodule(host: Host) -> None:
    host.watch("pack.reward.emit")
    host.write("pack/reward", "def emit(): return 1\ndef reward(): return emit()\n")
    host.write("pack/__init__", "from .reward import reward\n")
    assert importlib.import_module("pack").reward() == 1
    assert host.opened() == ["emit"] and {state for state, *_ in host.reports().values()} == {"bound"}


def test_a_lazy_loader(host: Host) -> None:
    host.watch("plain.f")
    host.write("plain", "def f(): return 1\n")
    spec = importlib.util.find_spec("plain")
    assert spec is not None and spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["plain"] = module
    spec.loader.exec_module(module)
    assert not host.reports()
    assert module.f() == 1 and host.opened() == ["f"]


def test_modules_from_a_zip_share_one_loader(host: Host) -> None:
    path = host.folder / "pkg.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("zipped/__init__.py", "def f(): return 1\n")
        archive.writestr("zipped/a.py", "from zipped import b\ndef f(): return b.f()\n")
        archive.writestr("zipped/b.py", "def f(): return 2\n")
    host.modules.add("zipped")
    sys.path.insert(0, str(path))
    try:
        host.watch("zipped.f", "zipped.a.f", "zipped.b.f")
        importlib.util.find_spec("zipped.b")
        assert importlib.import_module("zipped.a").f() == 2
    finally:
        sys.path.remove(str(path))
    assert host.opened() == ["f", "f"]
    assert {place for place in host.reports()} == {"zipped:f", "zipped.a:f", "zipped.b:f"}


def test_two_threads_import_the_same_module(host: Host) -> None:
    host.watch("slow.f")
    host.write("slow", "import threading\nthreading.Event().wait(0.05)\ndef f(): return 1\n")
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(importlib.import_module("slow").f())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert seen == [1] * 4 and host.opened() == ["f"] * 4


def test_a_module_that_was_half_imported_when_the_engine_started(host: Host) -> None:
    started, go = threading.Event(), threading.Event()
    host.load("gate", "def knock(): ...\n").knock = lambda: (started.set(), go.wait(DEADLINE))
    host.write("half", "import gate\ngate.knock()\ndef f(): return 1\n")
    host.write("other", "")
    thread = threading.Thread(target=importlib.import_module, args=("half",))
    thread.start()
    started.wait(DEADLINE)
    host.watch("half.f", "other.g")
    assert not host.reports()
    go.set()
    thread.join(DEADLINE)
    importlib.import_module("other")
    assert sys.modules["half"].f() == 1 and host.opened() == ["f"]


def test_a_warning_from_a_module_names_who_imported_it(host: Host) -> None:
    host.watch("old.f")
    host.write("old", "import warnings\nwarnings.warn('old', DeprecationWarning, stacklevel=2)\ndef f(): ...\n")
    with pytest.warns(DeprecationWarning) as warned:
        import old  # type: ignore[import-not-found]  # noqa: F401
    assert warned[0].filename == __file__


def test_other_finders_are_asked_in_their_order(host: Host) -> None:
    """One that was put first after ours answers first; pytest's, which shares one loader, is another."""

    class Mine:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            asked.append(name)

    asked: list[str] = []
    host.watch("plain.f")
    sys.meta_path.insert(0, Mine)  # type: ignore[arg-type]
    try:
        assert host.load("plain", "def f(): return 1\n").f() == 1
    finally:
        sys.meta_path.remove(Mine)  # type: ignore[arg-type]
    assert "plain" in asked and host.opened() == ["f"]


def test_a_finder_that_was_put_first_hides_nothing(host: Host) -> None:
    """Nobody behind it hears of what it finds itself; and it stays where it was put."""
    code = """
import importlib.machinery, sys
class Mine:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.machinery.PathFinder.find_spec(name, path, target) if name.startswith("hidden") else None
sys.meta_path.insert(0, Mine)
before = list(sys.meta_path)
import hidden, hidden.later
assert (hidden.f(), hidden.later.g(), hidden.Thing().run()) == (1, 2, 3)
print(sys.meta_path == before)
"""
    host.write("hidden.__init__", "def f(): return 1\nclass Thing:\n    def run(self): return 3\n")
    host.write("hidden.later", "def g(): return 2\n")
    ran = run(host.folder, "- hidden.**\n", "-c", f"import sys; sys.path.insert(0, {str(host.code)!r})\n{code}")
    assert ran.stdout.strip() == "True"
    assert [name for _, name in ran.calls()] == ["f", "g", "Thing.run"]
    assert {state for state, _ in ran.reports().values()} == {"bound"}


TYPEGUARD = "import typeguard; typeguard.install_import_hook(['checked'])"
BEARTYPE = "import beartype.claw; beartype.claw.beartype_package('checked')"
PYTEST = """
import _pytest.assertion, _pytest.config, pathlib, sys
from _pytest.assertion.rewrite import AssertionRewritingHook
config = _pytest.config.get_config(); config.parse([])
hook = AssertionRewritingHook(config); hook.mark_rewrite("checked"); sys.meta_path.insert(0, hook)
"""


@pytest.mark.parametrize("install", [TYPEGUARD, BEARTYPE, PYTEST], ids=["typeguard", "beartype", "pytest"])
def test_import_hooks_that_people_use(host: Host, install: str) -> None:
    """They compile a package's modules in their own way, found by themselves."""
    host.write("checked.__init__", "from checked.inner import f, C\n")
    host.write(
        "checked.inner",
        """
def f(x: int) -> int:
    assert x, "a number"
    return x
class C:
    def run(self, x: int) -> int: return x
""",
    )
    code = f"""
import sys; sys.path.insert(0, {str(host.code)!r})
{install}
import checked
assert (checked.f(1), checked.C().run(2)) == (1, 2)
try:
    checked.f("text"), checked.f(0)
except Exception as error:
    print(type(error).__module__.split(".")[0], "a number" in str(error) and "assert 0" in str(error))
"""
    ran = run(host.folder, "- checked.inner.f\n- checked.inner.C.run\n", "-c", code)
    assert [name for _, name in ran.calls()][:2] == ["f", "C.run"]
    assert ran.stdout.split()[0] in ("typeguard", "beartype", "builtins")
    assert {state for state, _ in ran.reports().values()} == {"bound"}


def test_a_module_that_nobody_imported_is_said_not_to_be_traced(host: Host) -> None:
    """Made by hand and put into ``sys.modules``, as some loaders of plug-ins do."""
    code = """
import importlib.util, sys, types, seen
made = types.ModuleType("made")
exec("def f(): return 1\\nother = 2\\nclass C:\\n    def run(self): return 1", vars(made))
sys.modules["made"] = made
import made
assert made.f() == 1
"""
    host.write("seen", "def f(): return 1\n")
    spec = "- made.f\n- made.gone\n- made.C.run\n- made.C.gone\n- seen.f\n"
    ran = run(host.folder, spec, "-c", f"import sys; sys.path.insert(0, {str(host.code)!r})\n{code}")
    state, reason = ran.reports()["made:f"]
    assert state == "failed" and reason.startswith("autotrace did not see `made` being imported (its loader: builtins.")
    assert ran.reports()["seen:f"][0] == "bound" and "made:gone" not in ran.reports()
    assert ran.reports()["made:C.run"][0] == "bound"  # every class is seen when it is made
    assert ran.reports()["made:C.gone"] == ("pending", "made.C has no `gone` yet")


def test_an_adapter_hears_of_a_class_of_the_program(host: Host) -> None:
    """``python -m`` runs a module that is never imported."""
    host.write("prog", "class Trainer: pass\nclass Other: pass\n")
    code = f"""
import runpy, sys; sys.path.insert(0, {str(host.code)!r})
from autotrace.patch.adapting import when_run
when_run("prog", "Trainer", lambda cls: print("made", cls.__name__))
when_run("other", "Other", print)
runpy.run_module("prog", run_name="__main__", alter_sys=True)
"""
    assert run(host.folder, "- __main__.absent\n", "-c", code).stdout == "made Trainer\n"


def test_an_adapter_is_called_once_after_its_library(host: Host) -> None:
    seen: list[str] = []
    host.watch("nothing.f")
    from autotrace.patch.adapting import when_imported

    when_imported("library", lambda module: seen.append(module.value))
    when_imported("library", lambda module: 1 / 0)
    host.load("library", "value = 'ready'\n")
    assert seen == ["ready"]
    from autotrace.record import faults

    assert faults.counts.pop("fault:hook:library") == 1


def test_nothing_is_imported_for_a_process_without_targets(host: Host) -> None:
    code = "import sys; sys.path.insert(0, {!r}); import autotrace.bootstrap.activate; print('wrapt' in sys.modules)"
    root = str(host.folder.parents[0])
    done = subprocess.run(
        [sys.executable, "-c", code.format(root)], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.stdout.strip() in ("False", "")
