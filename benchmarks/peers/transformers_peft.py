"""The peer every user already has: transformers + peft, one DynamicCache per agent, adapters switched between calls."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from peft import PeftModel
from transformers import DynamicCache, PreTrainedModel

from agentrt.evaluate.replay.contestant import Run
from agentrt.evaluate.replay.trace import Trace
from agentrt.model.compute import ComputeThread

LABEL = "transformers + peft"


class PeftContestant:
    """Replays a trace as `non_shared` does: each agent reads all that it has not seen, into a cache of its own.

    Takes the model over. Attention, masks, caches and low-rank terms are all the libraries' own; `autocast` is
    peft's default of keeping adapters in fp32, which is slower on a backbone in bf16.
    """

    label = LABEL

    def __init__(
        self, model: PreTrainedModel, folders: Mapping[str, Path], compute: ComputeThread, *, autocast: bool = False
    ) -> None:
        self.compute = compute  # the engine's own: computing on two threads would slow both
        (first, folder), *rest = folders.items()
        adapted = PeftModel.from_pretrained(model, str(folder), first, autocast_adapter_dtype=autocast)
        for name, other in rest:
            adapted.load_adapter(str(other), name, autocast_adapter_dtype=autocast)
        adapted.eval()
        self.model = adapted
        self.device = model.device
        self.token_ids: tuple[int, ...] = ()
        """The trajectory of the last replay; its last token was sampled but not fed."""

    def begin(self, trace: Trace, contexts: Sequence[Sequence[int]], tool_wait_s: float) -> "_PeftPlay":
        return _PeftPlay(self, trace, contexts, tool_wait_s)

    def close(self) -> None:
        pass

    @torch.inference_mode()
    def forward(self, token_ids: Sequence[int], cache: DynamicCache) -> int:
        """Append `token_ids` to `cache`; the likeliest next token."""
        ids = torch.tensor([list(token_ids)], device=self.device)
        out = self.model(ids, cache=cache, use_cache=True, logits_to_keep=1)
        return int(out.logits[0, -1].argmax())


class _PeftPlay:
    def __init__(
        self, peer: PeftContestant, trace: Trace, contexts: Sequence[Sequence[int]], tool_wait_s: float
    ) -> None:
        self._peer, self._trace, self._contexts, self._tool_wait_s = peer, trace, contexts, tool_wait_s
        self._ids: list[int] = []
        self._caches = {agent: DynamicCache(config=peer.model.config) for agent in trace.agents}
        self._seen = dict.fromkeys(trace.agents, 0)
        self._ttft_s = self._decode_s = self._total_s = 0.0
        self._prefill_rows = self._decode_rows = 0

    def call(self, index: int) -> None:
        start = time.perf_counter()
        self._peer.compute.call(self._call, index)
        if self._trace.calls[index].tool and self._tool_wait_s:
            time.sleep(self._tool_wait_s)
        self._total_s += time.perf_counter() - start

    def _call(self, index: int) -> None:
        call, context, ids, forward = self._trace.calls[index], self._contexts[index], self._ids, self._peer.forward
        cache, seen = self._caches[call.agent], self._seen[call.agent]
        ids += context[1:] if index else context  # the token that the last call sampled is there already
        submitted = time.perf_counter()
        self._peer.model.set_adapter(call.agent)
        self._prefill_rows += len(ids) - seen
        ids.append(forward(ids[seen:], cache))
        first = time.perf_counter()
        for _ in range(call.decode):
            ids.append(forward(ids[-1:], cache))
        self._decode_rows += call.decode
        self._seen[call.agent] = len(ids) - 1
        self._ttft_s += first - submitted
        self._decode_s += time.perf_counter() - first

    def end(self) -> Run:
        self._peer.token_ids = tuple(self._ids)
        held = sum(_bytes(cache) for cache in self._caches.values())
        ttft_s, rows = self._ttft_s, (self._prefill_rows, 0, self._decode_rows)
        return Run(ttft_s, ttft_s, self._decode_s, self._total_s, held, *rows)


def _bytes(cache: DynamicCache) -> int:
    return sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values) if tensor is not None)
