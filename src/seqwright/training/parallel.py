"""Data parallelism of the training objective: one process, DDP, or FSDP2 (decision 173).

DDP holds a copy of the model on every rank and averages gradients. FSDP2 shards parameters, gradients and optimizer
state over the ranks, some blocks at a time (ZeRO-3, Rajbhandari et al. 2020). Model files know of neither, and tensors
keep their names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from seqwright.core.batch import Batch
from seqwright.core.ranks import Ranks, evaluation_by
from seqwright.core.safetensors_chunks import StreamedTensors
from seqwright.core.state import State
from seqwright.training.meta_weights import MetaWeights
from seqwright.training.objective import Objective
from seqwright.training.sharded_tensors import Shards, full, full_copy, host_copy, is_sharded, placed_like
from seqwright.training.tensor_parallel import TensorParallel
from seqwright.training.weights import load_weights, weights

T = TypeVar("T")

GROUP_PARAMETERS = 40_000_000
"""Parameters that are communicated together, since a call costs the host about as much whatever its size: as many as
in the buckets of Megatron-LM (decision 223)."""

Loss = tuple[Tensor, Tensor, State | None]
"""(loss sum, token count, state after): what an objective returns."""


class SingleProcess:
    """An objective on one process, and the base of parallel ones."""

    unsharded: nn.Module | None = None
    """A copy of the model on rank 0 with all of its weights, where the model itself is sharded."""

    def __init__(self, objective: nn.Module):
        self.module = objective
        self.shards = Shards(objective.parameters())

    def __call__(self, batch: Batch, state: State | None) -> Loss:
        return cast(Loss, self.module(batch, state))

    def accumulating(self) -> AbstractContextManager[None]:
        """Context manager under which backward passes keep their gradients to this rank, for later ones to add to."""
        return nullcontext()

    def reduce(self) -> None:
        """Gives what the optimizer steps its gradients, of all ranks; after the last backward pass of a step."""

    def evaluated(self, device: torch.device) -> AbstractContextManager[None]:
        """Context manager under which `unsharded`, where there is one, is on a device and has the current weights."""
        return nullcontext()

    def evaluate(self, compute: Callable[[], T]) -> T:
        """The scores that `compute` returns, on every rank."""
        return compute()

    def release(self) -> None:
        """Called where weights were replaced, or others are frozen now."""

    def gathered(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Plain copies on the host, for a checkpoint that is written while training continues; complete on rank 0."""
        return {name: host_copy(tensor) for name, tensor in tensors.items()}

    def saved(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor] | StreamedTensors:
        """Tensors as a checkpoint is written from: `gathered`, or gathered one by one meanwhile."""
        return self.gathered(tensors)

    def placed(self, tensor: Tensor, like: Tensor, name: str) -> Tensor:
        """A plain tensor of a checkpoint, laid out as `like`."""
        return tensor


