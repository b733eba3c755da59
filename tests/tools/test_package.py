import subprocess
import sys

import agentrt_tools


def test_every_public_name_is_there_and_sorted() -> None:
    assert all(hasattr(agentrt_tools, name) for name in agentrt_tools.__all__)
    assert len(agentrt_tools.__all__) == len(set(agentrt_tools.__all__))


def test_the_package_stands_alone_and_is_light() -> None:
    heavy = "agentrt", "torch", "pydantic", "requests"
    script = f"import sys, agentrt_tools; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
