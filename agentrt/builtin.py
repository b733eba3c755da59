"""Finds the data shipped with the package: `agents/` (teams and their adapters) and `configs/`.

In a wheel they lie in `agentrt/_data/`, in a checkout at the top level. Knows nothing of what the files hold.
"""

from pathlib import Path

from agentrt.errors import UsageError

_PACKAGE = Path(__file__).resolve().parent


def agents_dir() -> Path:
    """The folder with one sub-folder per built-in team."""
    return _data_dir("agents")


def configs_dir() -> Path:
    """The folder with run configs, traces and the mini benchmark."""
    return _data_dir("configs")


def built_in_teams() -> list[str]:
    """Names that `Team.load` accepts besides a path, sorted."""
    return sorted(file.parent.name for file in agents_dir().glob("*/team.yaml"))


def _data_dir(name: str) -> Path:
    candidates = (_PACKAGE / "_data" / name, _PACKAGE.parent / name)
    for folder in candidates:
        if folder.is_dir():
            return folder
    places = " nor ".join(str(folder) for folder in candidates)
    raise UsageError(f"the built-in data is missing: neither {places} exists; reinstall agentrt")
