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
    (pieces,) = upload([triton.table(spans)], "cpu")
    located = triton.Terms.of(terms, "cpu")
    scratch = torch.full((located.scratch_size(len(x)),), float("nan"))
    triton.shrink_expand(x, out, pieces, located, scratch)


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
        ("rank 129", lambda x, out, terms: (x, out, weights(48, 96, (129,), x.dtype, None))),
        (
            "weights\\[1\\]: shapes .* do not map 48 to 96",
            lambda x, out, terms: (x, out, [terms[0], terms[1]._replace(up=terms[1].up[:, 1:])]),
        ),
        ("weights\\[0\\]: shapes", lambda x, out, terms: (x, out, [terms[0]._replace(up=terms[0].up[:3])])),
        ("weights\\[0\\]: dtypes", lambda x, out, terms: (x, out, [Weights(terms[0].down.half(), terms[0].up)])),
        (
            "weights\\[3\\]: dtypes",
            lambda x, out, terms: (x, out, [*terms[:3], *weights(48, 96, (4,), torch.float16, None)]),
        ),
        ("weights: dtype torch.float16", lambda x, out, terms: (x, out, weights(48, 96, (4,), torch.float16, None))),
        ("x: shape", lambda x, out, terms: (x[:, 1:], out, terms)),
        ("x: dtype torch.float64", lambda x, out, terms: (x.double(), out, terms)),
        ("out: shape", lambda x, out, terms: (x, out[:, 1:], terms)),
        ("out: shape", lambda x, out, terms: (x, out[1:], terms)),
        ("out: dtype", lambda x, out, terms: (x, out.half(), terms)),
    ],
)
@pytest.mark.parametrize("add", [reference.lora_shrink_expand, launch])
def test_bad_arguments_are_named(add, argument, change):
    terms = weights(48, 96, (4, 4, 4, 4), torch.float32, torch.Generator().manual_seed(0))
    x, out, terms = change(torch.randn(80, 48), torch.randn(80, 96), terms)
    with pytest.raises(ValueError, match=argument):
        add(x, out, [Span(0, 4, 0)], terms)


def test_a_span_of_an_adapter_that_is_not_there_is_found():
    terms = weights(48, 96, (4,), torch.float32, None)
    with pytest.raises(ValueError, match=r"spans\[1\]: adapter 3 of 1"):
        reference.lora_shrink_expand(torch.randn(80, 48), torch.randn(80, 96), [Span(0, 4, 0), Span(4, 8, 3)], terms)


def test_the_launch_names_what_only_it_cannot_take():
    terms = weights(48, 96, (4,), torch.float32, None)
    x, out, spans = torch.randn(80, 48), torch.randn(80, 96), [Span(0, 4, 0)]
    with pytest.raises(ValueError, match="x, out: rows must be contiguous"):
        launch(x, out.T.contiguous().T, spans, terms)
    with pytest.raises(ValueError, match=r"weights\[0\]: must be contiguous"):
        launch(x, out, spans, [Weights(terms[0].down.T.contiguous().T, terms[0].up)])
    with pytest.raises(ValueError, match="weights: no adapter has a term"):
        triton.Terms.of([None], "cpu")
    with pytest.raises(ValueError, match="scratch: 7 numbers, 1280 are needed"):
        triton.shrink_expand(x, out, torch.zeros(1, 3, dtype=torch.int32), triton.Terms.of(terms, "cpu"), x[0, :7])
