"""Offline data written for this project: small sets for demos and tests.

Classification, a folder each: `reviews` (sentiment), `headlines` (news topic), `questions`
(answer type), `unnatural` (object category) and `comparisons` (who has more, after one addition or
subtraction; each row has a `rationale` of two sentences).

Open answers, a file each: `antonyms.csv`, `plurals.csv`, `past_tense.csv`, `capitals.csv` and
`english_french.csv`. `answer` holds all correct answers, separated by `|`, the displayed one first;
`other` is what another relation gives for the same text: a synonym, the word in capitals, the
-ing form, a main language of the country, the Spanish word.

Every text was written for `icl_mech`.
"""

from pathlib import Path

NAMES = ("reviews", "headlines", "questions", "unnatural", "comparisons")


def folder(name: str) -> Path:
    """The folder that holds `train.jsonl` and `test.jsonl` of one offline data set."""
    return Path(__file__).parent / name


def table(name: str) -> Path:
    """The file of one offline set of open answers: `text`, `answer`, `other` and `split`."""
    return Path(__file__).parent / f"{name}.csv"
