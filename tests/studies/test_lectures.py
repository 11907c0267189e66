"""The path of the lectures: its recipes ship, its topics exist, and every topic has its lecture."""

from __future__ import annotations

from seqwright.pipeline.shipped import shipped
from seqwright.studies.explain.catalog import TOPICS
from seqwright.studies.lectures import LECTURES


def test_lectures_name_shipped_recipes_and_all_topics() -> None:
    practices = [practice for lecture in LECTURES for practice in lecture.practice]
    assert {practice.recipe for practice in practices} <= shipped().keys()
    assert all(practice.seconds > 0 for practice in practices)
    assert {topic for lecture in LECTURES for topic in lecture.topics} == TOPICS.keys()
    assert all(lecture.change[0] in lecture.topics for lecture in LECTURES)
