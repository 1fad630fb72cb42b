"""Mutants modelled on public reports: docs/bug-zoo.md has the table."""

from mutants.catalogue.zoo import decoding, numerics, prefix, settings, state, steps

MUTANTS = (
    *state.MUTANTS,
    *steps.MUTANTS,
    *prefix.MUTANTS,
    *numerics.MUTANTS,
    *decoding.MUTANTS,
    *settings.MUTANTS,
)
