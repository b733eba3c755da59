"""The backbone: drives the stock transformers layers one by one over a packed step."""

import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from transformers import PreTrainedModel

from agentrt.cache.layout import Layout
from agentrt.cache.plane import Plane
from agentrt.errors import AdapterError, BackboneError
from agentrt.model.adapters import AdapterSet
from agentrt.model.attention import NAME, register
from agentrt.model.choose import Chooser
from agentrt.model.compute import ComputeThread
from agentrt.model.context import StepContext
from agentrt.model.graphs import DecodeGraphs
from agentrt.model.keys import locate_keys
from agentrt.model.linear import JointLinear, PackedLinear
from agentrt.model.load import load_model
from agentrt.model.lowrank import ATTENTION, GATE_UP, MLP, QKV, Site
from agentrt.model.packed import PackedRows
from agentrt.model.projections import AdaptedLinear
from agentrt.model.recorder import CudaRecorder, Recorder, obstacle
from agentrt.model.ridge import load_maps, locate, rotates
from agentrt.model.shape import ModelShape, projection_shapes
from agentrt.model.tokenizer import Tokenizer
from agentrt.step import Pass, Step
from agentrt_kernels.dispatch import Backend, resolve
from agentrt_kernels.limits import MAX_RANK
from agentrt_kernels.tables import send

if TYPE_CHECKING:
    from agentrt.model.decode import StepDecode
    from agentrt.model.kernels import StepKernels


