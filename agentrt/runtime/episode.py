"""The runtime: a team, its engine and its tools; questions in, episodes out."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from agentrt.config.budget import KVBudget
from agentrt.config.scheme import SchemeConfig, parse_scheme
from agentrt.config.team import Team
from agentrt.errors import EngineClosedError, UsageError
from agentrt.runtime.dialect import Renderer
from agentrt.runtime.events import Event, RunStarted
from agentrt.runtime.graph import Graph, compile_graph
from agentrt.runtime.job import Job, Scorer
from agentrt.runtime.ports import Engine
from agentrt.runtime.result import EpisodeResult
from agentrt.runtime.runlog import RunLog
from agentrt.runtime.state import RunContext
from agentrt.runtime.toolbox import Toolbox
from agentrt_tools import Tool, one_line


class Runtime:
    """Runs a team's episodes; a context manager. Several threads may run episodes on one runtime at once.

    team: a Team, the name of a built-in team, or a team file.
    scheme: replaces the team's, e.g. "rebase_shared:lp".
    engine: used instead of loading one, and left open; the scheme is then the engine's own.
    tools: replace the team's tools of the same names.
    corpus: the file the offline tools read.
    record: a folder to which every tool call is written; cassette: one from which calls are played, without the tools.
    seed: with the same seed a question gets the same tokens, whatever else runs.
    out: each run writes a folder of its own there, named by its id; None writes nothing.
    dtype: replaces the team's. device, offline, backend: see `Engine.load`.
    kv_budget: the most that the caches may hold, in GiB (1.5) or tokens ("20000t"); a turn beyond it raises
        CacheFullError. None: no limit.

    Raises ConfigError, UsageError, DataError or ToolHealthError (a key is missing) before anything is loaded. The
    engine is loaded by the first run, or by `engine`, which may raise BackboneError, AdapterError or SchemeError.
    """

    def __init__(
        self,
        team: Team | str | Path,
        *,
        scheme: str | SchemeConfig | None = None,
        engine: Engine | None = None,
        tools: Mapping[str, Tool] | None = None,
        corpus: Path | str | None = None,
        record: Path | str | None = None,
        cassette: Path | str | None = None,
        seed: int = 0,
        out: Path | str | None = None,
        dtype: str | None = None,
        device: str = "auto",
        offline: bool = False,
        backend: Literal["auto", "triton", "reference"] = "auto",
        kv_budget: float | str | None = None,
    ) -> None:
        self.team = team if isinstance(team, Team) else Team.load(team)
        if engine is not None and scheme is not None:
            raise UsageError("give either an engine or a scheme: a given engine has its own scheme")
        self.scheme = parse_scheme(scheme) if isinstance(scheme, str) else scheme or self.team.scheme
        self.seed = seed
        self.graph: Graph = compile_graph(self.team)
        """The compiled LangGraph; to run it by hand, see `agentrt.runtime.state.RunContext`."""
        self._tools = Toolbox.open(self.team, _path(corpus), tools, record=_path(record), cassette=_path(cassette))
        self._out = _path(out)
        self._dtype, self._device, self._offline = dtype or self.team.base.dtype, device, offline
        self._backend = backend
        self._budget = KVBudget(None, None) if kv_budget is None else KVBudget.parse(kv_budget)
        self._engine, self._owns_engine = engine, engine is None
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def engine(self) -> Engine:
        """The engine, loaded if it is not yet."""
        with self._lock:
            if self._closed:
                raise EngineClosedError("the runtime was closed; make a new one")
            if self._engine is None:
                self._engine = self._load()
            return self._engine

    def run(
        self, question: str, *, seed: int | None = None, run_id: str | None = None, score: Scorer | None = None
    ) -> EpisodeResult:
        """Answer a question. A limit is a status of the result; raises what broke the run.

        score: fills the result's score where the gold answer is known.
        """
        job = self._job(question, seed, run_id, score, stream_tokens=False)
        for _ in job.events():
            pass
        assert job.result is not None
        return job.result

    def stream(
        self,
        question: str,
        *,
        seed: int | None = None,
        run_id: str | None = None,
        score: Scorer | None = None,
        tokens: bool = True,
    ) -> Iterator[Event]:
        """The same, event by event, the last a RunFinished; `tokens` includes every sampled token.

        Closing the iterator cancels the turn in flight, and the run ends as "cancelled".
        """
        return self._job(question, seed, run_id, score, stream_tokens=tokens).events()

    def close(self) -> None:
        """Free the engine, if it was loaded here. Idempotent."""
        with self._lock:
            self._closed = True
            engine, self._engine = self._engine, None
        if engine is not None and self._owns_engine:
            engine.close()

    def _job(
        self, question: str, seed: int | None, run_id: str | None, score: Scorer | None, *, stream_tokens: bool
    ) -> Job:
        question = one_line(question)
        if not question:
            raise UsageError("the question is empty")
        engine = self.engine
        scheme = str(self.scheme) if self._owns_engine else engine.scheme_name
        started = RunStarted(
            run_id=run_id or new_run_id(),
            question=question,
            team=self.team.name,
            scheme=scheme,
            seed=self.seed if seed is None else seed,
        )

        def open_log(out: Path) -> RunLog:
            header = started.model_dump(include={"run_id", "team", "scheme", "seed"})
            return RunLog(out / started.run_id, {**header, "base": self.team.base.model})

        def open_context(emit: Callable[[Event], None]) -> RunContext:
            limits, renderer = self.team.limits, Renderer(self.team.dialect, engine.tokenizer)
            wanted = engine.max_context if limits.max_context == "auto" else limits.max_context
            return RunContext(
                team=self.team,
                session=engine.session(renderer.preamble(self.team.preamble) or None),
                renderer=renderer,
                tools=self._tools,
                emit=emit,
                seed=started.seed,
                max_context=min(wanted, engine.max_context),
                deadline=time.monotonic() + limits.time_s,
                stream_tokens=stream_tokens,
            )

        log = partial(open_log, self._out) if self._out is not None else None
        return Job(self.graph, open_context, started, open_log=log, score=score)

    def _load(self) -> Engine:
        from agentrt.engine import Engine as RealEngine  # a scripted engine needs no model code
        from agentrt.engine import EngineConfig

        return RealEngine.load(
            self.team.base.model,
            self.team.adapters(),
            self.scheme.name,
            scheme_options=self.scheme.options,
            dtype=self._dtype,
            device=self._device,
            offline=self._offline,
            backend=self._backend,
            config=EngineConfig(kv_budget_bytes=self._budget.num_bytes, kv_budget_tokens=self._budget.num_tokens),
        )


def _path(path: Path | str | None) -> Path | None:
    return Path(path) if path is not None else None


def new_run_id() -> str:
    """Sorts by time, and is unique."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
