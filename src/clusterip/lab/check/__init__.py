"""Reaches every Service port from every kind of client, and judges what came back by what the API says.

`values` are the words, `plan` says what to try and what to expect, `judge` compares (all pure); `probe` and `run`
touch the network.
"""
