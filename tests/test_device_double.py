"""The double of a CUDA device sees what a host would wait for, and nothing else."""

from collections import Counter

import pytest
import torch

from agentrt_kernels.tables import Table, addresses, send, upload
from tests.device_double import Memory, Waiting

DEVICE = torch.device("cpu")
"""Stands for the device; "cpu" is the host."""


def waits(act):
    """What `act` makes the host wait for, given floats of the device, integers made of them, and the host's."""
    there, here = torch.arange(6.0), torch.arange(6)
    with Waiting(Memory()) as seen:
        act(there, (there * 2).long(), here)
    return seen.waits


@pytest.mark.parametrize(
    ("act", "seen"),
    [
        (lambda there, made, here: made.cpu(), "cpu"),
        (lambda there, made, here: made.to("cpu", torch.int32), "to"),
        (lambda there, made, here: made.to(device="cpu"), "to"),
        (lambda there, made, here: here.to(DEVICE), "to"),
        (lambda there, made, here: torch.as_tensor([1, 2], device=DEVICE), "as_tensor"),
        (lambda there, made, here: torch.tensor(2.0, device=DEVICE), "tensor"),
        (lambda there, made, here: made.copy_(here), "copy_"),
        (lambda there, made, here: made[here], "__getitem__"),
        (lambda there, made, here: int(made.sum()), "_local_scalar_dense"),
        (lambda there, made, here: there[2:].max().item(), "_local_scalar_dense"),
        (lambda there, made, here: made.tolist(), "tolist"),
        (lambda there, made, here: made.numpy(), "numpy"),
        (lambda there, made, here: (made > 2).nonzero(), "nonzero"),
        (lambda there, made, here: made[there > 2], "index"),
        (lambda there, made, here: made.__setitem__(there > 2, made[:3] + 1), "index_put_"),
        (lambda there, made, here: made.unique(), "_unique2"),
    ],
)
def test_what_blocks_is_counted_once(act, seen):
    assert waits(act) == Counter([seen])


@pytest.mark.parametrize(
    "act",
    [
        lambda there, made, here: here.to(DEVICE, non_blocking=True) + made,
        lambda there, made, here: made[send(here, DEVICE)],
        lambda there, made, here: upload([Table([(1, 2)], 2)], DEVICE)[0] + made[:2],
        lambda there, made, here: addresses([[(1, 2)]], DEVICE) + made[:2],
        lambda there, made, here: made.copy_(here, non_blocking=True),
        lambda there, made, here: made.to(torch.float16).to(DEVICE),
        lambda there, made, here: torch.arange(6, device=DEVICE) + made,
        lambda there, made, here: made.masked_fill(there > 2, 0.0).sort().values.sum(),
        lambda there, made, here: int(here.sum()) + len(here.nonzero()) + here.tolist()[0],
        lambda there, made, here: here.cpu().to("cpu", torch.int32)[here > 2],
        lambda there, made, here: made + torch.tensor(3.0),
    ],
)
def test_what_does_not_is_not(act):
    assert not waits(act)


def test_what_came_back_is_the_hosts():
    assert waits(lambda there, made, here: made.cpu().tolist()) == Counter(["cpu"])


def test_what_was_sent_is_the_devices():
    assert waits(lambda there, made, here: send(here, DEVICE).tolist()) == Counter(["tolist"])
    assert not waits(lambda there, made, here: (send(here, DEVICE), here.tolist()))


def test_without_a_memory_everything_is_the_devices():
    here = torch.arange(6)
    with Waiting() as seen:
        here.tolist()
        here[here > 2].sum()
    assert seen.waits == Counter(["tolist", "index"])
