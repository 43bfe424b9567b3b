"""Several processes under torchrun: one group, one writer, and joint decisions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from geocaps.errors import ConfigError


@dataclass(frozen=True)
class World:
    """This process among the others; outside torchrun, the only one."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_writer(self) -> bool:
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Whether the flag is true in any process."""
        if self.size == 1:
            return flag
        shared = torch.tensor(float(flag), device=self.device)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        return bool(shared > 0)

    def agreed(self, value: Any) -> Any:
        """The value of the first process, in all of them."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def mean(self, values: dict[str, float]) -> dict[str, float]:
        """Each figure averaged over the processes."""
        if self.size == 1:
            return values
        shared = torch.tensor(list(values.values()), dtype=torch.float32, device=self.device)
        dist.all_reduce(shared)
        return dict(zip(values, (shared / self.size).tolist(), strict=True))

    def summed(self, rows: Tensor) -> Tensor:
        """The sum over the processes."""
        if self.size > 1:
            dist.all_reduce(rows)
        return rows

    def wrap(self, loss: nn.Module) -> nn.Module:
        """A module that averages gradients over the processes during ``backward``."""
        if self.size == 1:
            return loss
        ids = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(loss, device_ids=ids)

    def close(self) -> None:
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def join(device: str) -> World:
    """Joins torchrun's group, if there is one, by nccl between GPUs or else by gloo."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    rank, local_rank = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    chosen = choose_device(device, local_rank)
    if size > 1 and not dist.is_initialized():
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen)
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    return World(rank, size, chosen)


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """The device; ``auto`` is a GPU if there is one (CUDA, then Apple's MPS), or else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"the device {name!r} cannot be used here ({reason}); --device auto uses what is available"
        ) from error
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", local_rank)
    return device
