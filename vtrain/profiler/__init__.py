"""Profiles: measured operators of one machine, the constants fitted to them, and their proof.

A profile is a folder: `meta.toml` (what was measured, how, when), `gemm.csv`, `attention.csv`,
`elementwise.csv`, `collectives.csv` (the rows), and what `fit` makes of them: `device.toml`,
`cluster.toml`, `stack.toml` (any command takes the folder as `--cluster` and as `--stack`) and
`fit.csv` (held-out errors). Nothing in it is code.
"""
