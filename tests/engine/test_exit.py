"""A program that forgets to close its engine still ends with its own exit code."""

import subprocess
import sys

SCRIPT = """
import sys
from agentrt.engine import Engine
from agentrt.model.backbone import Backbone
from agentrt.model.sampling import Sampling
from agentrt.model.tiny import tiny_model
engine = Engine.load(Backbone(tiny_model("llama")), {}, "full_shared")
engine.session().turn("", [1, 2, 3], Sampling(max_new_tokens=400))
sys.exit(3)
"""


def test_an_engine_left_open_does_not_abort_the_interpreter():
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (3, "")
