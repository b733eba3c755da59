"""Runs the episodes of a plan, several at once on one runtime; its engine packs them into common steps."""

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from agentrt.errors import EngineClosedError
from agentrt.evaluate.evaluation.plan import Episode, EvalPlan, Key
from agentrt.evaluate.evaluation.row import EpisodeRow, row_of
from agentrt.model.progress import Report, silent
from agentrt.runtime.episode import Runtime
from agentrt.runtime.options import CancelToken

STAGE = "episodes"


def run_episodes(
    runtime: Runtime,
    plan: EvalPlan,
    emit: Callable[[EpisodeRow], None],
    *,
    done: Collection[Key] = (),
    report: Report = silent,
) -> None:
    """Play every episode that is not `done` and `emit` its row as it ends, from this thread, in any order.

    An episode that breaks is a row like others. Raises EngineClosedError when there is no engine any more. On any
    exception, KeyboardInterrupt too, what runs is cancelled and awaited; a cancelled episode gives no row.
    """
    episodes = plan.episodes()
    left = [episode for episode in episodes if episode.key not in done]
    finished = len(episodes) - len(left)
    report(STAGE, finished, len(episodes))
    token = CancelToken()
    pool = ThreadPoolExecutor(plan.concurrency, thread_name_prefix="agentrt-eval")
    running = {pool.submit(_play, runtime, episode, token) for episode in left}
    try:
        while running:
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                row = future.result()
                running.remove(future)
                emit(row)
                finished += 1
                report(STAGE, finished, len(episodes))
    except BaseException:
        token.cancel()
        pool.shutdown(cancel_futures=True)
        for row in _ended(running):  # between the last row and the interruption
            emit(row)
        raise
    finally:
        pool.shutdown()


def _ended(futures: Iterable[Future[EpisodeRow]]) -> Iterator[EpisodeRow]:
    """The rows of episodes that came to an end of their own."""
    for future in futures:
        if not future.cancelled() and future.exception() is None and future.result().status != "cancelled":
            yield future.result()


def _play(runtime: Runtime, episode: Episode, token: CancelToken) -> EpisodeRow:
    try:
        result = runtime.run(episode.question.text, seed=episode.seed, cancel=token)
    except EngineClosedError:
        raise
    except Exception as error:  # this episode's own: the others go on
        return row_of(episode, None, error)
    return row_of(episode, result)
