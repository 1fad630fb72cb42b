"""Planted bugs: small changes to the real code, each switched on in a process of its own.

A mutant names a module of specla, the text that it replaces, and what must notice it. Nothing in
specla knows about them: the switch changes a module's source text while it is imported.
"""
