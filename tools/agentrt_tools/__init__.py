"""Tools for agents, on their own: search, page and lookup over a corpus, Serper and Wikipedia, and what runs them."""

from agentrt_tools.base import FailureKind, Json, Tool, ToolFailed, ToolResult
from agentrt_tools.cassette import CallRequest, Cassette, CassetteError, CassetteMissError, Recorder
from agentrt_tools.corpus import OfflineCorpus, open_corpus
from agentrt_tools.corpus_file import Article, CorpusError, read_articles
from agentrt_tools.health import ToolHealth
from agentrt_tools.images import RecordedImages
from agentrt_tools.offline import LINKS, OfflineLookup, OfflinePage, OfflineSearch
from agentrt_tools.registry import (
    TOOLS,
    Option,
    ToolOptionError,
    check_tool,
    missing_secrets,
    needs_corpus,
    open_tool,
    tool_options,
)
from agentrt_tools.runner import RetryPolicy, ToolCall, ToolRunner
from agentrt_tools.secrets import Secret, find_secret
from agentrt_tools.sentences import split_sentences
from agentrt_tools.serper import SerperClient, SerperSearch
from agentrt_tools.text import TRUNCATED, clip, neutralise, one_line
from agentrt_tools.titles import clean_title
from agentrt_tools.wiki import WikipediaLookup, WikipediaPage, WikipediaSearch
from agentrt_tools.wiki_client import WikiClient

__all__ = [
    "LINKS",
    "TOOLS",
    "TRUNCATED",
    "Article",
    "CallRequest",
    "Cassette",
    "CassetteError",
    "CassetteMissError",
    "CorpusError",
    "FailureKind",
    "Json",
    "OfflineCorpus",
    "OfflineLookup",
    "OfflinePage",
    "OfflineSearch",
    "Option",
    "RecordedImages",
    "Recorder",
    "RetryPolicy",
    "Secret",
    "SerperClient",
    "SerperSearch",
    "Tool",
    "ToolCall",
    "ToolFailed",
    "ToolHealth",
    "ToolOptionError",
    "ToolResult",
    "ToolRunner",
    "WikiClient",
    "WikipediaLookup",
    "WikipediaPage",
    "WikipediaSearch",
    "check_tool",
    "clean_title",
    "clip",
    "find_secret",
    "missing_secrets",
    "needs_corpus",
    "neutralise",
    "one_line",
    "open_corpus",
    "open_tool",
    "read_articles",
    "split_sentences",
    "tool_options",
]
