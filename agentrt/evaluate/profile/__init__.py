"""Profiles: which layers of a model suffer most when an agent reads what others computed."""
