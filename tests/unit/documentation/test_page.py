"""What is read of a page, and when what a command prints is what the page shows."""

import pytest

from tests.documented.page import PageCommand, PageFile, steps, unmarked

_PAGE = """\
Text.

```yaml title="a.yaml"
kind: Pod
```

```console
$ kubectl apply -f a.yaml
pod/a created
$ true
```

```
$ not run
```
"""


def test_the_files_and_commands_of_a_page_in_their_order() -> None:
    assert list(steps(_PAGE)) == [
        PageFile("a.yaml", "kind: Pod\n"),
        PageCommand("kubectl apply -f a.yaml", ("pod/a created",)),
        PageCommand("true", None),
    ]


def test_commands_that_nobody_runs() -> None:
    console = "```console\n$ kubectl get nodes\n```\n"
    indented = "  ```\n  $ carina why x\n  ```\n"
    page = f"```\nkubectl get pods\n```\n{console}{indented}"
    assert unmarked(page) == ["kubectl get pods", "$ carina why x"]


def test_a_console_that_begins_without_a_command_is_refused() -> None:
    with pytest.raises(ValueError, match="begins with a command"):
        list(steps("```console\noutput\n```\n"))


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (("a", "b"), "a\nb\n", True),
        (("a", "b"), "a  \nb", True),
        (("a", "b"), "a\n", False),
        (("a",), "a\nb\n", False),
        (("a", "..."), "a\nb\nc\n", True),
        (("...", "c"), "a\nb\nc\n", True),
        (("...", "c"), "a\nb\n", False),
        (("a.c",), "abc\n", False),
        (None, "anything\n", True),
    ],
)
def test_what_is_printed_is_compared_by_line(
    shown: tuple[str, ...] | None, printed: str, same: bool
) -> None:
    assert PageCommand("x", shown).prints(printed) is same
