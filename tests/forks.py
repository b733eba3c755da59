"""Runs a piece of work in a forked child."""

import os
import traceback
from collections.abc import Callable


def in_child(work: Callable[[], str]) -> str:
    """What `work` returns in a forked child, or the traceback."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = work()
        except BaseException:
            said = traceback.format_exc()
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said
