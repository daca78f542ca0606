"""Offline data written for this project: small classification sets for demos and tests.

`reviews` (sentiment), `headlines` (news topic), `questions` (answer type) and
`unnatural` (object category); every text was written for `icl_mech`.
"""

from pathlib import Path

NAMES = ("reviews", "headlines", "questions", "unnatural")


def folder(name: str) -> Path:
    """The folder that holds `train.jsonl` and `test.jsonl` of one offline data set."""
    return Path(__file__).parent / name
