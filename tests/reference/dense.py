"""The stock model written out layer by layer with full tensors: no slots, no packing, none of our wrappers."""

import copy
from collections.abc import Callable

import torch
from peft import PeftModel
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

Matrix = torch.Tensor
CacheFn = Callable[[int, Matrix, Matrix, Matrix], tuple[Matrix, Matrix]]


class DenseModel:
    """A stock causal LM with peft adapters, every sum and product visible.

    `lora[name][layer, projection]` = (A [r, d_in], B [d_out, r], scaling), as peft itself loaded them.
    """

    def __init__(self, model, folders):
        self.model = model
        self.stack = model.model
        self.num_layers = model.config.num_hidden_layers
        self.lora = {name: {} for name in folders}
        peft_model = None
        for name, folder in folders.items():
            if peft_model is None:
                peft_model = PeftModel.from_pretrained(model, folder, adapter_name=name)
            else:
                peft_model.load_adapter(folder, adapter_name=name)
        for index, layer in enumerate(self.stack.layers):
            for parent in (layer.self_attn, layer.mlp):
                for projection, module in parent.named_children():
                    for name in folders:
                        if hasattr(module, "lora_A") and name in module.lora_A:
                            self.lora[name][index, projection] = (
                                module.lora_A[name].weight.detach(),
                                module.lora_B[name].weight.detach(),
                                module.scaling[name],
                            )
        self.peft_model = peft_model

    def linear(self, path, layer, projection, module, x):
        y = getattr(module, "base_layer", module)(x)
        if path and (layer, projection) in self.lora[path]:
            a, b, scaling = self.lora[path][layer, projection]
            y = y + scaling * ((x @ a.T) @ b.T)
        return y

    def has_value_term(self, path, layer):
        return bool(path) and (layer, "v_proj") in self.lora[path]

    def value_a(self, path, layer):
        return self.lora[path][layer, "v_proj"][0]

    def value_term(self, path, layer, lr):
        """scaling * LR @ B as [T, Hkv, d]; LR unscaled."""
        _, b, scaling = self.lora[path][layer, "v_proj"]
        return (scaling * (lr @ b.T)).view(len(lr), self.model.config.num_key_value_heads, -1)

    def has_key_term(self, path, layer):
        return bool(path) and (layer, "k_proj") in self.lora[path]

    def key_a(self, path, layer):
        return self.lora[path][layer, "k_proj"][0]

    def base_keys(self, layer, x):
        """k_proj alone, before norm and RoPE, [n, Hkv, d]."""
        attn = self.stack.layers[layer].self_attn
        return getattr(attn.k_proj, "base_layer", attn.k_proj)(x).view(len(x), -1, attn.head_dim)

    def keys(self, path, layer, k0, lrk=None):
        """What `path` attends to, from base keys [T, Hkv, d] at 0..T-1 and its key LR [T, r] if it has one."""
        attn = self.stack.layers[layer].self_attn
        if lrk is not None:
            _, b, scaling = self.lora[path][layer, "k_proj"]
            k0 = k0 + (scaling * (lrk @ b.T)).view(k0.shape)
        k = attn.k_norm(k0) if hasattr(attn, "k_norm") else k0
        return self.rotate(attn, k, torch.arange(len(k)))

    def rotate(self, attn, rows, positions):
        if not getattr(attn, "use_rope", True):
            return rows
        cos, sin = self.stack.rotary_emb(rows[None], position_ids=positions[None])
        return apply_rotary_pos_emb(rows[None], rows[None], cos, sin, unsqueeze_dim=2)[0][0]

    @torch.no_grad()
    def forward(self, path, token_ids, start, cache: CacheFn):
        """Logits [n, vocab] of `token_ids` at positions from `start`.

        cache(layer, k [n, Hkv, d], v0 [n, Hkv, d], x [n, D]) stores the new rows and returns the full K and V
        [start + n, Hkv, d] that this forward attends to. v0 is without any adapter term; k has its own.
        """
        positions = torch.arange(start, start + len(token_ids))
        hidden = self.embed(token_ids)
        for index in range(self.num_layers):
            q, k, v0, x = self.project(path, index, hidden, positions)
            keys, values = cache(index, k, v0, x)
            hidden = self.finish(path, index, hidden, q, keys, values, positions)
        return self.model.lm_head(self.stack.norm(hidden))

    def embed(self, token_ids):
        return self.stack.embed_tokens(torch.tensor(list(token_ids)))

    @torch.no_grad()
    def project(self, path, index, hidden, positions):
        """q [n, H, d], k and v0 [n, Hkv, d] and the projections' input x [n, D] of a layer with input `hidden`."""
        layer, n = self.stack.layers[index], len(hidden)
        attn = layer.self_attn
        x = layer.input_layernorm(hidden)
        q = self.linear(path, index, "q_proj", attn.q_proj, x).view(n, -1, attn.head_dim)
        k = self.linear(path, index, "k_proj", attn.k_proj, x).view(n, -1, attn.head_dim)
        v0 = getattr(attn.v_proj, "base_layer", attn.v_proj)(x).view(n, -1, attn.head_dim)
        if hasattr(attn, "q_norm"):
            q, k = attn.q_norm(q), attn.k_norm(k)
        return self.rotate(attn, q, positions), self.rotate(attn, k, positions), v0, x

    @torch.no_grad()
    def finish(self, path, index, hidden, q, keys, values, positions):
        """The layer's output for rows with queries q [n, H, d] at `positions`, over keys and values [T, Hkv, d]."""
        layer = self.stack.layers[index]
        attn, mlp = layer.self_attn, layer.mlp
        values = values.repeat_interleave(q.shape[1] // keys.shape[1], 1)
        out = torch.einsum("hnt,thd->nhd", self.weights(q, keys, positions, attn), values).reshape(len(q), -1)
        hidden = hidden + self.linear(path, index, "o_proj", attn.o_proj, out)
        x = layer.post_attention_layernorm(hidden)
        gate = self.linear(path, index, "gate_proj", mlp.gate_proj, x)
        up = self.linear(path, index, "up_proj", mlp.up_proj, x)
        return hidden + self.linear(path, index, "down_proj", mlp.down_proj, mlp.act_fn(gate) * up)

    def weights(self, q, keys, positions, attn):
        """Attention weights [H, n, T] of q [n, H, d] at `positions` over keys [T, Hkv, d] at 0..T-1.

        Causal by position, within the layer's window.
        """
        heads, d = q.shape[1:]
        keys = keys.repeat_interleave(heads // keys.shape[1], 1)
        scores = torch.einsum("nhd,thd->hnt", q, keys) * d**-0.5
        window = getattr(attn, "sliding_window", None)
        if attn.__class__.__name__ == "MistralAttention":
            window = attn.config.sliding_window
        rows = positions[:, None]
        columns = torch.arange(len(keys))[None]
        hidden = columns > rows
        if window:
            hidden = hidden | (columns <= rows - window)
        return scores.masked_fill(hidden, float("-inf")).softmax(-1)


_made = {}


def dense_model(model, folders):
    """The DenseModel of a model and its adapters, made once a process for the same folders: not to be changed."""
    key = tuple(folders.items())
    if key not in _made:
        _made[key] = DenseModel(copy.deepcopy(model), folders)
    return _made[key]
