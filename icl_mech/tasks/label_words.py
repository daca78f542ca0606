"""Tasks in the format of Wang et al. 2023, *Label Words are Anchors*, appendix A."""

from icl_mech.tasks.known import CONVERTED, HubSource, KnownTask, PromptFormat
from icl_mech.tasks.types import Template

_REVIEW = PromptFormat(Template("Review: {text}\nSentiment:{label}"), ("Negative", "Positive"))
_ARTICLE = PromptFormat(
    Template("Article: {text}\nAnswer:{label}"), ("World", "Sports", "Business", "Technology")
)
_QUESTION = PromptFormat(
    Template("Question: {text}\nAnswer Type:{label}"),
    ("Abbreviation", "Entity", "Description", "Person", "Location", "Number"),
)
_DIALOGUE = PromptFormat(
    Template("Dialogue: {text}\nEmotion:{label}"), ("Others", "Happy", "Sad", "Angry")
)

LABEL_WORDS = (
    KnownTask("reviews", (_REVIEW,), "sentiment of short reviews, like SST-2"),
    KnownTask("headlines", (_ARTICLE,), "topic of news items, like AG News"),
    KnownTask("questions", (_QUESTION,), "type of a question's answer, like TREC"),
    KnownTask(
        "sst2", (_REVIEW,), "SST-2 movie reviews",
        HubSource("stanfordnlp/sst2", "sentence", "label", test="validation"),
    ),
    KnownTask(
        "agnews", (_ARTICLE,), "AG News topics", HubSource("fancyzhx/ag_news", "text", "label")
    ),
    KnownTask(
        "trec", (_QUESTION,), "TREC coarse answer types",
        HubSource("CogComp/trec", "text", "coarse_label", revision=CONVERTED),
    ),
    KnownTask(
        "emo", (_DIALOGUE,), "EmoContext dialogue emotions",
        HubSource("SemEvalWorkshop/emo", "text", "label", revision=CONVERTED),
    ),
)  # fmt: skip
