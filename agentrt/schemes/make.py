"""From a scheme's name and options to the scheme itself."""

from collections.abc import Mapping
from typing import Any

from agentrt.config.scheme import parse_scheme, scheme_faults
from agentrt.errors import SchemeError
from agentrt.schemes import SCHEMES, Scheme


def make_scheme(name: str, options: Mapping[str, Any] | None = None) -> Scheme:
    """The scheme `name`, which may carry options in short (`rebase_shared:lp`), with `options` on top.

    Raises SchemeError naming the closest known scheme or option.
    """
    config = parse_scheme(name)
    if options:
        config = config.model_copy(update=dict(options))
    known = {each: scheme.option_names() for each, scheme in SCHEMES.items()}
    faults = scheme_faults(config, known)
    if faults:
        raise SchemeError("; ".join(fault.message for fault in faults))
    checked: Mapping[str, Any] = config.options  # each scheme checks its own values
    return SCHEMES[config.name](**checked)
