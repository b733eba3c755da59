"""Tools for agents, on their own: search, page and lookup over an offline corpus, and what runs them safely."""

from agentrt_tools.base import FailureKind, Json, Tool, ToolFailed, ToolResult
from agentrt_tools.corpus import OfflineCorpus, open_corpus
from agentrt_tools.corpus_file import Article, CorpusError, read_articles
from agentrt_tools.health import ToolHealth
from agentrt_tools.offline import LINKS, OfflineLookup, OfflinePage, OfflineSearch
from agentrt_tools.registry import TOOLS, Option, ToolOptionError, check_tool, needs_corpus, open_tool, tool_options
from agentrt_tools.runner import RetryPolicy, ToolCall, ToolRunner
from agentrt_tools.sentences import split_sentences
from agentrt_tools.text import TRUNCATED, clip, neutralise, one_line
from agentrt_tools.titles import clean_title

__all__ = [
    "LINKS",
    "TOOLS",
    "TRUNCATED",
    "Article",
    "CorpusError",
    "FailureKind",
    "Json",
    "OfflineCorpus",
    "OfflineLookup",
    "OfflinePage",
    "OfflineSearch",
    "Option",
    "RetryPolicy",
    "Tool",
    "ToolCall",
    "ToolFailed",
    "ToolHealth",
    "ToolOptionError",
    "ToolResult",
    "ToolRunner",
    "check_tool",
    "clean_title",
    "clip",
    "needs_corpus",
    "neutralise",
    "one_line",
    "open_corpus",
    "open_tool",
    "read_articles",
    "split_sentences",
    "tool_options",
]
