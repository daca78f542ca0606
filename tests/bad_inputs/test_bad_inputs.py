from pathlib import Path

import pytest

from icl_mech import IclMechError
from tests.bad_inputs.case import Bench, all_cases
from tests.said import Words

HERE = Path(__file__).parent
CASES = all_cases()


@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", CASES)
def test_a_bad_input_is_refused_in_words(name, tmp_path):
    case = CASES[name]
    with pytest.raises(IclMechError) as found:
        case.call(Bench(tmp_path))
    assert type(found.value) is case.error
    message = str(found.value)
    for part in case.says:
        assert part in message
    Words(f"{HERE}/cases_{name.partition(':')[0]}.py").exactly(
        message.replace(str(tmp_path), "…"), case.what
    )
