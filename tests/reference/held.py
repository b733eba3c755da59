"""What each definition holds between turns, by the names of the engine's tapes; and how an engine's rows compare."""

from functools import singledispatch

import torch

from tests.reference.full import NonShared, Reference
from tests.reference.routekv import EarlyPrefix, NeutralPrefix, Ridge
from tests.reference.schemes import PreLRShared, ReBaseShared
from tests.reference.selective import DroidSpeak, Selective

TOLERANCE = 2e-5
"""fp32, relative to the largest value: sums in another order, nothing else."""


def assert_close(ours, reference, what):
    assert ours.shape == reference.shape, what
    error = (ours - reference).abs().max() / reference.abs().max()
    assert error < TOLERANCE, f"{what}: {error:.2e}"


@singledispatch
def held(reference: Reference):
    """Rows by tape, part and layer; a row's index is its position, also where the tape begins later.

    Rows that an agent has repaired are not among them: they are compact (see `assert_repairs`).
    """
    raise TypeError(type(reference))


def by_owner(caches, name="{}"):
    tapes = {}
    for (part, layer, *owner), rows in caches.items():
        tapes.setdefault(name.format(*owner), {})[part, layer] = rows
    return tapes


@held.register
def _(reference: NonShared):
    return by_owner(reference.caches)


@held.register
def _(reference: EarlyPrefix):
    whole = by_owner(reference.caches, "own:{}")
    preambles = [{key: rows[: reference.preamble] for key, rows in each.items()} for each in whole.values()]
    own = {name: each for name, each in whole.items() if len(each["k", 0]) > reference.preamble}
    return {**({"base": preambles[0]} if preambles and reference.preamble else {}), **own}


@held.register
def _(reference: NeutralPrefix):
    return by_owner(reference.caches, "base")


@held.register
def _(reference: Ridge):
    agents = {key: rows for key, rows in reference.caches.items() if len(key) == 3}
    return {
        **by_owner({key: rows for key, rows in reference.caches.items() if len(key) == 2}, "base"),
        **by_owner(agents, "own:{}"),
    }


@held.register
def _(reference: PreLRShared):
    """Base keys, and what attention reads of them where no adapter has a key term."""
    base = {}
    for layer in range(reference.model.num_layers):
        k0 = reference.caches.get(("k0", layer))
        if k0 is not None:
            keys = reference.model.keys("", layer, k0)
            base |= {("k0", layer): k0, ("k", layer): keys, ("v", layer): reference.caches["v", layer]}
    columns = {key: rows for key, rows in reference.caches.items() if len(key) == 3}
    return {"base": base, **by_owner(columns, "lr:{}")}


@held.register
def _(reference: ReBaseShared):
    """Of the base what it is to be: an engine may cover a turn later than the definition, or sooner."""
    settled = reference.fork()
    settled.settle()
    tapes = held.dispatch(PreLRShared)(settled)
    if reference.private:
        tapes["private"] = private = {}
        for layer in range(reference.model.num_layers):
            k0, v = (torch.cat([reference.caches[part, layer], reference.private[part, layer]]) for part in ("k0", "v"))
            keys = reference.model.keys("", layer, k0)
            private |= {("k0", layer): k0, ("k", layer): keys, ("v", layer): v}
    return tapes


@held.register
def _(reference: Selective):
    return by_owner(reference.caches)


@held.register
def _(reference: DroidSpeak):
    tapes = by_owner(reference.caches)
    if reference.states:
        tapes["states"] = {("x", reference.layers[0]): torch.stack([*reference.states.values()])}
    return tapes


def read(tape, planes, part, layer):
    """The rows of a tape's written positions, [end - start, *shape]."""
    rows = [planes[tape.plane].locate(run).read(part, layer) for run in tape.runs(tape.start, tape.end)]
    return torch.cat(rows) if rows else None


def assert_holds(reference, sharing, planes, unwritten=()):
    """Every row of the session's tapes is the definition's; but for `unwritten`, (plane, slot) of passes still owed."""
    for name, parts in held(reference).items():
        if name not in sharing.tapes:
            assert not any(len(rows) for rows in parts.values()), f"nothing is held as {name}"
            continue
        tape = sharing.tapes[name]
        slots = [slot for run in tape.runs(tape.start, tape.end) for slot in range(run.slot, run.slot + run.size)]
        written = [index for index, slot in enumerate(slots) if (tape.plane, slot) not in unwritten]
        for (part, layer), rows in parts.items():
            assert tape.end <= len(rows), (name, part, layer)
            if written and planes[tape.plane].spec.has(part):
                ours, want = read(tape, planes, part, layer)[written], rows[tape.start : tape.end][written]
                assert_close(ours[:, : want.shape[1]], want, (name, part, layer))
    if isinstance(reference, Selective):
        assert_repairs(reference, sharing, planes)


def assert_repairs(reference, sharing, planes):
    """Every agent's own rows: which positions they are of, and what they hold."""
    found = {}
    for name, places in sharing._places.items():
        plane, agent = name.split("/")
        positions = [position for each in places for position in each.positions.tolist()]
        for layer in planes[plane].spec.layers if positions else ():
            found[agent, layer] = positions
            mine = reference.repaired[agent, layer]
            assert set(positions) <= set(mine), (name, layer)
            for index, part in enumerate(("k", "v")):
                want = torch.stack([mine[position][index] for position in positions])
                assert_close(read(sharing.tapes[name], planes, part, layer), want, (name, part, layer))
    assert found == {key: sorted(rows) for key, rows in reference.repaired.items() if rows}
