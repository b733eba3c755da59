"""The compiled decode kernel against attention written out in fp64: pieces, chunks, ranks, groups, layers, threads."""

import itertools
from itertools import accumulate, pairwise
from typing import NamedTuple

import pytest
import torch

from agentrt_kernels.dispatch import resolve
from agentrt_kernels.lora_attention.decode import Decode
from agentrt_kernels.lora_attention.partners import stretches
from agentrt_kernels.lora_attention.pieces import Piece, Row, Where
from tests.kernels.bounds import assert_within

LAYERS = 2
SHAPES = [(torch.float32, 8, 3, 2), (torch.bfloat16, 64, 3, 3), (torch.bfloat16, 20, 1, 2)]
LENGTHS = [[1], [4, 3], [255, 256, 257], [1000, 1]]


class Stored(NamedTuple):
    """Rows of one piece as planes keep them: k and v [layers, T, Hkv, d], lr [layers, T, r] or None."""

    k: torch.Tensor
    v: torch.Tensor
    lr: torch.Tensor | None

    @property
    def piece(self):
        places = (None if each is None else Where(each.data_ptr(), *_bytes(each)) for each in self)
        return Piece(self.k.shape[1], *places)


def _bytes(rows):
    return rows.stride(0) * rows.element_size(), rows.stride(1) * rows.element_size()


def _stored(length, dtype, kv_heads, d, rank, generator):
    """Inside larger tensors of NaN, as slots among other slots are."""

    def among(*shape):
        held = torch.full((LAYERS, length + 5, *shape), float("nan"), dtype=dtype)
        rows = held[:, 3 : 3 + length]
        return rows.copy_(torch.randn(rows.shape, generator=generator))

    lr = among(rank) if rank else None
    return Stored(among(kv_heads, d), among(kv_heads, d), lr)


def _dense(q, pieces, up, layer, scale, dtype):
    """One row in `dtype`; q [H, d], up [r, Hkv, d]."""
    k, v = (torch.cat([getattr(piece, part)[layer] for piece in pieces]).to(dtype) for part in ("k", "v"))
    if up is not None:
        terms = [
            torch.zeros(piece.v[layer].shape, dtype=dtype)
            if piece.lr is None
            else torch.einsum("tr,rhd->thd", piece.lr[layer].to(dtype), up.to(dtype))
            for piece in pieces
        ]
        v = v + torch.cat(terms)
    group = len(q) // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    weights = (torch.einsum("hd,thd->ht", q.to(dtype), k) * scale).softmax(-1)
    return torch.einsum("ht,thd->hd", weights, v)


@pytest.mark.parametrize(("dtype", "d", "group", "kv_heads"), SHAPES)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_equal_fp64(dtype, d, group, kv_heads, lengths, threads):
    """A row with low-rank parts in some pieces, one without any, and one of another rank, of a step with more rows."""
    generator = torch.Generator().manual_seed(len(lengths) * d)
    ranks = (8, 0, 3)
    stored = [
        [_stored(n, dtype, kv_heads, d, rank if at < 2 else 0, generator) for at, n in enumerate(lengths)]
        for rank in ranks
    ]
    ups = [torch.randn(LAYERS, rank, kv_heads, d, generator=generator) if rank else None for rank in ranks]
    rows = [
        Row(at, [each.piece for each in pieces], [layer.data_ptr() for layer in up] if up is not None else [], rank)
        for at, pieces, up, rank in zip((2, 0, 3), stored, ups, ranks, strict=True)
    ]
    q = torch.randn(4, kv_heads * group, d, generator=generator).to(dtype)
    decode = Decode(rows, dtype=dtype, kv_heads=kv_heads, group=group, head_dim=d, num_layers=LAYERS)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for layer, _ in itertools.product(range(LAYERS), range(2)):  # tables serve any number of calls
            out = torch.full_like(q, float("nan"))
            decode.run(layer, q, out, scale=0.3)
            assert out[1].isnan().all(), "a row that is not in the plan was written"
            for row, pieces, up in zip(rows, stored, ups, strict=True):
                u = None if up is None else up[layer]
                truth = _dense(q[row.at], pieces, u, layer, 0.3, torch.float64)
                assert_within(out[row.at], truth, _dense(q[row.at], pieces, u, layer, 0.3, dtype))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("dtype", "d", "group", "kv_heads"), SHAPES)
@pytest.mark.parametrize("ranks", [(8, 0), (0, 8), (8, 3), (0, 0), (20, 8)], ids=str)
def test_two_rows_over_the_same_keys_equal_fp64_each_with_low_rank_rows_of_its_own(dtype, d, group, kv_heads, ranks):
    """As under double batching: one cache, cut at other places for each, then a tail of its own. A third row reads the
    first keys of the same cache, and a fourth as many keys elsewhere."""
    generator = torch.Generator().manual_seed(sum(ranks) + d)
    cache, stranger = (_stored(700, dtype, kv_heads, d, 0, generator) for _ in range(2))
    cuts = ([0, 96, 640, 700], [0, 411, 700], [0, 96], [0, 700])
    lows = [torch.randn(LAYERS, 700, rank, generator=generator).to(dtype) if rank else None for rank in (*ranks, 8, 0)]
    seen = []
    for whole, edges, low in zip((cache, cache, cache, stranger), cuts, lows, strict=True):
        parts = [(whole.k[:, a:b], whole.v[:, a:b], None if low is None else low[:, a:b]) for a, b in pairwise(edges)]
        tail = 700 + 40 - edges[-1]
        seen.append([*(Stored(*part) for part in parts), _stored(tail, dtype, kv_heads, d, 0, generator)])
    ups = [torch.randn(LAYERS, rank, kv_heads, d, generator=generator) if rank else None for rank in (*ranks, 8, 0)]
    rows = [
        Row(at, [each.piece for each in pieces], [layer.data_ptr() for layer in up] if up is not None else [], rank)
        for at, pieces, up, rank in zip((3, 1, 0, 2), seen, ups, (*ranks, 8, 0), strict=True)
    ]
    assert {frozenset(number for number, _ in each.members) for each in stretches(rows)} == {
        frozenset({0, 1}),
        *(frozenset({number}) for number in range(4)),
    }
    q = torch.randn(4, kv_heads * group, d, generator=generator).to(dtype)
    decode = Decode(rows, dtype=dtype, kv_heads=kv_heads, group=group, head_dim=d, num_layers=LAYERS)
    for layer in range(LAYERS):
        out = torch.full_like(q, float("nan"))
        decode.run(layer, q, out, scale=0.3)
        for row, pieces, up in zip(rows, seen, ups, strict=True):
            u = None if up is None else up[layer]
            truth = _dense(q[row.at], pieces, u, layer, 0.3, torch.float64)
            assert_within(out[row.at], truth, _dense(q[row.at], pieces, u, layer, 0.3, dtype))


