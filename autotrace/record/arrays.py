"""Describe arrays, tensors and images in a few words: type, shape and first items. Describing imports nothing, computes
nothing except sums that a spec asks for, and never waits for a GPU. Only fields of C structures are read, through the
library's own descriptors."""

from __future__ import annotations

import math
import sys
from typing import Any

from autotrace.record.object_fields import layout_of, module_of

SMALL = 16
"""Limits the items up to which an array is shown whole."""
FIRST = 4
"""Counts the items shown of a larger array."""


def described(value: Any, kind: type) -> Any:
    """Return the description of an array, a tensor or an image; a plain value for a scalar; None for anything else."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and (generic := numpy.__dict__.get("generic")) is not None:
        if issubclass(kind, generic):
            return _scalar(numpy, value)
        if issubclass(kind, numpy.ndarray):
            return _array(numpy, value)
    torch = sys.modules.get("torch")
    if torch is not None and (tensor := torch.__dict__.get("Tensor")) is not None and issubclass(kind, tensor):
        return _tensor(torch, value, kind)
    if module_of(kind).startswith("PIL."):
        return _image(value, kind)
    return None


NO_ARRAY: Any = object()


def item(value: Any, kind: type, index: int) -> Any:
    """Return item ``index`` of an array or of a tensor in the CPU's memory: a number, or the object at that index.
    Return None where the item does not exist or cannot be had without waiting, and ``NO_ARRAY`` for any other value."""
    numpy, torch = _libraries_of(kind)
    if numpy is not None:
        array = numpy.ndarray
        found = array.__getitem__(value, index) if _has(array.shape.__get__(value), index) else None
        return _scalar(numpy, found) if issubclass(type(found), numpy.__dict__["generic"]) else found
    if torch is None:
        return NO_ARRAY
    base = _base(torch)
    if not _readable(torch, base, value):
        return None
    with torch._C.DisableTorchFunction():
        shape = base.shape.__get__(value)
        if not _has(shape, index):
            return None
        found = base.__getitem__(value, index)
        return base.item(found) if len(shape) == 1 else found


def total(value: Any, kind: type) -> int | float | None:
    """Sum the numbers in an array or in a tensor in the CPU's memory; None for anything else."""
    numpy, torch = _libraries_of(kind)
    if numpy is not None:
        if numpy.ndarray.dtype.__get__(value).kind not in "biuf":
            return None
        return _number(numpy.generic.item(numpy.ndarray.sum(value)))
    base = None if torch is None else _base(torch)
    if base is None or not _readable(torch, base, value):
        return None
    with torch._C.DisableTorchFunction():
        return _number(base.item(base.sum(value)))


def _libraries_of(kind: type) -> tuple[Any, Any]:
    """Return (numpy, None) if ``kind`` is numpy's array, (None, torch) if ``kind`` is torch's tensor, else (None,
    None). A subclass counts as neither: the host's code may compute the items and sums of a subclass."""
    numpy: Any = sys.modules.get("numpy")
    array: Any = None if numpy is None else numpy.__dict__.get("ndarray")
    if array is not None and id(kind) == id(array):
        return numpy, None
    torch: Any = sys.modules.get("torch")
    return None, torch if torch is not None and kind is torch.__dict__.get("Tensor") else None


def _number(value: Any) -> int | float | None:
    return value if type(value) in (int, float) else None


def _has(shape: Any, index: int) -> bool:
    return len(shape) > 0 and -shape[0] <= index < shape[0]


def _base(torch: Any) -> Any:
    names = torch._C.__dict__
    return names.get("TensorBase") or names["_TensorBase"]  # before torch 2.1


