"""lora_shrink_expand: each row gets its own adapter's term, in one call for any mix."""

import pytest
import torch

from agentrt_kernels.lora_shrink_expand import reference, triton
from agentrt_kernels.lora_shrink_expand.reference import Span, Weights
from agentrt_kernels.tables import upload
from tests.kernels.bounds import assert_within

SPANS = [Span(0, 1, 1), Span(1, 70, 0), Span(72, 75, 2), Span(75, 80, 3)]  # 70 and 71: none; 2 has no weights here


def weights(d_in, d_out, ranks, dtype, generator):
    made = []
    for rank in ranks:
        down, up = torch.randn(d_in, rank, generator=generator), torch.randn(rank, d_out, generator=generator)
        made.append(Weights((down / d_in**0.5).to(dtype), up.to(dtype)) if rank else None)
    return made


def launch(x, out, spans, terms):
    dtype = next(term for term in terms if term).down.dtype
    max_rank = max(term.down.shape[1] for term in terms if term)
    (pieces,) = upload([triton.table(spans)], "cpu")
    where = triton.addresses(terms, "cpu")
    scratch = torch.full((triton.scratch_size(*x.shape, max_rank),), float("nan"))
    triton.shrink_expand(x, out, pieces, where, max_rank, dtype, scratch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("d_in", "d_out", "ranks"), [(48, 96, (4, 13, 0, 1)), (1500, 130, (128, 8, 0, 24))])
@pytest.mark.parametrize("add", [reference.lora_shrink_expand, launch])
def test_equals_the_definition_in_fp64(add, d_in, d_out, ranks, dtype):
    generator = torch.Generator().manual_seed(d_in)
    x = torch.randn(80, d_in, generator=generator).to(dtype)
    base = torch.randn(80, d_out, generator=generator).to(dtype)
    terms = weights(d_in, d_out, ranks, dtype, generator)
    truth, stock = base.double(), base.clone()
    for start, end, adapter in SPANS:
        if terms[adapter] is not None:
            down, up = terms[adapter]
            truth[start:end] += x[start:end].double() @ down.double() @ up.double()
            stock[start:end] += x[start:end] @ down @ up
    out = base.clone()
    add(x, out, SPANS, terms)
    assert_within(out, truth, stock)
    assert torch.equal(out[70:75], base[70:75])


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("rank 0", lambda x, out, terms: (x, out, [Weights(terms[0].down[:, :0], terms[0].up[:0])])),
        ("do not map", lambda x, out, terms: (x, out[:, 1:], terms)),
        ("out: dtype", lambda x, out, terms: (x, out.half(), terms)),
        ("weights\\[0\\]: dtypes", lambda x, out, terms: (x, out, [Weights(terms[0].down.half(), terms[0].up)])),
        ("adapter 3 of 1", lambda x, out, terms: (x, out, terms[:1])),
    ],
)
def test_bad_arguments_are_named(argument, change):
    terms = weights(48, 96, (4, 4, 4, 4), torch.float32, torch.Generator().manual_seed(0))
    x, out, terms = change(torch.randn(80, 48), torch.randn(80, 96), terms)
    with pytest.raises(ValueError, match=argument):
        reference.lora_shrink_expand(x, out, [Span(0, 4, 0), Span(4, 8, 3)], terms)


def test_the_launch_names_bad_arguments_too():
    terms = weights(48, 96, (4,), torch.float32, torch.Generator().manual_seed(0))
    x, out, spans = torch.randn(80, 48), torch.randn(80, 96), [Span(0, 4, 0)]
    with pytest.raises(ValueError, match="out: dtype"):
        launch(x, out.half(), spans, terms)
    with pytest.raises(ValueError, match=r"dtype: weights of torch\.float16"):
        launch(x, out, spans, [Weights(terms[0].down.half(), terms[0].up.half())])
    with pytest.raises(ValueError, match=r"weights\[0\]: rank 129"):
        launch(x, out, spans, weights(48, 96, (129,), torch.float32, torch.Generator()))
    with pytest.raises(ValueError, match="x, out: rows must be contiguous"):
        launch(x, out.T.contiguous().T, spans, terms)
