"""Web search by Serper (google.serper.dev). The key is SERPER_API_KEY, read when a search is made."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from agentrt_tools.base import Json, ToolFailed, ToolResult
from agentrt_tools.options import AtLeast, Matches, Style
from agentrt_tools.secrets import Secret, find_secret
from agentrt_tools.serper_text import SearchPage, read_search, render_search
from agentrt_tools.state import searched

if TYPE_CHECKING:
    import requests

    from agentrt_tools.web import Web

KEY: Final = "SERPER_API_KEY"
URL: Final = "https://google.serper.dev/search"
AUTOACT_ERROR: Final = "bingSearch error, please try again."

_CODE: Final = Matches(r"[a-z]{2}(-[a-z]{2})?", "a code of two letters")


class SerperClient:
    """Asks Serper and sorts its failures. `url` and `web` are for tests; the key goes to `url` alone."""

    def __init__(self, *, url: str = URL, web: "Web | None" = None) -> None:
        from agentrt_tools.web import Web  # requests is loaded when a live tool is opened

        self._url = url
        self._web = web or Web("Serper", user_agent="agentrt")

    def search(self, query: str, *, country: str, language: str) -> SearchPage:
        """Raises ToolFailed."""
        from agentrt_tools.web import KeyHeader

        key = find_secret(KEY)
        if key is None:
            raise ToolFailed("auth", "Serper needs a key", hint=f"set {KEY} in the environment or in .env")
        if not key.reveal().isascii() or not key.reveal().isprintable() or " " in key.reveal():
            raise ToolFailed("auth", f"{KEY} holds characters that no key has", hint="copy the key again")
        body = {"q": query, "gl": country, "hl": language}
        response = self._web.post(self._url, body, KeyHeader("X-API-KEY", key))
        if response.status_code != 200:
            raise self._failure(response, key)
        return read_search(self._web.json_object(response))

    def _failure(self, response: "requests.Response", key: Secret) -> ToolFailed:
        """By status and message; Serper answers 400 both for used-up credits and for a bad request."""
        status, message = response.status_code, _message(response)
        if "credit" in message.lower() or status == 402:
            hint = "buy credits at serper.dev, or use another tool"
            return ToolFailed("quota", f"Serper's credits are used up ({status})", hint=hint)
        if status in (401, 403):
            return ToolFailed("auth", f"Serper refuses the key ({status})", hint=f"check {KEY}")
        said = f": {key.scrub(message)[:100]}" if message else ""
        refused = ToolFailed("bad_response", f"Serper refused the request ({status}){said}")
        return self._web.status_failure(response) or refused


class SerperSearch:
    """The answer box, the knowledge graph and the first `k` results of a web search, in the wording of `style`."""

    name: Final = "serper.search"
    secrets: ClassVar[tuple[str, ...]] = (KEY,)

    def __init__(
        self,
        client: SerperClient | None = None,
        *,
        k: Annotated[int, AtLeast(1)] = 4,
        style: Style = "react",
        country: Annotated[str, _CODE] = "us",
        language: Annotated[str, _CODE] = "en",
    ) -> None:
        self._client = client or SerperClient()
        self._k, self._style, self._country, self._language = k, style, country, language

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        query = " ".join(argument.split())
        page = SearchPage()
        if query:  # Serper would refuse an empty query
            try:
                page = self._client.search(query, country=self._country, language=self._language)
            except ToolFailed as failed:
                failed.told = AUTOACT_ERROR if self._style == "autoact" else ""
                raise
        page = page.first(self._k)
        facts: dict[str, Json] = {
            "query": query,
            "results": [{"title": hit.title, "link": hit.link} for hit in page.results],
        }
        text = render_search(page, query, self._style)
        return ToolResult(text, facts, searched(state, page.passages()), page.titles(), miss=page.empty)


def _message(response: "requests.Response") -> str:
    """What the service says in `message`; "" where it says nothing of the kind."""
    try:
        body: Any = response.json()
    except ValueError:
        return ""
    message = body.get("message") if isinstance(body, dict) else None
    return message if isinstance(message, str) else ""