class Backbone:
    """A frozen causal LM whose linear layers take per-row adapters and whose attention reads our planes.

    Takes the model over: its projections are wrapped in place. Several engines may share one backbone and
    take turns; `run` is serialised.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        content_hash: str = "",
        names: tuple[str, ...] = (),
        tokenizer: Tokenizer | None = None,
        compute: ComputeThread | None = None,
        backend: Backend = "auto",
        recorder: Recorder | None = None,
    ) -> None:
        """`backend`: see `agentrt_kernels.dispatch`. Raises BackboneError where what is asked for cannot run.

        `recorder`: records decode steps for engines that want it; None: CUDA's, where the device has it.
        """
        self.tokenizer = tokenizer
        self.compute = compute or ComputeThread()
        """Where engines run this backbone's steps."""
        register()
        model.set_attn_implementation(NAME)
        self.model = model
        self.content_hash = content_hash
        config = model.config
        self.shape = ModelShape.of(config)
        self.num_layers, self.num_kv_heads = self.shape.num_layers, self.shape.num_kv_heads
        self.head_dim = self.shape.head_dim
        self.max_positions = int(config.max_position_embeddings)
        self.vocab_size = int(config.vocab_size)
        self.names = names or (str(model.name_or_path),)
        self.dtype = next(model.parameters()).dtype
        self.device = next(model.parameters()).device
        try:
            self.backend = resolve(backend, self.device, head_dim=self.head_dim, dtype=self.dtype)
        except ValueError as error:
            raise BackboneError(str(error)) from error
        self._context = StepContext(self._step_kernels(), self._step_decode())
        self._recorder = recorder
        self._lock = threading.Lock()
        self._stack = model.get_decoder()  # type: ignore[no-untyped-call]
        if any(isinstance(module, AdaptedLinear) for module in self._stack.modules()):
            raise ValueError("this model already belongs to a Backbone; share that one instead")
        self.shapes = projection_shapes(self._stack)
        self._head = self.compute.call(PackedLinear, model.lm_head)
        self.compute.call(self._wrap)

    @classmethod
    def load(
        cls, name: str, *, dtype: Any = "auto", device: str = "auto", offline: bool = False, backend: Backend = "auto"
    ) -> Self:
        """Load a model by alias, hub id, folder or GGUF file, on its compute thread. Raises BackboneError."""
        compute = ComputeThread()
        loaded = compute.call(load_model, name, dtype=dtype, device=device, offline=offline)
        return cls(
            loaded.model,
            content_hash=loaded.content_hash,
            names=loaded.names,
            tokenizer=loaded.tokenizer,
            compute=compute,
            backend=backend,
        )

    def layout(self, adapters: AdapterSet, lr_dtype: torch.dtype | None = None) -> Layout:
        """What schemes need to declare planes; `lr_dtype` None = the model's own."""
        return self.shape.layout(adapters, self.dtype, lr_dtype)

    def load_adapters(self, folders: Mapping[str, str | Path]) -> AdapterSet:
        """Read peft folders by role name for this backbone.

        On a CPU their weights are kept in fp32: a product this small costs eight times less there than in bf16.
        Raises AdapterError naming the adapter, the feature and the fix.
        """
        dtype = torch.float32 if self.device.type == "cpu" else self.dtype
        adapters: AdapterSet = self.compute.call(
            AdapterSet.load, folders, self.shapes, base_names=self.names, dtype=dtype, device=self.device
        )
        for name, sites in adapters.weights.items():
            rank = max((weights.rank for weights in sites.values()), default=0)
            if self.backend == "triton" and rank > MAX_RANK:
                raise AdapterError(
                    f"adapter {name!r} has rank {rank}, the Triton kernels take {MAX_RANK} at most; "
                    "use backend reference"
                )
        if self._context.decode is not None:
            self.compute.call(self._context.decode.prepare, adapters)
        return adapters

    def load_maps(self, file: str | Path, adapters: AdapterSet, top: int | None = None) -> AdapterSet:
        """The adapters with the ridge maps of `file`, applied at the `top` layers (None: at all).

        Raises SchemeError where the file belongs to another backbone or to other adapters.
        """
        maps = load_maps(file, adapters.hashes, backbone_hash=self.content_hash, device=self.device)
        return adapters.with_maps({name: each.top(top) for name, each in maps.items()})

    def rotary(self, positions: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """RoPE's cos and sin of these positions, in fp32, [1, n, d] each."""
        like = torch.empty(0, dtype=torch.float32, device=self.device)
        cos, sin = self._stack.rotary_emb(like, position_ids=self._upload(positions)[None])
        return cos, sin

    def rotates(self, layer: int) -> bool:
        """Whether the layer's keys have RoPE."""
        return rotates(self._stack.layers[layer].self_attn)

    def synchronize(self) -> None:
        """Wait until the device has done what it was given; for timing."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def graphs(self) -> DecodeGraphs:
        """Recorded decode steps, for one engine. Where none can be recorded it says why and records none."""
        unavailable = None if self._recorder else obstacle(self.device, self.backend)
        if self._recorder is None and unavailable is None:
            self._recorder = CudaRecorder()
        return DecodeGraphs(self._context, self._decode_step, self._recorder, unavailable)

    @torch.inference_mode()
    def run(
        self, step: Step, planes: Mapping[str, Plane], adapters: AdapterSet, graphs: DecodeGraphs | None = None
    ) -> list[torch.Tensor | None]:
        """Run the step; per pass its logits ([1, vocab] for "last", [rows, vocab] for "all", else None).

        Where no pass has a plan they are packed by path, so that those of one path share the products of its terms.
        `graphs`: those of the engine whose planes these are; a step that it has recorded is replayed.
        """
        with self._lock:
            if any(each.plan is not None for each in step.passes):
                return self._run_planned(step, planes, adapters)
            order = sorted(range(len(step.passes)), key=lambda index: step.passes[index].path)
            logits = self._run_plain([step.passes[index] for index in order], planes, adapters, graphs)
            return [rows for _, rows in sorted(zip(order, logits, strict=True), key=lambda each: each[0])]

    def _run_plain(
        self,
        passes: Sequence[Pass],
        planes: Mapping[str, Plane],
        adapters: AdapterSet,
        graphs: DecodeGraphs | None,
    ) -> list[torch.Tensor | None]:
        """A step whose rows are the same in all layers."""
        self._context.fill(passes, planes, adapters)
        self._context.translations = [
            *locate(passes, planes, adapters.maps, self.rotary),
            *locate_keys(passes, planes, adapters, self.rotary),
        ]
        if graphs is not None and (logits := graphs.run(passes)) is not None:
            return logits
        hidden = self._layers(self._embed(passes), self._at(passes), step=self._context)
        return self._logits(passes, hidden)

    def forget(self) -> None:
        """Let go of what the last step read and wrote, so that the memory of a closed engine is free."""
        with self._lock:
            self._context.fill((), {}, AdapterSet({}, {}))

    def _run_planned(self, step: Step, planes: Mapping[str, Plane], adapters: AdapterSet) -> list[torch.Tensor | None]:
        """A step whose rows change between layers; between two changes it is as any other."""
        filled: list[Pass] = []

        def project(each: Pass, layer: int, hidden: torch.Tensor) -> None:
            nonlocal filled
            filled = []
            self._context.fill([each], planes, adapters)
            self._project(layer, hidden, self._at([each]), step=self._context, chooser=Chooser(each, planes))

        rows = PackedRows(step, planes, lambda each: self._embed([each]), project)
        for first, stop in itertools.pairwise(rows.edges(self.num_layers)):
            rows.turn_over(first)
            now = list(rows.passes.values())
            if now and now != filled:
                self._context.fill(now, planes, adapters)
                filled = now
            if now:
                rows.hidden = self._layers(rows.hidden, self._at(now), first, stop, step=self._context)
        rows.turn_over(self.num_layers)
        if not rows.passes:
            return [None] * len(step.passes)
        logits = dict(zip(rows.passes, self._logits(list(rows.passes.values()), rows.hidden), strict=True))
        return [logits.get(index) for index in range(len(step.passes))]

    def _embed(self, passes: Sequence[Pass]) -> torch.Tensor:
        """Hidden states [rows, D] before the first layer."""
        ids = [token for each in passes for token in each.token_ids]
        embedded: torch.Tensor = self._stack.embed_tokens(self._upload(ids))
        return embedded

    def _layers(
        self, hidden: torch.Tensor, at: torch.Tensor, first: int = 0, stop: int | None = None, **to_attention: Any
    ) -> torch.Tensor:
        """Hidden states [rows, D] of tokens `at` their positions [rows], through layers `[first, stop)`.

        `to_attention` reaches the attention function only.
        """
        positions = at[None]
        hidden = hidden[None]
        rotary = self._stack.rotary_emb(hidden, position_ids=positions)
        for layer in self._stack.layers[first:stop]:
            hidden = layer(
                hidden,
                attention_mask=None,
                position_ids=positions,
                position_embeddings=rotary,
                **to_attention,
            )
        return hidden[0]

    def _at(self, passes: Iterable[Pass]) -> torch.Tensor:
        """Positions of all rows, on the device."""
        return self._upload([position for each in passes for position in each.positions])

    def _decode_step(self, ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """A whole step that nothing on the host takes part in; see `graphs.Forward`."""
        hidden = self._layers(self._stack.embed_tokens(ids), positions, step=self._context)
        logits: torch.Tensor = self._head(self._stack.norm(hidden[rows]))
        return logits

    def _upload(self, numbers: Sequence[int]) -> torch.Tensor:
        """int64 numbers on the device; the host does not wait for a GPU to take them."""
        return send(torch.tensor(numbers, dtype=torch.int64), self.device)

    def _project(self, layer: int, hidden: torch.Tensor, at: torch.Tensor, **to_attention: Any) -> None:
        """Only the projections of one layer, for what the attention function does with them."""
        positions = at[None]
        module = self._stack.layers[layer]
        rotary = self._stack.rotary_emb(hidden[None], position_ids=positions)
        module.self_attn(
            hidden_states=module.input_layernorm(hidden[None]),
            attention_mask=None,
            position_ids=positions,
            position_embeddings=rotary,
            **to_attention,
        )

    def _logits(self, passes: Sequence[Pass], hidden: torch.Tensor) -> list[torch.Tensor | None]:
        rows: list[int] = []
        counts = []
        start = 0
        for each in passes:
            end = start + len(each)
            wanted = {"none": range(0), "last": range(end - 1, end), "all": range(start, end)}[each.logits]
            rows.extend(wanted)
            counts.append(len(wanted))
            start = end
        if not rows:
            return [None] * len(counts)
        logits = self._head(self._stack.norm(hidden[self._upload(rows)]))
        return [part if len(part) else None for part in logits.split(counts)]

    def _step_kernels(self) -> "StepKernels | None":
        if self.backend != "triton":
            return None
        from agentrt.model.kernels import StepKernels  # imports triton

        return StepKernels(self.device, int(self.model.config.num_attention_heads))

    def _step_decode(self) -> "StepDecode | None":
        if self.backend != "jit":
            return None
        from agentrt.model.decode import StepDecode  # imports numba

        heads = int(self.model.config.num_attention_heads)
        return StepDecode(self.dtype, self.head_dim, heads, self.num_kv_heads, self.num_layers)

    def _wrap(self) -> None:
        for index, layer in enumerate(self._stack.layers):
            for parent, names, together in ((layer.self_attn, ATTENTION, QKV), (layer.mlp, MLP, GATE_UP)):
                bases = {name: getattr(parent, name) for name in names}
                joint = JointLinear([bases[name] for name in together])
                products = {name: partial(joint.part, part) for part, name in enumerate(together)}
                for name, base in bases.items():
                    site = Site(index, name)
                    product = products.get(name) or PackedLinear(base)
                    setattr(parent, name, AdaptedLinear(product, site, self._context))
