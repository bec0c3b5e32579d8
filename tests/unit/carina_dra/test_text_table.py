"""Tables as text."""

from carina_dra.text_table import columns


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert list(columns(("GPU", "UUID"), [("0", "GPU-1"), ("1000", "")])) == [
        "GPU   UUID",
        "0     GPU-1",
        "1000",
    ]


def test_a_table_without_rows_has_its_headings() -> None:
    assert list(columns(("GPU", "UUID"), [])) == ["GPU  UUID"]
