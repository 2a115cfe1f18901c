"""What stands in for the parts of veRL's trainers that need a cluster: the store of V1's columns, and a trainer without
workers. ``examples/verl_loop`` is on the path of programs that use it.
"""

from __future__ import annotations

import sys
from typing import Any

import in_process


class Batch:
    """Stands in for TransferQueue's ``KVBatchMeta``."""

    def __init__(self, partition_id: str = "train", keys: Any = (), tags: Any = ()) -> None:
        self.partition_id, self.keys, self.tags = partition_id, list(keys), list(tags)
        self.extra_info: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.keys)


class Store(in_process.Store):
    """The store with the side of it that the trainer uses."""

    def install(self) -> Store:
        """Become the module ``transfer_queue``."""
        super().install()
        module: Any = sys.modules["transfer_queue"]
        module.KVBatchMeta, module.kv_batch_get = Batch, self.get
        module.kv_batch_put, module.kv_clear = self.put, lambda **kwargs: None
        return self

    def get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        """Columns of the rows."""
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict

        names = [name for name in select_fields if name in set(self.fields[keys[0]].keys())]
        return list_of_dict_to_tensordict([{name: self.fields[key][name] for name in names} for key in keys])

    def put(self, keys: list[str], partition_id: str, fields: Any, tags: Any = None) -> Batch:
        """Store columns."""
        for name in list(fields.keys()):
            for key, row in zip(keys, fields[name].unbind(), strict=True):
                self.fields[key][name] = row
        if "advantages" in set(fields.keys()):
            self.used = {key: row.tolist() for key, row in zip(keys, fields["advantages"].unbind(), strict=True)}
        return Batch(partition_id, keys, [{} for _ in keys])


def shifted(prompt: int, response: Any) -> Any:
    """What a model says of a whole sequence: at each place, about the token after it."""
    import torch

    return torch.cat([torch.zeros(prompt - 1), response, torch.zeros(1)])


def trainer_of(cls: type, config: Any, workers: Any, step: int) -> Any:
    """A trainer in a step, without what a constructor would start."""
    plain: Any = type(cls.__name__, (cls,), {})
    plain.__abstractmethods__ = frozenset()
    trainer = object.__new__(plain)
    trainer.global_steps, trainer.config, trainer.actor_rollout_wg = step, config, workers
    return trainer
