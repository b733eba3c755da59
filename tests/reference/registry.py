"""Every scheme's dense definition, by the name a user would give the scheme."""

from functools import partial

from tests.reference import routekv, schemes

REFERENCES = {
    **schemes.REFERENCES,
    "own_kv": schemes.NonShared,
    "neutral_prefix:native": schemes.NonShared,
    "neutral_prefix:early": routekv.EarlyPrefix,
    "neutral_prefix:question": routekv.NeutralPrefix,
    "neutral_prefix:question,schedule=auto": routekv.NeutralPrefix,
    "neutral_prefix:full": partial(routekv.NeutralPrefix, tail=1),
    "neutral_prefix:full,schedule=fused": partial(routekv.NeutralPrefix, tail=1),
}
