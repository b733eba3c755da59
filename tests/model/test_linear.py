"""The packed product equals the plain one to the bit, for any number of rows."""

import pytest
import torch

from agentrt.model.linear import PackedLinear, packs


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 17, 130])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_packing_changes_no_bit(dtype, rows, bias):
    torch.manual_seed(rows)
    base = torch.nn.Linear(96, 160, bias=bias).to(dtype).requires_grad_(False)
    x = torch.randn(1, rows, 96).to(dtype)
    assert torch.equal(PackedLinear(base)(x), base(x))


def test_the_plain_weight_is_dropped_where_a_packed_one_serves():
    base = torch.nn.Linear(96, 160).bfloat16()
    assert (PackedLinear(base).weight is None) == packs(base.weight)
