"""Options that several schemes share: sets of layers as a user writes them, and ratios."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from agentrt.errors import SchemeError
from agentrt.schemes.layer_file import SUFFIX, read_layers

Layers = str | int | Sequence[int]
"""A name of NAMED, or layers: `7`, `10-19`, `0-1+5+7`, from Python also a sequence of numbers; or a file of measured
layers, which `fit_layers` reads."""


def _middle(num_layers: int) -> range:
    third = max(1, round(num_layers / 3))
    start = (num_layers - third) // 2
    return range(start, start + third)


NAMED: Final[dict[str, Callable[[int], range]]] = {
    "middle": _middle,
    "spread": lambda num_layers: range(0, num_layers, 3),
    "all": range,
    "none": lambda num_layers: range(0),
}
"""The middle third; every third; all; none."""


def check_layers(scheme: str, layers: Layers) -> None:
    """Raise SchemeError for a set that cannot be read, whatever the model."""
    if not isinstance(layers, str) or not (layers in NAMED or layers.endswith(SUFFIX)):
        _listed(scheme, layers)


def fit_layers(scheme: str, layers: Layers, backbone_hash: str, adapter_hashes: Mapping[str, str]) -> Layers:
    """What the file of measured layers says, where `layers` names one. Raises SchemeError."""
    if not isinstance(layers, str) or not layers.endswith(SUFFIX):
        return layers
    return read_layers(layers, scheme, backbone_hash=backbone_hash, adapter_hashes=adapter_hashes)


def resolve_layers(scheme: str, layers: Layers, num_layers: int) -> tuple[int, ...]:
    """The layers meant, ascending. Raises SchemeError for those that the model does not have."""
    if isinstance(layers, str) and layers in NAMED:
        return tuple(NAMED[layers](num_layers))
    listed = _listed(scheme, layers)
    if beyond := [layer for layer in listed if not 0 <= layer < num_layers]:
        raise SchemeError(
            f"{scheme}: layers {_spell(layers)} has layer {beyond[0]}, but the model's layers are 0-{num_layers - 1}"
        )
    return listed


def neighbours(scheme: str, layers: tuple[int, ...]) -> tuple[int, ...]:
    """`layers`, which must follow one another. Raises SchemeError."""
    if layers and layers[-1] - layers[0] != len(layers) - 1:
        raise SchemeError(
            f"{scheme}: layers {_spell(layers)} have gaps; write one range, e.g. layers={layers[0]}-{layers[-1]}, "
            "or use droidspeak_scattered"
        )
    return layers


def check_ratio(scheme: str, ratio: float) -> None:
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 <= ratio <= 1:
        raise SchemeError(f"{scheme}: ratio is {ratio!r}; write a number from 0 to 1, the part of unread tokens kept")


def share_of(ratio: float, count: int) -> int:
    """`ratio` of `count`, rounded down; 0.29 of 100 is 29, whatever binary fractions make of it."""
    return int(ratio * count + 1e-9)


def _listed(scheme: str, layers: Layers) -> tuple[int, ...]:
    known = f"write {', '.join(NAMED)}, a range such as 4-9, a list such as 0+4-6, or a FILE{SUFFIX}"
    if isinstance(layers, (list, tuple, range)) and all(type(layer) is int for layer in layers):
        return tuple(sorted(set(layers)))
    if isinstance(layers, bool) or not isinstance(layers, (str, int)):
        raise SchemeError(f"{scheme}: unknown layer set {layers!r}; {known}")
    found: set[int] = set()
    for word in str(layers).split("+"):
        first, dash, last = word.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise SchemeError(f"{scheme}: unknown layer set {layers!r}; {known}")
        low, high = int(first), int(last or first)
        if low > high:
            raise SchemeError(f"{scheme}: the range {word.strip()} of layers {layers!r} is empty; write {high}-{low}")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def _spell(layers: Layers) -> str:
    return str(layers) if isinstance(layers, (str, int)) else "+".join(map(str, layers))
