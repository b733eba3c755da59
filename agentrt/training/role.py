"""One role's training: from the run folder's trajectories to an adapter folder, or on from where it stopped.

OUT/<role>/log.jsonl  checkpoint.pt     while it is trained
OUT/<role>/log.jsonl  finished.json     once it is; the adapter is then in ADAPTERS/<role>
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from agentrt.errors import DataError, UsageError
from agentrt.model.fetch import locate
from agentrt.model.hashing import hash_folder
from agentrt.model.load import DtypeName, LoadedModel, choose_device, choose_dtype, load_model
from agentrt.model.progress import silent
from agentrt.model.trainable import WEIGHTS_FILE, LoraSettings, TrainableAdapter
from agentrt.training.activated import activated_examples
from agentrt.training.card import data_file, make_card, read_card, write_card
from agentrt.training.examples import Example, Recorded, role_example
from agentrt.training.job import load_data
from agentrt.training.publish import published
from agentrt.training.settings import TrainSettings
from agentrt.training.trainer import StepFacts, Trainer, TrainResult, check_identity, identity

CHECKPOINT: Final = "checkpoint.pt"
FINISHED: Final = "finished.json"


@dataclass(frozen=True)
class RoleJob:
    """What decides how a role is trained, in plain values, so that another process can do it.

    out: the run folder, which holds the trajectories. adapters: gets a folder for the role.
    other: the role whose adapter, in `adapters`, processes the contexts that `settings.contexts` calls another's.
    start: the adapter folder to train on from. threads: None leaves the choice to torch.
    checkpoint_every_s: what a kill may cost.
    """

    role: str
    model: str
    out: Path
    adapters: Path
    lora: LoraSettings
    settings: TrainSettings
    dtype: DtypeName = "auto"
    device: str = "auto"
    offline: bool = False
    other: str | None = None
    start: Path | None = None
    resume: bool = False
    threads: int | None = None
    checkpoint_every_s: float = 180.0

    @property
    def adapter_folder(self) -> Path:
        return self.adapters / self.role

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> "RoleJob":
        value = json.loads(text)
        lora, settings = value["lora"], value["settings"]
        lora |= {"targets": tuple(lora["targets"]), "invocation": tuple(lora["invocation"])}
        settings["contexts"] = tuple((context, share) for context, share in settings["contexts"])
        return cls(
            **value
            | {"lora": LoraSettings(**lora), "settings": TrainSettings(**settings)}
            | {name: Path(value[name]) if value[name] else None for name in ("out", "adapters", "start")}
        )


def run_job(job: RoleJob, report: Callable[[StepFacts], None] = lambda facts: None) -> TrainResult:
    """Train a role on the trajectories of its run folder. Raises what `train_role`, `load_data` and `load_model` do."""
    if job.threads is not None:
        torch.set_num_threads(job.threads)

    def load() -> LoadedModel:
        return load_model(job.model, dtype=job.dtype, device=job.device, offline=job.offline, report=silent)

    recorded, data = load_data(job.out)
    return train_role(job, recorded, data, load, backbone=backbone_of(job), report=report)


def backbone_of(job: RoleJob) -> dict[str, str]:
    """By name, what makes a job's backbone the same as another's. Loads no weights; raises BackboneError."""
    folder = locate(job.model, offline=job.offline, report=silent).folder
    return {"backbone": hash_folder(folder), "dtype": str(choose_dtype(job.dtype, choose_device(job.device)))}


def train_role(
    job: RoleJob,
    recorded: Sequence[Recorded],
    data: Mapping[str, Any],
    load: Callable[[], LoadedModel],
    *,
    backbone: Mapping[str, str],
    report: Callable[[StepFacts], None] = lambda facts: None,
) -> TrainResult:
    """Train a role on `recorded`; `data` are the facts that its card quotes. The adapter folder appears at the end.

    `load` gives a backbone that is used up, of which `backbone_of` said `backbone`; it is not called where a resumed
    role is finished already. Raises DataError if the role wrote nothing in the data, UsageError if the data are of
    another backbone, a run to resume was another one, or training diverges.
    """
    if data.get("backbone_sha256", backbone["backbone"]) != backbone["backbone"]:
        raise UsageError(
            f"{job.out / 'data'}: its trajectories are of another backbone than {job.model}, whose weights have the "
            f"SHA-256 {backbone['backbone']}, not {data['backbone_sha256']}; derive them again, or name the other one"
        )
    examples = _examples(recorded, job)
    other = job.adapters / job.other if job.other is not None else None
    made_of = {
        **backbone,
        **identity(examples, job.settings),
        "adapter shape": json.dumps(asdict(job.lora), sort_keys=True),
        "other adapter": _weights_hash(other),
        "start": _weights_hash(job.start),
    }
    started_from = read_card(job.start) if job.start is not None else None
    folder = job.out / job.role
    folder.mkdir(parents=True, exist_ok=True)
    state, done = folder / CHECKPOINT, folder / FINISHED
    if job.resume and (before := _finished(done, made_of, job.adapter_folder)) is not None:
        return before
    done.unlink(missing_ok=True)

    loaded = load()
    learner = TrainableAdapter(loaded.model, loaded.name, job.lora, job.settings.seed, other=other, start=job.start)
    trainer = Trainer(learner, examples, job.settings, role=job.role, made_of=made_of)
    if job.resume and state.is_file():
        trainer.load_state(state)
    with (folder / "log.jsonl").open("a" if job.resume else "w", encoding="utf-8") as log:

        def step(facts: StepFacts) -> None:
            log.write(json.dumps({name: _short(value) for name, value in facts._asdict().items()}) + "\n")
            log.flush()
            report(facts)

        result = trainer.run(
            step, checkpoint=lambda: trainer.save_state(state), checkpoint_every_s=job.checkpoint_every_s
        )
    facts = {
        **data,
        "examples": trainer.num_train,
        "held_out_examples": trainer.num_held_out,
        "held_out_questions": trainer.num_held_out_questions,
    }
    if other is not None:
        facts["other_adapter_sha256"] = made_of["other adapter"]
    card = make_card(
        role=job.role,
        base_model=loaded.name,
        adapter=asdict(job.lora),
        settings=job.settings,
        data=facts,
        result=result,
        started_from=started_from,
    )
    with published(job.adapter_folder) as draft:
        learner.save(draft)
        write_card(draft, card)
    _write(done, {**made_of, "weights": _weights_hash(job.adapter_folder), "result": result.to_json()})
    state.unlink(missing_ok=True)
    return result


def _examples(recorded: Sequence[Recorded], job: RoleJob) -> list[Example]:
    if job.lora.invocation:
        examples = [each for one in recorded for each in activated_examples(one, job.role, job.lora.invocation)]
    else:
        examples = [each for one in recorded if (each := role_example(one, job.role)) is not None]
    if not examples:
        raise DataError(
            f"no trajectory in {job.out / 'data'} holds a field of the role {job.role!r} that it is to learn; derive "
            "them anew, with the team as it is now, or give episodes in which the role writes"
        )
    return examples


def _finished(done: Path, made_of: Mapping[str, str], adapter: Path) -> TrainResult | None:
    """The result of a training that has ended, if its adapter is still there."""
    if not done.is_file():
        return None
    saved = json.loads(done.read_text(encoding="utf-8"))
    check_identity(done, saved, made_of)
    return TrainResult.from_json(saved["result"]) if _weights_hash(adapter) == saved["weights"] else None


def _weights_hash(folder: Path | None) -> str:
    """SHA-256 of an adapter's weights; empty without one."""
    path = folder / WEIGHTS_FILE if folder is not None else None
    return data_file(path).sha256 if path is not None and path.is_file() else ""


def _write(path: Path, value: Mapping[str, Any]) -> None:
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(value) + "\n", encoding="utf-8")
    os.replace(draft, path)


def _short(value: float) -> float:
    return float(f"{value:.5g}") if isinstance(value, float) else value
