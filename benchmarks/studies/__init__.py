"""Studies of accuracy: each a script with a config file, thin over the commands; `harness.py` resumes and records."""
