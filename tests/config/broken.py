"""A valid team file, and what a way to break it is."""

from typing import NamedTuple

VALID = """\
version: 1
base: {model: smollm2-135m, dtype: auto}
scheme: {name: rebase_shared, schedule: lp}
preamble: Answer in steps.
roles:
  plan: {adapter: adapters/plan}
  action: {adapter: adapters/action}
  reflect: {adapter: none}
tools:
  Search: {use: offline.search, k: 3}
  Lookup: {use: offline.lookup}
flow:
  start: think
  nodes:
    think: {role: plan, emits: thought, next: decide}
    decide: {role: plan, emits: action, choices: [Search, Lookup, Finish], next: argue}
    argue:
      role: action
      emits: argument
      constrain:
        Finish: {span_of: observations, also: [yes, no]}
      next: {Finish: judge, default: use_tool}
    use_tool: {tool: true, next: think}
    judge: {role: reflect, emits: thought, next: verdict}
    verdict: {role: reflect, emits: verdict, choices: [right, wrong], next: {right: end, wrong: think}}
limits: {max_steps: 8}
"""


class Broken(NamedTuple):
    """`old` -> `new` breaks the valid file; the first problem stands at line:column, and says `what` is wrong and how
    to `fix` it."""

    old: str
    new: str
    line: int
    column: int
    what: str
    fix: str
