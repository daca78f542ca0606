"""Figure of one compression method: its numbers as dots, with the accuracy of full prompts."""

from icl_mech.looks.compare_compression import dots
from icl_mech.measurements.compression.compress_demonstrations import CompressDemonstrationsResult
from icl_mech.results import basis
from icl_mech.shapes import Bars


def drawing(result: CompressDemonstrationsResult) -> Bars:
    """Label loyalty, word loyalty and accuracy, with the accuracy of the full prompts.

    Args:
        result: The result to draw.
    """
    numbers = {"label loyalty": [result.label_loyalty], "word loyalty": [result.word_loyalty]}
    if result.correct is not None:
        numbers |= {"accuracy": [result.accuracy], "accuracy, full prompt": [result.full_accuracy]}
    note = f"{basis(result)}; {result.sentences.say('costs', result=result)}"
    return dots(numbers, [result.method], "fraction of prompts; overlap", note)
