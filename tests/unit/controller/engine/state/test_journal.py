"""Changes are undone in the reverse of their order."""

from controller.engine.state.journal import Journal


def test_changes_are_undone_from_the_last_to_the_mark() -> None:
    journal, seen = Journal(), list[str]()
    journal.record(lambda: seen.append("before"))
    mark = journal.mark()
    journal.record(lambda: seen.append("first"))
    journal.record(lambda: seen.append("second"))
    journal.rollback(mark)
    assert seen == ["second", "first"]
    journal.rollback(0)
    assert seen == ["second", "first", "before"]


def test_an_entry_that_was_put_or_dropped_is_what_it_was() -> None:
    journal, mapping = Journal(), {"a": 1, "b": 2}
    mark = journal.mark()
    journal.put(mapping, "a", 10)
    journal.put(mapping, "c", 3)
    journal.drop(mapping, "b")
    assert mapping == {"a": 10, "c": 3}
    journal.rollback(mark)
    assert mapping == {"a": 1, "b": 2}


def test_what_is_forgotten_stays() -> None:
    journal, mapping = Journal(), dict[str, int]()
    journal.put(mapping, "a", 1)
    journal.forget()
    journal.rollback(0)
    assert mapping == {"a": 1}
