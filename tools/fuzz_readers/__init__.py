"""Fuzzing of whatever specla reads from files and adapters: see README.md."""
