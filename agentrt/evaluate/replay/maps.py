"""Ridge maps for schemes that need some and name no file: fitted on random tokens, as a trace's are."""

import random
from pathlib import Path
from typing import Final

from agentrt.evaluate.ridge import fit_ridge, write_ridge
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.schemes import Scheme

FIT_TOKENS: Final = 256


def fit_maps(scheme: Scheme, backbone: Backbone, adapters: AdapterSet, folder: Path, *, seed: int) -> Scheme:
    """`scheme`, which takes maps, with a file of maps for `adapters`; the file is written once into `folder`."""
    count = min(FIT_TOKENS, backbone.max_positions)
    file = folder / f"fitted-on-{count}-random-tokens-{adapters.content_hash[:16]}.safetensors"
    if not file.exists():
        rng = random.Random(seed)
        context = [rng.randrange(backbone.vocab_size) for _ in range(count)]
        write_ridge(file, fit_ridge(backbone, adapters, [context]), backbone, adapters)
    return scheme.with_maps_file(str(file))
