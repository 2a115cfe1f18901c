"""The CPU as a platform of veRL >= 0.9, loaded through veRL's ``verl.plugins`` entry points; veRL itself is not edited.

veRL knows NVIDIA, AMD and Huawei devices. ``VERL_PLATFORM=cpu`` selects the class below; ``VERL_ENGINE_DEVICE=cuda``
makes its engine registry take the implementations written for CUDA; Ray is started with one pretended GPU.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
import torch.distributed
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

GIB = 1 << 30


def _nothing(*args, **kwargs):
    return None


def _zero(*args, **kwargs):
    return 0


MISSING = {
    "memory_allocated": _zero,
    "max_memory_allocated": _zero,
    "memory_reserved": _zero,
    "max_memory_reserved": _zero,
    "empty_cache": _nothing,
    "ipc_collect": _nothing,
    "reset_peak_memory_stats": _nothing,
    "set_per_process_memory_fraction": _nothing,
    "mem_get_info": lambda *args, **kwargs: (8 * GIB, 16 * GIB),
    "get_rng_state": lambda *args, **kwargs: torch.get_rng_state(),
    "set_rng_state": lambda state, *args, **kwargs: torch.set_rng_state(state),
    "manual_seed": lambda seed: torch.manual_seed(seed),
    "manual_seed_all": lambda seed: torch.manual_seed(seed),
    "get_device_name": lambda *args, **kwargs: "CPU",
}
"""Functions veRL calls on its device module and ``torch.cpu`` lacks."""


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """One CPU that Ray schedules like a GPU."""

    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "nvidia")
    device_module = property(lambda self: torch.cpu)

    def __init__(self):
        for name, function in MISSING.items():
            if not hasattr(torch.cpu, name):
                setattr(torch.cpu, name, function)

    def is_available(self):
        return True

    def current_device(self):
        return torch.device("cpu")

    def device_count(self):
        return 1

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self):
        return "GPU"

    def ray_noset_envvars(self):
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self):
        return False  # weights then travel through shared memory, veRL's own fallback

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed
    set_device = synchronize = set_allocator_settings = empty_cache = _nothing
    profiler_start = profiler_stop = cudart = _nothing

    @contextmanager
    def nvtx_range(self, msg):
        yield


def _one_backend_per_device() -> None:
    """veRL asks for ``cpu:gloo,cpu:gloo`` (``cpu:gloo,{device}:{backend}``); torch refuses the repetition."""
    original = torch.distributed.init_process_group
    if getattr(original, "__module__", "") == __name__:
        return

    def init_process_group(backend=None, *args, **kwargs):
        if isinstance(backend, str) and "," in backend:
            backend = ",".join(dict.fromkeys(backend.split(",")))
        return original(backend, *args, **kwargs)

    torch.distributed.init_process_group = init_process_group


_one_backend_per_device()
