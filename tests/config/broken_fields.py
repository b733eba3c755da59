"""Ways to break what a team file says of its fields: choices, constraints, endings."""

from .broken import Broken

BROKEN_FIELDS = {
    "constraint on an action nobody chooses": Broken(
        "Finish: {span", "Finsh: {span", 21, 9, "no node chooses the action 'Finsh'", "did you mean 'Finish'?"
    ),
    "constraint without a rule": Broken(
        "span_of: observations, ", "", 21, 17, "Finish:", "write either `choices:` or `span_of:`"
    ),
    "length of a choice": Broken(
        "{span_of: observations, also: [yes, no]}",
        "{choices: [yes, no], max_words: 3}",
        21,
        17,
        "Finish:",
        "`max_words:` is for `span_of:`",
    ),
    "span of nothing": Broken(
        "span_of: observations, ", "span_of: [], ", 21, 17, "`span_of:` is empty", "name `observations`, `question` or"
    ),
    "span of an unknown text": Broken(
        "span_of: observations, ", "span_of: [observation], ", 21, 28, "'observation'", "did you mean 'observations'?"
    ),
    "constraint on a thought": Broken(
        "emits: thought, next: v",
        "emits: thought, constrain: {Finish: {span_of: question}}, next: v",
        24,
        44,
        "`constrain` is for arguments, this node emits thought",
        "leave it out",
    ),
    "action without choices": Broken(
        "choices: [Search, Lookup, Finish], ",
        "",
        16,
        13,
        "choices are missing",
        "list what the action may be, `choices: [one, other]`",
    ),
    "ending of an argument": Broken(
        "emits: argument\n",
        "emits: argument\n      after: {It is: {span_of: question}}\n",
        20,
        7,
        "`after` is for thoughts, this node emits argument",
        "leave it out",
    ),
    "ending without a rule": Broken(
        "emits: thought, next: v",
        "emits: thought, after: {It is: {also: [a]}}, next: v",
        24,
        59,
        "It is",
        "write either `choices:` or `span_of:`",
    ),
    "words with a blank behind them": Broken(
        "emits: thought, next: v",
        'emits: thought, after: {"It is ": {span_of: question}}, next: v',
        24,
        52,
        "'It is '",
        "leave out the blanks",
    ),
    "unknown list of choices": Broken(
        "{span_of: observations, also: [yes, no]}", "{choices: optoins}", 21, 27, "'optoins'", "did you mean 'options'?"
    ),
    "choices of a thought": Broken(
        "emits: thought, next: v",
        "emits: thought, choices: [a], next: v",
        24,
        44,
        "a thought is free text",
        "leave `choices` out",
    ),
    "choice listed twice": Broken(
        "Search, Lookup, F", "Search, Search, F", 16, 59, "'Search' is listed twice", "keep one"
    ),
    "branch behind a thought": Broken(
        "next: verdict}", "next: {default: verdict}}", 24, 50, "a thought decides nothing", "`next` must be one node"
    ),
}
