"""Fuzzing of rollback: machines that play any order of operations and compare every byte."""
