"""A small MediaWiki API: pages, redirects, a disambiguation and a search, answering as the real one does."""

from collections.abc import Mapping
from typing import Any

from tests.http_double import Asked, Reply

PAGES = {
    "Kale": (
        "Kale is a cabbage.\nIt is green. Dr. K. eats it.\n\n\n== History ==\nKale is old. Kale was sold.\n\nIt grew."
    ),
    "Edison, New Jersey": "Edison is a township in New Jersey.",
    "BSOD": "BSOD is a stop error.",
    "C": "C is a language.",
}
REDIRECTS = {
    "Menlo Park": "Edison, New Jersey",
    "Leaf cabbage": "Borecole",
    "Borecole": "Kale",
    "Loop": "Loop 2",
    "Loop 2": "Loop",
}
MERCURY = """<p><b>Mercury</b> may be:</p>
<ul class="toc"><li class="toclevel-1 tocsection-1"><a href="#A">A</a></li></ul>
<ul><li><a href="/wiki/Mercury_(planet)" title="Mercury (planet)">the planet</a>,
near <a href="/wiki/Sun" title="Sun">Sun</a></li>
<li><a href="/wiki/Mercury_(element)" title="Mercury (element)">Mercury</a></li>
<li><a href="https://en.wiktionary.org/wiki/mercury" class="extiw" title="wikt:mercury">mercury</a> elsewhere</li>
<li><a href="/w/index.php?title=Mercury_X&amp;redlink=1" title="Mercury X (page does not exist)">Mercury X</a></li>
<li><a href="/wiki/Help:Mercury" title="Help:Mercury">Help</a></li><li>no link</li></ul>"""


def wiki(asked: Asked) -> Reply:
    """What https://en.wikipedia.org/w/api.php would answer."""
    params = asked.params
    if params.get("list") == "search":
        words = params["srsearch"].casefold().split()
        hits = [title for title in (*PAGES, "Mercury", "Kal") if any(word in title.casefold() for word in words)]
        return Reply({"query": {"search": [{"ns": 0, "title": title} for title in hits[: int(params["srlimit"])]]}})
    return Reply({"query": page_query(params["titles"], params)})


def page_query(title: str, params: Mapping[str, str]) -> dict[str, Any]:
    if title.startswith("de:"):
        return {"interwiki": [{"title": title, "iw": "de"}]}
    shown = title[0].upper() + title[1:].replace("_", " ")
    query: dict[str, Any] = {"normalized": [{"from": title, "to": shown}]} if shown != title else {}
    steps = []
    while "redirects" in params and shown in REDIRECTS and len(steps) < 3:
        steps.append({"from": shown, "to": REDIRECTS[shown]})
        shown = REDIRECTS[shown]
    if steps:
        query["redirects"] = steps
    if shown == "Mercury":
        page = {"pageid": 7, "title": shown, "pageprops": {"disambiguation": ""}, "revisions": [{"*": MERCURY}]}
        return {**query, "pages": {"7": page}}
    if shown not in PAGES:
        return {**query, "pages": {"-1": {"title": shown, "missing": ""}}}
    number = list(PAGES).index(shown) + 1
    page = {"pageid": number, "title": shown, "fullurl": "https://x", "extract": PAGES[shown]}
    return {**query, "pages": {str(number): {**page, "revisions": [{"revid": 1, "parentid": 0}]}}}
