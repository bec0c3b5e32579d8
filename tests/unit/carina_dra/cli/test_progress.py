"""What a person sees of a long command, and programs do not."""

from io import StringIO

from carina_dra.cli.progress import progress


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def written(stream: StringIO, *times: float) -> str:
    clock = iter((0.0, *(at for at in times for _ in range(2))))
    last = [0.0]

    def now() -> float:
        last[0] = next(clock, last[0])
        return last[0]

    with progress(stream, now) as show:
        for at in times:
            show(f"at {at:g}")
    return stream.getvalue().replace("\r\x1b[K", "|")


def test_a_short_command_shows_nothing() -> None:
    assert written(Terminal(), 0.1, 0.9) == ""


def test_a_long_one_shows_where_it_is_and_erases_it_at_the_end() -> None:
    assert written(Terminal(), 1.0, 2.0) == "|at 1|at 2|"


def test_nothing_is_written_to_what_is_no_terminal() -> None:
    assert written(StringIO(), 1.0, 2.0) == ""
