"""HTTP for tools that ask a service: one session, timeouts that hold, and every failure as a ToolFailed.

Knows no service. A message never holds an address, a header or a body, since those may hold a key.
"""

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase

from agentrt_tools.base import ToolFailed
from agentrt_tools.secrets import Secret

CONNECT_S: Final = 3.0
READ_S: Final = 8.0
"""Longest silence of a service. Below the 10 s that a tool has by default, so that the failure names the service."""

MAX_REDIRECTS: Final = 5


class Web:
    """Asks one service for JSON. Any number of threads may share it; cookies are not kept.

    `service` is its name in messages. `read_s` is the longest silence before a request is given up.
    """

    def __init__(self, service: str, *, user_agent: str, read_s: float = READ_S) -> None:
        self.service = service
        self._read_s = read_s
        self._session = requests.Session()
        self._session.headers["User-Agent"] = user_agent
        self._session.max_redirects = MAX_REDIRECTS
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        adapter = HTTPAdapter(pool_maxsize=8)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)

    def get(self, url: str, params: Mapping[str, Any]) -> requests.Response:
        """Follows redirects. Raises ToolFailed where no answer comes."""
        return self._send("GET", url, params=dict(params))

    def post(self, url: str, body: Mapping[str, Any], auth: AuthBase) -> requests.Response:
        """Sends JSON. A redirect is not followed: what `auth` adds is for this address only."""
        return self._send("POST", url, json=dict(body), auth=auth, allow_redirects=False)

    def _send(self, method: str, url: str, **kwargs: Any) -> requests.Response:
        try:
            return self._session.request(method, url, timeout=(CONNECT_S, self._read_s), **kwargs)
        except requests.Timeout:
            failed = ToolFailed("timeout", f"{self.service} gave no answer in {self._read_s:g} s", retryable=True)
        except requests.TooManyRedirects:
            failed = ToolFailed("bad_response", f"{self.service} redirected more than {MAX_REDIRECTS} times")
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
            what = "closed the connection early" if _was_answering(error) else "cannot be reached"
            failed = ToolFailed("network", f"{self.service} {what}", retryable=True, hint="check the network")
        except (requests.RequestException, ValueError, UnicodeError) as error:
            failed = ToolFailed("bad_response", f"asking {self.service} failed ({type(error).__name__})")
        raise failed  # out here, so that no exception that knows the request hangs on to it

    def status_failure(self, response: requests.Response) -> ToolFailed | None:
        """What a status means that is the same everywhere: too many requests, a fault of the server; None: no such."""
        status = response.status_code
        wait_s = retry_after_s(response.headers.get("Retry-After"))
        if status == 429:
            message = f"{self.service} gets too many requests (429)"
            return ToolFailed("rate_limited", message, retryable=True, retry_after_s=wait_s)
        if status >= 500:
            message = f"{self.service} has a fault of its own ({status})"
            return ToolFailed("bad_response", message, retryable=True, retry_after_s=wait_s)
        return None

    def json_object(self, response: requests.Response) -> dict[str, Any]:
        """The body as a JSON object. Raises ToolFailed for anything else."""
        try:
            body = response.json()
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise ToolFailed("bad_response", f"{self.service} answered {response.status_code} with no JSON object")
        return body


class KeyHeader(AuthBase):
    """Sends `secret` under `header`, put in as the request leaves: no variable of ours ever holds the header."""

    def __init__(self, header: str, secret: Secret) -> None:
        self._header = header
        self._secret = secret

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers[self._header] = self._secret.reveal()
        return request


def _was_answering(error: requests.RequestException) -> bool:
    return isinstance(error, requests.exceptions.ChunkedEncodingError) or "aborted" in str(error).lower()


def retry_after_s(value: str | None) -> float | None:
    """Seconds of a Retry-After header, which holds seconds or a date; None for none or another text."""
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
