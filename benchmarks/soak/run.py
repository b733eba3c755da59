"""Runs the load round by round, looks at what is left after each, replays what was said, and gives a verdict."""

from collections.abc import Callable, Sequence
from pathlib import Path

from agentrt import Runtime
from benchmarks.soak.load import Worker
from benchmarks.soak.replays import replay_episode, replay_session
from benchmarks.soak.report import Report, Round, SoakPlan
from benchmarks.soak.rounds import StuckError, left_behind, play_round, usage_at_rest


def soak(
    runtime: Runtime,
    questions: Sequence[str],
    plan: SoakPlan,
    *,
    folders: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
    save: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Load `runtime` as `plan` says; `save` gets the report after every round and replay, and at its end.

    `folders`: where the runtime writes its runs, if it does. Where something got stuck the report says so, and the
    runtime cannot be closed.
    """
    report = Report(plan)
    try:
        report.before = usage_at_rest(runtime)
        kept = plan.replays // plan.workers
        crew = [
            Worker(runtime, tuple(questions), plan.seed * 1000 + number, kept, folders)
            for number in range(plan.workers)
        ]
        report.warm = _round(runtime, crew, plan.warm_up_s, report)
        while report.goes_on:
            report.rounds.append(_round(runtime, crew, plan.seconds / plan.num_rounds, report))
            say(_told(report))
            save(report)
        for worker in crew:
            _replay(runtime, worker, report)
            say(f"replayed: {report.compared}")
            save(report)
        report.conclude()
    except StuckError as stuck:
        report.stuck = True
        report.faults.append(str(stuck))
    except BaseException as error:
        report.faults.append(f"the soak itself ended with {error!r}")
        raise
    finally:
        report.ended = True
        save(report)
    return report


def _round(runtime: Runtime, crew: Sequence[Worker], seconds: float, report: Report) -> Round:
    """Raises StuckError."""
    assert report.before is not None
    faults = play_round(crew, seconds, report.plan.stuck_s)
    faults += left_behind(runtime, report.before, report.plan.settle_s)
    when = f"round {len(report.rounds) + 1}" if report.warm is not None else "warm-up"
    report.faults += [f"{when}: {fault}" for fault in faults]
    for happening in report.counts:
        report.counts[happening] = sum(worker.counts[happening] for worker in crew)
    report.counts["waited_for_room"] = runtime.engine.stats().waited_for_room
    return Round(seconds, report.counts["episodes"], usage_at_rest(runtime))


def _told(report: Report) -> str:
    last, number = report.rounds[-1], f"{len(report.rounds)} of {report.plan.num_rounds}"
    grown = f"{report.grown_bytes / 2**20:+.1f} MiB since the warm-up"
    return f"round {number}: {last.episodes} episodes so far, {grown}, {len(report.faults)} faults"


def _replay(runtime: Runtime, worker: Worker, report: Report) -> None:
    for played in worker.episodes.kept:
        replay_episode(runtime, played, report.compared)
    for history in worker.sessions.kept:
        replay_session(runtime.engine, history, report.compared)
