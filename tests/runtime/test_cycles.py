"""A program that opens a runtime, uses it and closes it, again and again, grows by nothing."""

import gc
from pathlib import Path

import pytest

from agentrt.config.team import Override
from agentrt.model.tiny import tiny_model, tiny_tokenizer
from agentrt.runtime.episode import Runtime
from benchmarks.soak.usage import settles, usage
from tests.crew import CORPUS, ROLES, short_team

MIB = 2**20


@pytest.mark.slow
def test_a_hundred_runtimes_leave_no_memory_thread_or_file_behind(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    tiny_model(vocab_size=259, layers=2, max_position_embeddings=4096).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tiny_tokenizer().specification(), "utf-8")
    alone = [Override(("roles", role, "adapter"), "none", "the test") for role in ROLES]
    team = short_team(Override(("base", "model"), str(folder), "the test"), *alone)

    def cycle() -> None:
        with Runtime(team, corpus=CORPUS, out=tmp_path / "runs") as rt:
            assert rt.run("Where was she born?").error is None

    for _ in range(5):
        cycle()
    before = usage()
    for _ in range(35):
        cycle()
    third = usage()
    for _ in range(65):
        cycle()
    gc.collect()
    assert settles(lambda: usage().threads <= before.threads, timeout_s=10)
    after = usage()
    assert after.files <= before.files
    assert after.resident_bytes < third.resident_bytes + 65 * MIB / 4, "a model and its caches are a few MiB"
