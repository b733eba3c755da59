"""A Llama of the setup's sizes with random weights, and random adapters for it."""

import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from agentrt.evaluate.replay.adapters import RandomAdapters
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from benchmarks.gpu_stages.setup import Setup

AGENTS = ("plan", "action", "reflect")


class Again:
    """For a smoke run: what is recorded is the function, and a replay calls it."""

    def record(self, launch: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        out = launch()

        def replay() -> None:
            out.copy_(launch())

        return replay, out


class Llama:
    """Loaded once for all stages."""

    def __init__(self, setup: Setup) -> None:
        with torch.device(setup.device):
            config = LlamaConfig(tie_word_embeddings=False, **setup.model)
            model = AutoModelForCausalLM.from_config(config, dtype=setup.dtype)
        model.eval().requires_grad_(False)
        self.weight_bytes = sum(each.nbytes for each in model.parameters()) - model.get_input_embeddings().weight.nbytes
        """Bytes that a decode step reads: all weights but the embeddings, of which it reads a row a token."""
        recorder = Again() if setup.smoke else None
        self.backbone = Backbone(model, names=("random",), backend="triton", recorder=recorder)
        self._rank = setup.rank

    @cached_property
    def adapters(self) -> AdapterSet:
        """One adapter an agent, on q and v."""
        return self._random(shared_a=False)

    @cached_property
    def adapters_with_one_a(self) -> AdapterSet:
        """The same with one A between them, as base_lr_shared wants it."""
        return self._random(shared_a=True)

    def _random(self, *, shared_a: bool) -> AdapterSet:
        with tempfile.TemporaryDirectory() as folder:
            wanted = RandomAdapters(r=self._rank, targets="qv")
            shapes = self.backbone.shapes
            folders = wanted.write(AGENTS, shapes, Path(folder), base_name="random", shared_a=shared_a)
            return self.backbone.load_adapters(folders)
