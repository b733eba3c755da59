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
        self._compute = compute  # the engine's own: computing on two threads would slow both
        (first, folder), *rest = folders.items()
        adapted = PeftModel.from_pretrained(model, str(folder), first, autocast_adapter_dtype=autocast)
        for name, other in rest:
            adapted.load_adapter(str(other), name, autocast_adapter_dtype=autocast)
        adapted.eval()
        self.model = adapted
        self.device = model.device
        self.token_ids: tuple[int, ...] = ()
        """The trajectory of the last replay; its last token was sampled but not fed."""

    def play(self, trace: Trace, contexts: Sequence[Sequence[int]], tool_wait_s: float) -> Run:
        return self._compute.call(self._play, trace, contexts, tool_wait_s)

    def _play(self, trace: Trace, contexts: Sequence[Sequence[int]], tool_wait_s: float) -> Run:
        ids: list[int] = []
        caches = {agent: DynamicCache(config=self.model.config) for agent in trace.agents}
        seen = dict.fromkeys(trace.agents, 0)
        ttft_s = decode_s = 0.0
        prefill_rows = decode_rows = 0
        start = time.perf_counter()
        for index, (call, context) in enumerate(zip(trace.calls, contexts, strict=True)):
            ids += context[1:] if index else context  # the token that the last call sampled is there already
            submitted = time.perf_counter()
            self.model.set_adapter(call.agent)
            prefill_rows += len(ids) - seen[call.agent]
            ids.append(self._forward(ids[seen[call.agent] :], caches[call.agent]))
            first = time.perf_counter()
            for _ in range(call.decode):
                ids.append(self._forward(ids[-1:], caches[call.agent]))
            decode_rows += call.decode
            seen[call.agent] = len(ids) - 1
            ttft_s += first - submitted
            decode_s += time.perf_counter() - first
            if call.tool and tool_wait_s:
                time.sleep(tool_wait_s)
        total_s = time.perf_counter() - start
        self.token_ids = tuple(ids)
        held = sum(_bytes(cache) for cache in caches.values())
        return Run(ttft_s, ttft_s, decode_s, total_s, held, prefill_rows, 0, decode_rows)

    def close(self) -> None:
        pass

    @torch.inference_mode()
    def _forward(self, token_ids: Sequence[int], cache: DynamicCache) -> int:
        ids = torch.tensor([list(token_ids)], device=self.device)
        out = self.model(ids, cache=cache, use_cache=True, logits_to_keep=1)
        return int(out.logits[0, -1].argmax())


def _bytes(cache: DynamicCache) -> int:
    return sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values) if tensor is not None)