@pytest.mark.parametrize("own", [[[5, 2], [7]], [[7], [1, 6]], [[3], [3]]], ids=str)
def test_what_two_rows_share_is_cut_where_either_is_and_the_rest_is_read_by_each_alone(own):
    """Every key once a row, in order; `own`: the lengths of the pieces over shared keys."""
    tails = [9, 9]

    def row(at, lengths, tail):
        place = Where(4096, 10**6, 64)
        pieces = []
        for length in lengths:
            pieces.append(Piece(length, place, place.at(1000)))
            place = place.at(length)
        return Row(at, [*pieces, Piece(tail, Where(10**5 * (at + 1), 10**6, 64), Where(10**5 * (at + 3), 10**6, 64))])

    rows = [row(at, lengths, tail) for at, (lengths, tail) in enumerate(zip(own, tails, strict=True))]
    found = list(stretches(rows))
    for number, one in enumerate(rows):
        read = [piece for each in found for member, piece in each.members if member == number]
        keys = [piece.k.address + 64 * at for piece in read for at in range(piece.length)]
        assert keys == [piece.k.address + 64 * at for piece in one.pieces for at in range(piece.length)]
    shared = [each.length for each in found if len(each.members) == 2]
    alone = [each.length for each in found if len(each.members) == 1]
    cuts = sorted({edge for lengths in own for edge in accumulate(lengths)})
    expected = [end - start for start, end in pairwise([0, *cuts])]
    assert (shared, alone) == ((expected, tails) if 2 * cuts[-1] >= cuts[-1] + 9 else ([], [*own[0], 9, *own[1], 9]))


def test_a_row_is_the_same_in_any_company():
    """Bit for bit: how a row is cut into chunks and put together depends on what it reads and its partner reads."""
    generator = torch.Generator().manual_seed(3)
    first, second = (_stored(n, torch.float32, 2, 8, 0, generator) for n in (700, 90))
    q = torch.randn(2, 6, 8, generator=generator)
    shape = {"dtype": torch.float32, "kv_heads": 2, "group": 3, "head_dim": 8, "num_layers": LAYERS}
    alone, together = (torch.zeros_like(q) for _ in range(2))
    Decode([Row(0, [first.piece])], **shape).run(1, q, alone, 0.3)
    Decode([Row(1, [second.piece]), Row(0, [first.piece])], **shape).run(1, q, together, 0.3)
    assert torch.equal(alone[0], together[0])


def test_a_row_without_a_low_rank_term_is_the_same_beside_one_with():
    generator = torch.Generator().manual_seed(4)
    first, second = (_stored(n, torch.float32, 2, 64, rank, generator) for n, rank in ((700, 0), (90, 8)))
    q = torch.randn(2, 6, 64, generator=generator)
    up = torch.randn(LAYERS, 8, 2, 64, generator=generator)
    shape = {"dtype": torch.float32, "kv_heads": 2, "group": 3, "head_dim": 64, "num_layers": LAYERS}
    alone, together = (torch.zeros_like(q) for _ in range(2))
    Decode([Row(0, [first.piece])], **shape).run(1, q, alone, 0.3)
    with_term = Row(1, [second.piece], [layer.data_ptr() for layer in up], 8)
    Decode([with_term, Row(0, [first.piece])], **shape).run(1, q, together, 0.3)
    assert torch.equal(alone[0], together[0])


@pytest.mark.parametrize("name", ["query", "out"])
def test_a_tensor_that_does_not_fit_is_named(name):
    stored = _stored(4, torch.float32, 2, 8, 0, torch.Generator().manual_seed(0))
    decode = Decode([Row(0, [stored.piece])], dtype=torch.float32, kv_heads=2, group=3, head_dim=8, num_layers=LAYERS)
    tensors = {"query": torch.zeros(1, 6, 8), "out": torch.zeros(1, 6, 8)}
    tensors[name] = tensors[name].bfloat16()
    with pytest.raises(ValueError, match=name):
        decode.run(0, tensors["query"], tensors["out"], 1.0)


def test_jit_is_what_a_cpu_gets_and_nobody_else():
    assert resolve("auto", "cpu", head_dim=64, dtype=torch.bfloat16) == "jit"
    assert resolve("auto", "cpu", head_dim=64, dtype=torch.float16) == "reference"
    assert resolve("reference", "cpu", head_dim=64, dtype=torch.bfloat16) == "reference"
    with pytest.raises(ValueError, match="jit cannot run here: the device is cuda"):
        resolve("jit", "cuda", head_dim=64, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="float16"):
        resolve("jit", "cpu", head_dim=64, dtype=torch.float16)
