"""The sections of a team file that stand for themselves: base, dialect, roles, tools, limits."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, Tag, field_validator, model_validator

from agentrt.config.backbones import DEFAULT_BACKBONE
from agentrt.config.strict import OTHER, TEXT, PositiveFloat, PositiveInt, Scalar, Strict, Text, TextOrOther

Dtype = Literal["auto", "float32", "bfloat16", "float16"]

NO_ADAPTER: Final = "none"
"""`adapter: none`: the role runs on the backbone alone."""

IMAGE_TOOL: Final = "scienceqa.image"
"""The tool that tells what is in a question's image."""

PRESETS: Final[Mapping[str, Mapping[str, float | int]]] = {
    "greedy": {"temperature": 0.0},
    "autoact": {"temperature": 0.5},  # AutoAct (Qiao et al., 2024), appendix
    "lragent": {"temperature": 0.9, "top_p": 0.75, "top_k": 40},  # LRAgent (Jeon et al., 2026)
}


class BaseConfig(Strict):
    """The backbone: an alias, a hub id, a folder or a GGUF file."""

    model: Text = DEFAULT_BACKBONE
    dtype: Dtype = "auto"


class DialectConfig(Strict):
    """Labels and markers. A label carries no trailing blank: `lead` goes before every field's text instead, so
    that a word has the same tokens as in running text."""

    question: Text = "Question:"
    thought: Text = "Thought:"
    action: Text = "Action:"
    observation: Text = "Observation:"
    open: Text = "["
    close: Text = "]"
    end: Text = "\n"
    lead: str = " "


class SamplingConfig(Strict):
    """How a role writes. A preset sets what is not set beside it; temperature 0 is greedy; top_k 0 is off."""

    preset: Literal["greedy", "autoact", "lragent"] | None = None
    temperature: Annotated[float, Field(ge=0, le=10)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    max_new_tokens: PositiveInt = 128

    @model_validator(mode="before")
    @classmethod
    def _fill_preset(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("preset"), str):
            return {**PRESETS.get(data["preset"], {}), **data}
        return data


class RoleConfig(Strict):
    """One agent. `adapter` is a folder relative to the team file, or `none`; `instruction` is appended to the
    trajectory at the start of each of its turns."""

    adapter: Text
    instruction: Text | None = None
    sampling: SamplingConfig = SamplingConfig()

    @field_validator("adapter", mode="before")
    @classmethod
    def _spell_none(cls, value: Any) -> Any:
        if value is None or value is False:
            raise ValueError("write `none` to run this role without an adapter")
        return value

    @property
    def has_adapter(self) -> bool:
        return self.adapter != NO_ADAPTER


class ToolConfig(Strict):
    """A tool under the name the model writes. `use` names the implementation; further keys are its options."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Scalar] = Field(init=False)

    use: Text
    timeout_s: PositiveFloat = 10.0
    retries: Annotated[int, Field(ge=0, le=10)] = 2

    @property
    def options(self) -> dict[str, Scalar]:
        return dict(self.__pydantic_extra__)


class LimitsConfig(Strict):
    """When an episode ends without an answer. A step is one action, `max_tokens` counts generated tokens; `repeat` is
    how often the same action may bring the same observation. `on_limit: stop` ends the episode with its reason as the
    status; `force_answer` has the answer written first, where there is time and room."""

    max_steps: PositiveInt = 15
    max_context: Annotated[Annotated[Literal["auto"], Tag(TEXT)] | Annotated[PositiveInt, Tag(OTHER)], TextOrOther] = (
        "auto"
    )
    max_turns: PositiveInt | None = None
    max_tokens: PositiveInt | None = None
    repeat: PositiveInt = 3
    time_s: PositiveFloat = 300.0
    max_tool_errors: Annotated[int, Field(ge=0)] = 3
    max_observation_tokens: PositiveInt = 140
    on_limit: Literal["stop", "force_answer"] = "stop"
