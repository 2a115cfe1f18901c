"""Test-only stand-in for the compiled sgl_kernel CPU build (not on PyPI). Any symbol resolves to a function that raises
when CALLED; the few ops that a tiny Llama/Qwen needs are pure torch below."""

import importlib.machinery
import sys
import types

import torch

__path__ = []
__version__ = "0.4.10"


class _Missing:
    def __init__(self, n):
        self.__name__ = n
        self.n = n

    def __getattr__(self, n):
        if n.startswith("__"):
            raise AttributeError(n)
        return _Missing(self.n + "." + n)

    def __call__(self, *a, **k):
        raise NotImplementedError(f"sgl_kernel stub: {self.n}")


def __getattr__(n):
    if n.startswith("__"):
        raise AttributeError(n)
    return _Missing(n)


class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("sgl_kernel."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        m = types.ModuleType(spec.name)
        m.__getattr__ = __getattr__
        m.__path__ = []
        return m

    def exec_module(self, m):
        pass


sys.meta_path.append(_Finder())
