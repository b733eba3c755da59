"""Bytes a session holds at a turn boundary, by SCHEMES.md section 8, in fp32."""

E = 4
"""Bytes of a number."""


def held_bytes(part, owed=0):
    """Of a trajectory whose agents have processed it as far as `part.reach` says (T_j), all of it up to T.

    `owed`: tokens that the base path has yet to cover, so that of their rows only the speaker's column is held.
    """
    model, T, name = part.cast.dense, len(part.paths), part.scheme.name
    shape = model.model.config
    layer_kv = 2 * shape.num_key_value_heads * model.stack.layers[0].self_attn.head_dim * E
    kv = model.num_layers * layer_kv
    lr = {agent: column_bytes(model, agent) for agent in ("", *model.lora)}
    read = sum(part.reach.values())
    boundary = part.scheme.options().get("boundary")
    if name in ("non_shared", "own_kv") or boundary == "native":
        return read * kv
    if boundary == "early":
        p = min(part.definition.preamble, T)
        return (p + sum(max(end - p, 0) for end in part.reach.values())) * kv
    match name:
        case "full_shared":
            return T * kv
        case "base_shared":
            return T * kv + sum(end * lr[agent] for agent, end in part.reach.items())
        case "base_lr_shared":
            return T * (kv + next(lr[agent] for agent in model.lora))
        case "pre_lr_shared":
            return T * (kv + sum(lr.values()))
        case "rebase_shared":
            private = len(part.definition.private.get(("k0", 0), ()))  # lp_at: handover
            speaker = lr[part.paths[-1]] if owed else 0
            return (T - owed) * (kv + sum(lr.values())) + owed * speaker + private * kv
        case "neutral_prefix" | "alora":
            return (T - owed) * kv
        case "ridge":
            return (T + sum(end for agent, end in part.reach.items() if agent)) * kv
        case _:
            states = shape.hidden_size * E if name.startswith("droidspeak") else 0
            return T * (kv + states) + sum(map(len, part.definition.repaired.values())) * layer_kv


def column_bytes(model, agent):
    """One token's low-rank activations of an agent, for keys and values of all layers."""
    cached = [site for site in model.lora.get(agent, ()) if site[1] in ("k_proj", "v_proj")]
    return sum(len(model.lora[agent][site][0]) for site in cached) * E
