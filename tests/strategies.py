"""Random values of the library's types, for hypothesis."""

from hypothesis import strategies as st

from carina_dra.quantity import Format, Quantity

quantities = st.builds(
    Quantity, st.integers(min_value=-(10**30), max_value=10**30), st.sampled_from(Format)
)
