"""Fuzzing of rollback: machines that play any order of operations and compare every byte.

``specla fuzz`` is the command line of it. A *setup* makes a *world*; *operations* act on it and
check every claim against plain decoding. All three are plain values, so that what a machine found
can be saved as a script and played again.
"""
