"""Where the cache of every layer lies, as the Triton kernels read it: int64 addresses, made when planes change."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from agentrt_kernels.lora_attention.packed import Cache, check_cache
from agentrt_kernels.tables import addresses


@dataclass(frozen=True)
class Addresses:
    """Addresses of the caches of all layers, [layers, n, 2] int64 on the device, and what the layers share.

    kv holds (k, v); lr and lrk (rows, row stride in elements); up and key_up (matrix, rank). The caches are kept,
    so that no address outlives its tensor.
    """

    caches: Sequence[Cache]
    kv: torch.Tensor
    lr: torch.Tensor
    lrk: torch.Tensor
    up: torch.Tensor
    key_up: torch.Tensor
    align: int
    """Bytes that divide every address and row of k and v."""
    lr_align: int

    @classmethod
    def of(cls, caches: Sequence[Cache]) -> "Addresses":
        """`caches`: one a layer, alike but for their tensors' addresses. Raises ValueError for what is not."""
        first = caches[0]
        check_cache(first)
        for name in Cache._fields[:6]:
            for cache in caches:
                for tensor in getattr(cache, name):
                    dense = tensor[0].is_contiguous() if name in ("lr", "lrk") else tensor.is_contiguous()
                    if not dense:
                        raise ValueError(f"{name}: rows must be contiguous")
                shapes = [(tensor.shape, tensor.dtype) for tensor in getattr(cache, name)]
                if shapes != [(tensor.shape, tensor.dtype) for tensor in getattr(first, name)]:
                    raise ValueError(f"{name}: all layers must have the same shapes and dtypes")
                if len({dtype for _, dtype in shapes}) > 1:
                    raise ValueError(f"{name}: dtypes differ between segments")
        device = first.k[0].device
        kv = [[(k.data_ptr(), v.data_ptr()) for k, v in zip(c.k, c.v, strict=True)] for c in caches]
        low = [[[(x.data_ptr(), x.stride(0)) for x in part] for part in (c.lr, c.lrk)] for c in caches]
        ups = [[[(x.data_ptr(), x.shape[0]) for x in part] for part in (c.up, c.key_up)] for c in caches]
        row = first.k[0].shape[2] * first.k[0].element_size()
        lows = [x for c in caches for part in (c.lr, c.lrk) for x in part]
        return cls(
            caches,
            addresses(kv, device),
            addresses([layer[0] for layer in low], device),
            addresses([layer[1] for layer in low], device),
            addresses([layer[0] for layer in ups], device),
            addresses([layer[1] for layer in ups], device),
            align=_divides([row, *(number for layer in kv for pair in layer for number in pair)], 16),
            lr_align=_divides([n for x in lows for n in (x.data_ptr(), x.stride(0) * x.element_size())], 16),
        )


def _divides(numbers: Sequence[int], most: int) -> int:
    """The largest power of two up to `most` that divides all `numbers`."""
    while any(number % most for number in numbers):
        most //= 2
    return most
