"""Evaluation of a team on a benchmark: many episodes on one engine, a row for each, and what they come to."""
