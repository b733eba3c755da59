"""The JSON schema of team files, for editors. `agents/team.schema.json` is this text, kept current by a test."""

import json

from agentrt.config.team import Team


def team_schema() -> str:
    """The schema as indented JSON with a final newline."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Team.model_json_schema()}
    return json.dumps(schema, indent=2) + "\n"
