"""`python -m tests.fuzz --minutes 10`: cases of ever new seeds, and a log of what came of them."""

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from tests.fuzz.cases import Case
from tests.fuzz.compare import Outcome, outcome

FIRST = 1_000_000
"""Seeds below are those of the tests."""


def main() -> int:
    """Run cases; 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, help="first seed; by default of the day")
    parser.add_argument("--seeds", type=int, nargs="*", help="these seeds only")
    parser.add_argument("--log", type=Path, default=Path("build/fuzz.log"))
    given = parser.parse_args()
    today = datetime.now(timezone.utc)
    first = given.first if given.first is not None else FIRST * (1 + today.timetuple().tm_yday)
    start, found = time.monotonic(), []
    seeds = iter(given.seeds) if given.seeds else iter(range(first, first + FIRST))
    for seed in seeds:
        own = outcome(Case.drawn(seed))
        found.append(own)
        if own.failed or given.seeds:
            sys.stdout.write(f"{'FAILED' if own.failed else 'agrees'} {own}\n")
            sys.stdout.flush()
        if not given.seeds and time.monotonic() - start > 60 * given.minutes:
            break
    text = report(found, (time.monotonic() - start) / 60, today)
    given.log.parent.mkdir(parents=True, exist_ok=True)
    given.log.write_text(text)
    sys.stdout.write(text)
    return int(any(own.failed for own in found))


def counted(outcomes: Sequence[Outcome]) -> Counter[str]:
    """How many cases of each kind were compared."""
    counts: Counter[str] = Counter()
    for own in outcomes:
        case = own.case
        state = "refused" if own.refused else "failed" if own.failed else "agree"
        counts[state] += 1
        if own.refused:
            continue
        counts[f"door {case.door}"] += 1
        counts[f"dtype {case.model.dtype}"] += 1
        counts[f"family {case.model.family}"] += 1
        counts[f"choice {case.choice['how']}"] += 1
        counts[f"between {case.between}"] += 1
        counts[f"hook {case.hook['at'] if case.hook else 'none'}"] += 1
        for change in case.changes or [{"kind": "none"}]:
            counts[f"change {change['kind']}"] += 1
        for gap in own.gaps:
            counts[f"quantity {gap.removeprefix('before: ')}"] += 1
        if (case.changes or case.hook) and own.moved > 1:
            counts["changes that move numbers"] += 1
    return counts


def report(found: list[Outcome], minutes: float, when: datetime) -> str:
    """Cases, minutes, how many of each kind, refusals by their words, failures."""
    failures = [own for own in found if own.failed]
    lines = [
        f"{when:%Y-%m-%d %H:%M} UTC: {len(found)} cases in {minutes:.1f} minutes, seeds "
        f"{found[0].case.seed} to {found[-1].case.seed}, {len(failures)} failures",
        "",
        *(f"{count:6} {name}" for name, count in sorted(counted(found).items())),
        "",
        "Largest gap, in tolerances:",
    ]
    largest: dict[str, float] = {}
    for own in found:
        for name, gap in own.gaps.items():
            key = f"{own.case.model.dtype} {name.removeprefix('before: ')}"
            largest[key] = max(gap, largest.get(key, 0.0))
    lines += [f"{gap:10.3g} {name}" for name, gap in sorted(largest.items())]
    # Names of models, modules and folders apart, a refusal is the same.
    said = (re.sub(r"'[^']*'", "'...'", own.refused) for own in found if own.refused)
    refusals = Counter(words[:120] for words in said)
    lines += ["", "Refused:", *(f"{count:6} {words}" for words, count in refusals.most_common())]
    lines += ["", "Failed:", *(str(own) for own in failures)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
