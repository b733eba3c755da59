"""The one error bound of all kernels."""

import torch


def assert_within(got, truth, stock, dtype):
    """At most twice PyTorch's own error in this dtype, above a floor of a few roundings of the largest value.

    `truth` is fp64, `stock` what plain PyTorch gives in `dtype`.
    """
    floor = 4 * torch.finfo(dtype).eps * truth.abs().max()
    bound = 2 * (stock.double() - truth).abs().max() + floor
    error = (got.double() - truth).abs().max()
    assert error <= bound, f"error {error:.3g} above {bound:.3g}"