class DataParallel(SingleProcess):
    """DistributedDataParallel (Li et al. 2020): gradients are averaged while the backward pass computes others."""

    def __init__(self, objective: nn.Module, ranks: Ranks):
        super().__init__(objective)
        self.ranks = ranks
        self.ddp: nn.parallel.DistributedDataParallel | None = None

    def __call__(self, batch: Batch, state: State | None) -> Loss:
        return cast(Loss, self._wrapped()(batch, state))

    def accumulating(self) -> AbstractContextManager[None]:
        return self._wrapped().no_sync()

    def evaluate(self, compute: Callable[[], T]) -> T:
        with evaluation_by(self.ranks):
            scores = compute()
        return self.ranks.from_first(lambda: scores)  # equal already up to what a GPU may round

    def gathered(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return super().gathered(tensors) if self.ranks.first else {}

    def release(self) -> None:
        self.ddp = None  # DDP has one bucket plan for the parameters that are trained when it is made

    def _wrapped(self) -> nn.parallel.DistributedDataParallel:
        if self.ddp is None:
            # Weights are equal already, and buffers are constants. Their option had another name before PyTorch 2.13.
            known = inspect.signature(nn.parallel.DistributedDataParallel).parameters
            buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
            options: dict[str, Any] = {"init_sync": False, buffers: False, "gradient_as_bucket_view": True}
            # A quarter of the gradients at most: others are averaged while the backward pass goes on. PyTorch has 25.
            size = sum(p.nbytes for p in self.module.parameters() if p.requires_grad)
            megabytes = max(25.0, min(4 * GROUP_PARAMETERS, size / 4) / 2**20)
            self.ddp = nn.parallel.DistributedDataParallel(self.module, bucket_cap_mb=megabytes, **options)
        return self.ddp


def reduces_unused() -> bool:
    """Whether FSDP2 reduces gradients of parameters that the rows of some ranks leave out, as PyTorch does from 2.12
    on; before, the collectives of ranks would not match."""
    from torch.distributed.fsdp import FSDPModule

    return hasattr(FSDPModule, "set_reduce_scatter_unused_params")


def grouped(blocks: Sequence[T], parameters: Callable[[T], float]) -> list[list[T]]:
    """Consecutive blocks in groups of GROUP_PARAMETERS or more; the last one has what is left."""
    groups: list[list[T]] = []
    for block in blocks:
        if not groups or sum(map(parameters, groups[-1])) >= GROUP_PARAMETERS:
            groups.append([])
        groups[-1].append(block)
    return groups


def size(module: nn.Module) -> int:
    """Parameters of a module."""
    return sum(each.numel() for each in module.parameters())


def vectors(module: nn.Module) -> list[nn.Parameter]:
    """Biases and gains that are not split."""
    return [each for each in module.parameters() if each.dim() < 2 and not is_sharded(each)]


class FullySharded(SingleProcess):
    """FSDP2 (`fully_shard`): weights of a group of blocks are gathered for its forward and backward pass, and freed;
    without `reshard`, they are gathered once for all passes of a step. A model on the meta device gets its values from
    `meta`, group by group.

    Biases and gains stay whole on every rank, and float32: they are few numbers in most of the tensors, each of which
    costs the host as much as a matrix (decision 223). `stacks` are lists of blocks that run one after the other.
    """

    def __init__(
        self,
        objective: Objective,
        stacks: Sequence[Sequence[nn.Module]],
        ranks: Ranks,
        *,
        on: torch.device,
        bf16: bool,
        cpu_offload: bool,
        reshard: bool = True,
        stream: bool = False,
        tensor_parallel: int = 1,
        meta: MetaWeights | None = None,
    ):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

        self.model = cast(nn.Module, objective.model)
        if tensor_parallel > 1:
            sizes = (ranks.size // tensor_parallel, tensor_parallel)
            mesh = init_device_mesh(on.type, sizes, mesh_dim_names=("data", "tensor"))
            self.split: TensorParallel | None = TensorParallel(self.model, mesh["tensor"])
            mesh = mesh["data"]
        else:
            self.split, mesh = None, init_device_mesh(on.type, (ranks.size,))
        # Weights are gathered in half precision, gradients reduced in float32. Autocast decides about the rest, as on
        # one process: inputs are not cast.
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if bf16 else None,
            reduce_dtype=torch.float32 if bf16 else None,
            cast_forward_inputs=False,
        )
        # Pinned memory, from which copies are asynchronous, needs a GPU.
        offload = CPUOffloadPolicy(pin_memory=on.type == "cuda") if cpu_offload else OffloadPolicy()
        # A mesh of one rank (of data, where blocks are split over all ranks) has its shards whole: gathering them again
        # would copy and cast every weight twice a pass.
        self.reshard = reshard and mesh.size() > 1
        options: dict[str, Any] = {"mesh": mesh, "mp_policy": policy, "offload_policy": offload}
        self.whole: list[nn.Parameter] = []
        groups = [group for blocks in stacks for group in grouped(blocks, lambda each: size(each) / tensor_parallel)]
        for group in groups:
            for block in group:
                if meta is not None:
                    meta.fill(block)
                if self.split is not None:
                    self.split(block)
                if not cpu_offload:
                    self.whole += vectors(block)
            modules = group if len(group) > 1 else group[0]
            fully_shard(modules, reshard_after_forward=self.reshard, ignored_params=set(self.whole), **options)
        if meta is not None:
            meta.fill(objective)
            # Decoding copies models, which FSDP refuses, and one rank alone cannot gather weights.
            self.unsharded = meta.full if ranks.first else None
        self.whole = [] if cpu_offload else vectors(objective)
        self.root: Any = fully_shard(objective, reshard_after_forward=False, ignored_params=set(self.whole), **options)
        if reduces_unused():
            self.root.set_reduce_scatter_unused_params(True)
        self.ranks, self.stream, self.mesh = ranks, stream, mesh
        super().__init__(objective)

    def reduce(self) -> None:
        trained = [each for each in self.whole if each.requires_grad]
        if self.mesh.size() > 1 and trained:
            gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in trained]
            reduced = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(reduced, group=self.mesh.get_group())
            parts = torch.split(reduced / self.mesh.size(), [each.numel() for each in trained])
            for parameter, part in zip(trained, parts, strict=True):
                parameter.grad = part.view_as(parameter)
        self.shards.take_gradients()

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        self.root.set_requires_gradient_sync(False)
        self.root.set_reshard_after_backward(self.reshard)  # weights change after the last pass only
        try:
            yield
        finally:
            self.root.set_requires_gradient_sync(True)
            self.root.set_reshard_after_backward(True)

    @contextmanager
    def evaluated(self, device: torch.device) -> Iterator[None]:
        gathered = self.gathered(weights(self.model))
        if self.unsharded is not None:
            load_weights(self.unsharded, gathered)
            self.unsharded.to(device)
        del gathered
        try:
            yield
        finally:
            if self.unsharded is not None:
                self.unsharded.cpu()

    def evaluate(self, compute: Callable[[], T]) -> T:
        return self.ranks.from_first(compute)

    def gathered(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        # One at a time: a GPU holds one full tensor, the host of rank 0 all.
        gathered = {name: self._gathered(name, tensor) for name, tensor in tensors.items()}
        return {name: plain for name, plain in gathered.items() if plain is not None}

    def saved(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor] | StreamedTensors:
        if not self.stream:
            return self.gathered(tensors)
        return StreamedTensors(tensors, lambda name: cast(Tensor, self._gathered(name, tensors[name])))

    def _gathered(self, name: str, tensor: Tensor) -> Tensor | None:
        """A plain copy on the host of rank 0, None on the others. A collective."""
        if not self.ranks.first:
            full(tensor.detach())
            return None
        plain = full_copy(tensor)
        return (self.split.plain(name, plain) if self.split else plain).contiguous()

    def placed(self, tensor: Tensor, like: Tensor, name: str) -> Tensor:
        return placed_like(self.split.permuted(name, tensor) if self.split else tensor, like)