def _readable(torch: Any, base: Any, value: Any) -> bool:
    """Tells whether the tensor's numbers are in the CPU's memory and no mode of the host's would be asked for the
    numbers. A tensor that ``vmap`` or ``grad`` passes (``torch.func``) has no numbers."""
    modes = torch._C.__dict__.get("_len_torch_dispatch_stack")
    if modes is not None and modes():
        return False
    functorch = torch._C.__dict__.get("_functorch")
    if functorch is not None and functorch.is_functorch_wrapped_tensor(value):
        return False
    return base.device.__get__(value).type == "cpu" and base.layout.__get__(value) is torch.strided


def objects(value: Any, kind: type, limit: int) -> tuple[list[Any], int] | None:
    """Return (the first ``limit`` items, the number of items) of an array of objects; None for anything else."""
    numpy = sys.modules.get("numpy")
    array: Any = None if numpy is None else numpy.__dict__.get("ndarray")
    if array is None or not issubclass(kind, array) or array.dtype.__get__(value).kind != "O":
        return None
    size = array.size.__get__(value)
    return [array.item(value, at) for at in range(min(size, limit))], size


def _scalar(numpy: Any, value: Any) -> Any:
    return _python(numpy, numpy.generic.item(value))


def _python(numpy: Any, item: Any) -> Any:
    """Return numpy's ``item`` as a number. ``numpy.longdouble`` has no counterpart and is rounded."""
    kind = type(item)
    if issubclass(kind, numpy.longdouble):
        return numpy.longdouble.__float__(item)
    if kind is complex:
        return str(item)
    return {"…": f"numpy.{kind.__name__}"} if issubclass(kind, numpy.generic) else item


def _array(numpy: Any, value: Any) -> Any:
    array = numpy.ndarray
    dtype, shape, size = array.dtype.__get__(value), array.shape.__get__(value), array.size.__get__(value)
    if dtype.kind not in "biufcmMSU":  # records: the fields are not read
        return {"…": "array", "dtype": _dtype(dtype), "shape": list(shape)}
    if dtype.kind in "biuf" and dtype.itemsize <= 8 and size <= SMALL:
        return array.tolist(value)
    shown = min(size, FIRST) if dtype.kind in "biuf" else 0
    first = [_python(numpy, array.item(value, at)) for at in range(shown)]
    return {"…": "array", "dtype": _dtype(dtype), "shape": list(shape), "first": first}


def _dtype(dtype: Any) -> str:
    return str(dtype) if dtype.names is None else "record"


def _tensor(torch: Any, value: Any, kind: type) -> Any:
    """Describe a tensor. Only the name is given of a subclass (a fake tensor, a wrapper of the host's), because the
    fields of a subclass are computed by the subclass's code."""
    parameter = sys.modules.get("torch.nn.parameter")
    if kind is not torch.Tensor and (parameter is None or kind is not parameter.__dict__.get("Parameter")):
        return None
    base = _base(torch)
    with torch._C.DisableTorchFunction():
        shape = base.shape.__get__(value)
        dtype, device = base.dtype.__get__(value), base.device.__get__(value)
        lengths = [length if type(length) is int else "?" for length in tuple.__iter__(shape)]
        if math.prod(length if type(length) is int else SMALL + 1 for length in lengths) <= SMALL and _readable(
            torch, base, value
        ):
            return _numbers(base, value)
    return {"…": "tensor", "dtype": str(dtype), "shape": lengths, "device": str(device)}


def _numbers(base: Any, value: Any) -> Any:
    """Return the numbers of a small tensor as lists, and complex numbers as text."""
    listed = base.tolist(value)
    return listed if not base.is_complex(value) else str(listed)


def _image(value: Any, kind: type) -> Any:
    stored = layout_of(kind).stored(value)
    size, mode = dict.get(stored, "_size"), dict.get(stored, "_mode")
    if type(size) is not tuple or len(size) != 2 or not all(type(length) is int for length in size):
        return None
    form = kind.__dict__.get("format")
    encoded = f"/{form.lower()}" if type(form) is str else ""
    return f"<image{encoded} {size[0]}x{size[1]}{f', {mode}' if type(mode) is str else ''}>"
