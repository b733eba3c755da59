"""Keys of services: from the environment or a `.env` file in the working directory, and shown nowhere."""

import os
from typing import NoReturn


class Secret:
    """A text that neither `repr`, `str`, a log nor a pickle gives away; `reveal` is called where it is sent."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not stored")

    def reveal(self) -> str:
        return self._value

    def scrub(self, text: str) -> str:
        """`text` with the secret replaced, for what a service sends back."""
        return text.replace(self._value, "***")


def find_secret(name: str) -> Secret | None:
    """The secret of that name, read anew each time; None where it is not set or blank."""
    value = (os.environ.get(name) or "").strip()
    if not value:
        from dotenv import dotenv_values  # only looked at where the environment has none

        value = (dotenv_values(".env", interpolate=False).get(name) or "").strip()
    return Secret(value) if value else None
