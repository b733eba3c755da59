"""A web service on this machine that answers as a test tells it to."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit


class Asked(NamedTuple):
    """A request as it came in; `params` are those of the address, `body` is the JSON that was sent."""

    method: str
    path: str
    params: dict[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass
class Reply:
    """`body` is sent as JSON, or as it is if it is text. `cut`: so many bytes are announced but never sent."""

    body: Any = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int = 0
    hang: bool = False


Answer = Callable[[Asked], Reply]


class HttpDouble:
    """`answer` makes every reply; `asked` has every request, `most_at_once` the largest number under way."""

    def __init__(self, answer: Answer, url: str) -> None:
        self.answer = answer
        self.url = url
        self.asked: list[Asked] = []
        self.most_at_once = 0
        self.released = threading.Event()
        """Set when the test is over: hanging replies end."""
        self._now = 0
        self._lock = threading.Lock()

    @contextmanager
    def under_way(self, asked: Asked) -> Iterator[None]:
        with self._lock:
            self.asked.append(asked)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            yield
        finally:
            with self._lock:
                self._now -= 1


def replies(*given: Reply) -> Answer:
    """The replies in order, and the last one from then on."""
    left = list(given)
    lock = threading.Lock()

    def answer(asked: Asked) -> Reply:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return answer


@contextmanager
def http_double(answer: Answer) -> Iterator[HttpDouble]:
    """Serve until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._handle()

        def do_POST(self) -> None:
            self._handle()

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _handle(self) -> None:
            parts = urlsplit(self.path)
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            params = dict(parse_qsl(parts.query, keep_blank_values=True))
            asked = Asked(self.command, parts.path, params, dict(self.headers), json.loads(sent) if sent else None)
            with double.under_way(asked):
                reply = double.answer(asked)
                if reply.hang:
                    double.released.wait(30)
            data = (reply.body if isinstance(reply.body, str) else json.dumps(reply.body)).encode()
            try:
                self.send_response(reply.status)
                self.send_header("Content-Length", str(len(data) + reply.cut))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
                self.close_connection = bool(reply.cut)
            except OSError:
                self.close_connection = True  # the client gave up

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    double = HttpDouble(answer, f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield double
    finally:
        double.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
