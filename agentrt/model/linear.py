"""The base product of a linear layer, from a weight packed once where the CPU gains from it."""

from collections.abc import Sequence

import torch
from torch import nn


class PackedLinear(nn.Module):
    """y = x W^T + b, frozen; of several bases, their outputs one after another.

    In bf16 on a CPU, torch repacks W into oneDNN's blocked layout in every call; here it is packed once and the
    plain weight is dropped. Results are the same to the bit, few rows take about half the time.
    """

    def __init__(self, *bases: nn.Linear) -> None:
        super().__init__()
        weights = [base.weight.detach() for base in bases]
        weight = weights[0] if len(bases) == 1 else torch.cat(weights)
        self.bias = _joined_bias(bases)
        packed = pack(weight) if packs(weight) else None
        self.weight = weight if packed is None else None
        self._packed = packed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._packed is None:
            assert self.weight is not None
            return nn.functional.linear(x, self.weight, self.bias)
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return out


class JointLinear:
    """Linear layers of one input, as one product: one wide product takes less time than several narrow ones.

    Stock layers call them one after another with the same tensor: the first call computes, each takes its part.
    """

    def __init__(self, bases: Sequence[nn.Linear]) -> None:
        self._linear = PackedLinear(*bases)
        self._sizes = [base.out_features for base in bases]
        self._input: torch.Tensor | None = None
        self._parts: dict[int, torch.Tensor] = {}

    def part(self, index: int, x: torch.Tensor) -> torch.Tensor:
        """The output of the layer `index` for `x`: a view of its own columns, which the caller may change."""
        if x is not self._input or index not in self._parts:
            self._input, self._parts = x, dict(enumerate(self._linear(x).split(self._sizes, -1)))
        part = self._parts.pop(index)
        if not self._parts:
            self._input = None
        return part


def _joined_bias(bases: Sequence[nn.Linear]) -> torch.Tensor | None:
    if all(base.bias is None for base in bases):
        return None
    return torch.cat([b.weight.new_zeros(b.out_features) if b.bias is None else b.bias.detach() for b in bases])


def packs(weight: torch.Tensor) -> bool:
    """Whether a packed layout exists and pays: bf16 on a CPU whose oneDNN multiplies it natively."""
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def pack(weight: torch.Tensor) -> torch.Tensor:
    """`weight` [out, in] in oneDNN's blocked layout, for any number of rows."""
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
    return packed
