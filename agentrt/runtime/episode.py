"""The runtime: a team, its engine and its tools; questions in, episodes out."""

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, Unpack

from agentrt.config.budget import KVBudget
from agentrt.config.problems import suggest
from agentrt.config.scheme import SchemeConfig, parse_scheme
from agentrt.config.team import Team
from agentrt.errors import EngineClosedError, UsageError
from agentrt.runtime.dialect import Renderer
from agentrt.runtime.events import Event, RunResumed, RunStarted
from agentrt.runtime.graph import Graph, compile_graph
from agentrt.runtime.health import EngineState, RuntimeHealth
from agentrt.runtime.job import Job
from agentrt.runtime.options import ResumeOptions, RunOptions
from agentrt.runtime.ports import Engine
from agentrt.runtime.result import EpisodeResult
from agentrt.runtime.runfolder import RunFolder, place_to_go_on
from agentrt.runtime.runlock import lock_run
from agentrt.runtime.running import Runs
from agentrt.runtime.saved import Resources, SavedTeam, corpus_hash, find_run
from agentrt.runtime.state import RunContext
from agentrt.runtime.subgraph import EpisodeGraph, episode_graph
from agentrt.runtime.toolbox import Toolbox
from agentrt_tools import Json, Tool, one_line


class Runtime:
    """Runs a team's episodes; a context manager. Several threads may run episodes on one runtime at once.

    team: a Team, the name of a built-in team, or a team file.
    scheme: replaces the team's, e.g. "rebase_shared:lp".
    engine: used instead of loading one, and left open; the scheme is then the engine's own.
    tools: replace the team's tools of the same names.
    corpus: the file the offline tools read; None: the one that the team file names, if it does.
    record: a folder to which every tool call is written; cassette: one from which calls are played, without the tools.
    seed: with the same seed a question gets the same tokens, whatever else runs.
    out: each run writes a folder of its own there, named by its id; None writes nothing.
    dtype: replaces the team's. device, offline, backend: see `Engine.load`; cuda_graphs: see `EngineConfig`.
    kv_budget: the most that the caches may hold, in GiB (1.5) or tokens ("20000t"); a turn beyond it raises
        CacheFullError. None: no limit.
    adapters: more adapter folders to load, by name, for runs that give a role another one (`RunOptions`).

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
        backend: Literal["auto", "triton", "jit", "reference"] = "auto",
        cuda_graphs: Literal["off", "auto"] = "off",
        kv_budget: float | str | None = None,
        adapters: Mapping[str, Path | str] | None = None,
    ) -> None:
        self.team = team if isinstance(team, Team) else Team.load(team)
        if engine is not None and scheme is not None:
            raise UsageError("give either an engine or a scheme: a given engine has its own scheme")
        self.scheme = parse_scheme(scheme) if isinstance(scheme, str) else scheme or self.team.scheme
        self.seed = seed
        self._flow: Graph = compile_graph(self.team)
        self.graph: EpisodeGraph = episode_graph(
            lambda question, seed: self._job(question, RunOptions(seed=seed), stream_tokens=True), self.team.name
        )
        """A compiled LangGraph that answers `{"question": ...}`, alone or as a node of another graph."""
        corpus = corpus or self.team.corpus_file
        self._tools = Toolbox.open(self.team, _path(corpus), tools, record=_path(record), cassette=_path(cassette))
        self._out = _path(out)
        self._dtype, self._device, self._offline = dtype or self.team.base.dtype, device, offline
        self._backend, self._cuda_graphs = backend, cuda_graphs
        self._budget = KVBudget(None, None) if kv_budget is None else KVBudget.parse(kv_budget)
        self._engine, self._owns_engine = engine, engine is None
        self._adapters = {name: Path(folder) for name, folder in (adapters or {}).items()}
        self.resources = Resources(
            corpus=_absolute(corpus),
            corpus_sha256=corpus_hash(_absolute(corpus)),
            record=_absolute(record),
            cassette=_absolute(cassette),
            dtype=self._dtype,
            device=device,
            offline=offline,
            backend=backend,
            cuda_graphs=cuda_graphs,
            kv_budget=kv_budget,
            adapters={name: str(folder.resolve()) for name, folder in self._adapters.items()},
        )
        self._lock = threading.Lock()
        self._runs = Runs()

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
            if self._runs.refusal:
                raise EngineClosedError(self._runs.refusal)
            if self._engine is None:
                self._engine = self._load()
            return self._engine

    def run(self, question: str, **options: Unpack[RunOptions]) -> EpisodeResult:
        """Answer a question. A limit is a status of the result; raises what broke the run."""
        job = self._job(question, options)
        for _ in job.events():
            pass
        return job.result

    def stream(
        self, question: str, *, tokens: bool = True, **options: Unpack[RunOptions]
    ) -> Generator[Event, None, None]:
        """The same, event by event, the last a RunFinished; `tokens` includes every sampled token.

        Closing the iterator cancels the turn in flight, and the run ends as "cancelled".
        """
        return self._job(question, options, stream_tokens=tokens).events()

    def resume(self, run: Path | str, *, at_turn: int | None = None, **options: Unpack[ResumeOptions]) -> EpisodeResult:
        """Go on with a run that was interrupted; see `stream_resumed`."""
        job = self._resumed_job(run, at_turn, options)
        for _ in job.events():
            pass
        return job.result

    def stream_resumed(
        self, run: Path | str, *, at_turn: int | None = None, tokens: bool = True, **options: Unpack[ResumeOptions]
    ) -> Generator[Event, None, None]:
        """Go on with a run, by its id under `out` or its folder: in this folder, from where it was left.

        `at_turn`: instead, begin a new run with the first so many turns of that one; only then may the scheme differ.
        The caches are rebuilt first, so that the tokens are those of a run that was never interrupted. A run that was
        killed between its end and its result gets its result.
        Raises UsageError for a run that has ended and has its result, or that had another team or other weights,
        RunBusyError for one that somebody else is working on.
        """
        return self._resumed_job(run, at_turn, options, stream_tokens=tokens).events()

    async def arun(self, question: str, **options: Unpack[RunOptions]) -> EpisodeResult:
        """`run` for asyncio; cancelling the task cancels the run and waits for its end."""
        job = await asyncio.to_thread(self._job, question, options)  # the first run loads a model
        async with aclosing(job.aevents()) as events:
            async for _ in events:
                pass
        return job.result

    async def astream(
        self, question: str, *, tokens: bool = True, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Event, None]:
        """`stream` for asyncio. Closing the iterator, or cancelling the task that reads it, cancels the run."""
        job = await asyncio.to_thread(self._job, question, options, stream_tokens=tokens)
        async with aclosing(job.aevents()) as events:
            async for event in events:
                yield event

    def health(self) -> RuntimeHealth:
        """Whether new runs are taken, and how busy runtime and engine are; raises nothing and loads nothing."""
        engine = self._engine
        state = None if engine is None else EngineState.model_validate(engine.health())
        status = self._runs.state if state is None or self._runs.refusal else state.status
        return RuntimeHealth(status=status, runs=len(self._runs), engine=state)

    def drain(self, timeout_s: float | None = None) -> bool:
        """Take no new runs, and wait for those that run; whether all ended in time. The engine stays loaded."""
        self._runs.refuse("draining", "the runtime is draining: it finishes its runs and takes no new ones")
        return self._runs.wait(timeout_s)

    def close(self) -> None:
        """Cancel what runs, wait for it, and free the engine if it was loaded here. Idempotent."""
        self._runs.refuse("closed", "the runtime was closed; make a new one")
        self._runs.cancel()
        self._runs.wait()
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None and self._owns_engine:
            engine.close()

    def _job(self, question: str, options: RunOptions, *, stream_tokens: bool = False) -> Job:
        question = one_line(question)
        if not question:
            raise UsageError("the question is empty")
        engine = self.engine
        seed, adapters = options.get("seed"), dict(options.get("adapters") or {})
        self._check_adapters(engine, adapters)
        started = RunStarted(
            run_id=options.get("run_id") or new_run_id(),
            question=question,
            team=self.team.name,
            scheme=self._scheme_of(engine),
            seed=self.seed if seed is None else seed,
            adapters=adapters,
        )
        note = dict(options.get("note") or {})

        def open_folder(out: Path) -> RunFolder:
            return RunFolder.create(out / started.run_id, self._header(started, note))

        return Job(
            self._flow,
            self._context_opener(started, stream_tokens),
            started,
            self._runs,
            open_folder=partial(open_folder, self._out) if self._out is not None else None,
            score=options.get("score"),
            cancel=options.get("cancel"),
        )

    def _resumed_job(
        self, run: Path | str, at_turn: int | None, options: ResumeOptions, *, stream_tokens: bool = False
    ) -> Job:
        found = find_run(run, self._out)
        saved, out = found.saved, self._out or found.folder.parent
        saved.saved_team.check(self.team)
        if at_turn is None:
            lock_run(found.folder).release()  # refused before a model is loaded
        place = place_to_go_on(found, self._flow, at_turn)
        engine = self.engine
        self._check_adapters(engine, saved.adapters)
        saved.check_weights(engine.weights)
        scheme = self._scheme_of(engine)
        if at_turn is None and scheme != saved.scheme:
            raise UsageError(f"run {saved.run_id} has scheme {saved.scheme}, not {scheme}: fork it with --at-turn N")
        started = RunStarted(
            run_id=saved.run_id if at_turn is None else options.get("run_id") or new_run_id(),
            question=saved.question,
            team=self.team.name,
            scheme=scheme,
            seed=saved.seed,
            adapters=saved.adapters,
        )
        resumed = RunResumed(
            **started.model_dump(include={*RunResumed.model_fields} - {"event"}),
            turns=0,
            observations=0,
            forked_from=None if at_turn is None else saved.run_id,
        )

        def open_folder() -> RunFolder:
            if at_turn is None:
                return RunFolder.reopen(found, self._flow)
            assert place is not None
            header = self._header(started, saved.note)
            return RunFolder.fork(out / started.run_id, header, started, found, place)

        return Job(
            self._flow,
            self._context_opener(started, stream_tokens),
            resumed,
            self._runs,
            open_folder=open_folder,
            score=options.get("score"),
            cancel=options.get("cancel"),
        )

    def _scheme_of(self, engine: Engine) -> str:
        return str(self.scheme) if self._owns_engine else engine.scheme_name

    def _header(self, started: RunStarted, note: dict[str, Json]) -> dict[str, Json]:
        """What the first line of a run's log says of it, beside versions."""
        told = started.model_dump(include={"run_id", "question", "team", "scheme", "seed", "adapters"})
        return {
            **told,
            "base": self.team.base.model,
            "weights": dict(self.engine.weights),
            "saved_team": SavedTeam.of(self.team).model_dump(),
            "resources": self.resources.model_dump(),
            "note": note,
        }

    def _context_opener(
        self, started: RunStarted, stream_tokens: bool
    ) -> Callable[[Callable[[Event], None]], RunContext]:
        engine = self.engine

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
                adapters=started.adapters,
            )

        return open_context

    def _check_adapters(self, engine: Engine, adapters: Mapping[str, str]) -> None:
        for role in adapters:
            if role not in self.team.roles:
                raise UsageError(f"adapters: the team has no role {role!r}{suggest(role, self.team.roles, 'roles')}")
        for role in self.team.roles:
            adapter, known = adapters.get(role, self.team.adapter_name(role)), engine.adapter_names
            if adapter and known and adapter not in known:  # a scripted engine may name none, and takes any
                tail = suggest(adapter, known, "adapters")
                raise UsageError(f"the engine has no adapter {adapter!r} for role {role!r}{tail}")

    def _load(self) -> Engine:
        from agentrt.engine import Engine as RealEngine  # a scripted engine needs no model code
        from agentrt.engine import EngineConfig

        return RealEngine.load(
            self.team.base.model,
            {**self.team.adapters(), **self._adapters},
            self.scheme.name,
            scheme_options=self.scheme.options,
            dtype=self._dtype,
            device=self._device,
            offline=self._offline,
            backend=self._backend,
            config=EngineConfig(
                kv_budget_bytes=self._budget.num_bytes,
                kv_budget_tokens=self._budget.num_tokens,
                cuda_graphs=self._cuda_graphs,
            ),
        )


def _path(path: Path | str | None) -> Path | None:
    return Path(path) if path is not None else None


def _absolute(path: Path | str | None) -> str | None:
    return str(Path(path).resolve()) if path is not None else None


def new_run_id() -> str:
    """Sorts by time, and is unique."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
