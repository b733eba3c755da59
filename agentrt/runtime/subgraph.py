"""A runtime as a LangGraph graph of its own: a question in, an answer out, to be a node in anybody's graph."""

from collections.abc import Callable, Mapping
from typing import Any, TypedDict, cast

from langchain_core.runnables import RunnableLambda
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import JsonValue

from agentrt.runtime.job import Job
from agentrt.runtime.result import EpisodeResult

NODE = "episode"


class GraphInput(TypedDict, total=False):
    """`question` must be there; `seed` replaces the runtime's."""

    question: str
    seed: int | None


class GraphOutput(TypedDict, total=False):
    """`answer` is None unless the team gave one; `status` says how the episode ended; `result` is the EpisodeResult
    as JSON, to be read back with `EpisodeResult.model_validate`."""

    answer: str | None
    status: str
    result: dict[str, JsonValue]


class GraphState(GraphInput, GraphOutput, total=False):
    """Plain JSON types, so that any checkpointer can save it. A parent graph shares the keys it has too."""


EpisodeGraph = CompiledStateGraph[GraphState, None, GraphInput, GraphOutput]


def episode_graph(open_job: Callable[[str, int | None], Job], name: str) -> EpisodeGraph:
    """A graph of one node that runs an episode; its events go to LangGraph's `custom` stream, as JSON objects.

    The episode's own flow runs apart from the parent graph: it has its own state, limits and thread, and takes
    neither checkpointer nor recursion limit from it. Cancelling the parent's task cancels the episode.
    """

    def run(state: Mapping[str, Any]) -> GraphOutput:
        job, write = open_job(state["question"], state.get("seed")), get_stream_writer()
        for event in job.events():
            write(event.model_dump(mode="json"))
        return _output(job.result)

    async def arun(state: Mapping[str, Any]) -> GraphOutput:
        job, write = open_job(state["question"], state.get("seed")), get_stream_writer()
        async for event in job.aevents():
            write(event.model_dump(mode="json"))
        return _output(job.result)

    graph: StateGraph[GraphState, None, GraphInput, GraphOutput]
    graph = StateGraph(GraphState, input_schema=GraphInput, output_schema=GraphOutput)
    graph.add_node(NODE, cast(Any, RunnableLambda(run, afunc=arun, name=NODE)))  # one node, both ways to call it
    graph.add_edge(START, NODE)
    graph.add_edge(NODE, END)
    return graph.compile(name=name)


def _output(result: EpisodeResult) -> GraphOutput:
    return {"answer": result.answer, "status": result.status, "result": result.model_dump(mode="json")}
