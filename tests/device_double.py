"""Stands in for a CUDA device: counts where a host would wait for it, and records launches as its graphs do."""

from collections import Counter

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from agentrt_kernels.kv_append import triton as kv_append
from agentrt_kernels.lora_attention import launch
from agentrt_kernels.lora_shrink_expand import triton as lora_shrink_expand
from agentrt_kernels.lr_project import triton as lr_project

WAITS = ("item", "_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "unique_dim", "_unique2")
"""Operators that bring a number to the host, or whose result is as long as numbers on the device say."""

MASKED = ("index", "index_put_", "index_put")
"""These find the places of a mask of bools first."""

READS = ("tolist", "numpy", "__array__")
"""Calls that bring all numbers to the host; on a CPU no operator shows."""

COPIES = ("to", "cpu", "copy_", "tensor", "as_tensor")
"""Calls that may bring numbers from one side to the other; with `non_blocking` the host goes on."""

KERNELS = (
    (kv_append, "append_kernel"),
    (launch, "attend_kernel"),
    (launch, "combine_kernel"),
    (lr_project, "project_kernel"),
    (lora_shrink_expand, "shrink_kernel"),
    (lora_shrink_expand, "expand_kernel"),
)


class Memory(TorchFunctionMode):
    """Tells a device's tensors from the host's, though all lie in the same memory, and counts what blocks.

    On the device are floats, which the host has none of, what is made for a `torch.device`, and what is made of these;
    "cpu" names the host. A copy to the other side has memory of its own. With `everything` there is no host's side.
    """

    def __init__(self, *, everything=False):
        super().__init__()
        self.waits = Counter()
        self.on_device = everything
        """Whether what runs now reads the device's memory."""
        self._everything = everything
        self._storages = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        named = kwargs or {}
        name = getattr(func, "__name__", "")
        given = [x for x in _flat([*args, *named.values()]) if isinstance(x, torch.Tensor)]
        sides = {self._holds(x) for x in given if x.dim() or name in COPIES}
        target = _target(name, args, named)
        moves = name in COPIES and target is not None and target not in sides
        crosses = len(sides) > 1  # a copy, or an index that is copied first
        before, self.on_device = self.on_device, any(map(self._holds, given))
        try:
            made = func(*args, **named)
        finally:
            reads, self.on_device = self.on_device, before
        if ((moves and (given or target)) or crosses or (reads and name in READS)) and not named.get("non_blocking"):
            self.waits[name] += 1
        if moves and given:
            made = made.clone()
        if reads if target is None else target:
            stores = [x.untyped_storage() for x in _flat([made]) if isinstance(x, torch.Tensor)]
            self._storages |= {store._cdata: store for store in stores}
        return made

    def _holds(self, tensor):
        return self._everything or tensor.is_floating_point() or tensor.untyped_storage()._cdata in self._storages


class Waiting(TorchDispatchMode):
    """Counts where a host would wait; `memory` tells it from the device, without one all tensors are the device's."""

    def __init__(self, memory=None):
        super().__init__()
        self.waits = Counter()
        self._memory = memory or Memory(everything=True)

    def __enter__(self):
        self._memory.waits = self.waits
        self._memory.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._memory.__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        masks = [x for x in _flat(args[1:]) if isinstance(x, torch.Tensor) and x.dtype == torch.bool]
        if (name in WAITS or (name in MASKED and masks)) and self._memory.on_device:
            self.waits[name] += 1
        return func(*args, **(kwargs or {}))


class Calls(Waiting):
    """Also lists what was called: operators and kernels with sizes and numbers, and where integer tables lie."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        named = kwargs or {}
        if not _takes_scratch(func, args):
            self.calls.append((str(func), *map(_shown, _flat(args)), *map(_shown, _flat(list(named.values())))))
        return super().__torch_dispatch__(func, types, args, named)


class Replayer:
    """A recorder that runs the function again instead of replaying it, and then finds the same launches.

    In a CUDA graph what the host computes is frozen, numbers that come from it cannot be recorded, and a table that
    has moved is read where it was: all three are found. `watch` comes first, so that kernels are seen.
    """

    def __init__(self, before_replay=lambda: None):
        self.recorded = 0
        self._before_replay = before_replay
        self._now = None

    def watch(self, monkeypatch):
        for owner, name in KERNELS:
            monkeypatch.setattr(owner, name, _Seen(getattr(owner, name), name, self))
        return self

    def launched(self, *call):
        if self._now is not None:
            self._now.calls.append(call)

    def record(self, launch):
        launch()  # CUDA's recorder warms up too
        first, out = self._listen(launch)
        assert not first.waits
        assert not [call for call in first.calls if "lift_fresh" in call[0]], "numbers came from the host"
        self.recorded += 1

        def replay():
            self._before_replay()
            again, now = self._listen(launch)
            assert len(again.calls) == len(first.calls)
            for one, other in zip(again.calls, first.calls, strict=True):
                assert one == other, f"{one}\n{other}"
            out.copy_(now)

        return replay, out

    def _listen(self, launch):
        with Calls() as calls:
            self._now = calls
            try:
                return calls, launch()
            finally:
                self._now = None


class _Seen:
    """A kernel whose launches are listed."""

    def __init__(self, kernel, name, replayer):
        self._kernel, self._name, self._replayer = kernel, name, replayer

    def __getitem__(self, grid):
        def run(*args, **named):
            shown = [(key, _shown(value)) for key, value in named.items()]
            self._replayer.launched(self._name, grid, *map(_shown, args), *shown)
            with _disable_current_modes(), torch._C.DisableTorchFunction():  # the interpreter is no part of the step
                return self._kernel[grid](*args, **named)

        return run


def _takes_scratch(func, args):
    """Scratch may have grown since the recording, which keeps the tensor that it had."""
    return str(func) == "aten.slice.Tensor" and args[0].dim() == 1 and args[0].dtype == torch.float32


def _target(name, args, named):
    """Whether the result lies on the device, where the call says so."""
    if name == "cpu":
        return False
    places = [*(args[1:2] if name == "to" else ()), named.get("device")]
    said = [place for place in places if isinstance(place, torch.device) or (isinstance(place, str) and place == "cpu")]
    return isinstance(said[0], torch.device) if said else None


def _flat(values):
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _shown(value):
    if not isinstance(value, torch.Tensor):
        return str(value)
    where = value.data_ptr() if value.dtype == torch.int32 else None
    return (tuple(value.shape), value.stride(), str(value.dtype), where)
