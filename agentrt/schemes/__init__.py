"""Sharing schemes, one file each. A scheme only says which passes run, when, and what each reads and writes."""

from typing import Final

from agentrt.schemes.alora import Alora
from agentrt.schemes.base import Scheme, SharingSession
from agentrt.schemes.base_lr_shared import BaseLRShared
from agentrt.schemes.base_shared import BaseShared
from agentrt.schemes.cacheblend import CacheBlend
from agentrt.schemes.droidspeak import DroidSpeak
from agentrt.schemes.droidspeak_scattered import DroidSpeakScattered
from agentrt.schemes.full_shared import FullShared
from agentrt.schemes.neutral_prefix import NeutralPrefix
from agentrt.schemes.non_shared import NonShared
from agentrt.schemes.own_kv import OwnKV
from agentrt.schemes.pre_lr_shared import PreLRShared
from agentrt.schemes.rebase_shared import ReBaseShared
from agentrt.schemes.relay_caching import RelayCaching
from agentrt.schemes.ridge import Ridge

SCHEMES: Final[dict[str, type[Scheme]]] = {
    "non_shared": NonShared,
    "full_shared": FullShared,
    "base_shared": BaseShared,
    "base_lr_shared": BaseLRShared,
    "pre_lr_shared": PreLRShared,
    "rebase_shared": ReBaseShared,
    "droidspeak": DroidSpeak,
    "droidspeak_scattered": DroidSpeakScattered,
    "cacheblend": CacheBlend,
    "relay_caching": RelayCaching,
    "neutral_prefix": NeutralPrefix,
    "own_kv": OwnKV,
    "alora": Alora,
    "ridge": Ridge,
}

__all__ = ["SCHEMES", "Scheme", "SharingSession"]
