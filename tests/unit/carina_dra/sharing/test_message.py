"""The messages between the kubelet plugin and carina-sharing."""

import pytest

from carina_dra.sharing.message import MessageError, SharingReport


@pytest.mark.parametrize("time", ["1e400", "NaN", "Infinity", "-1", "1e300", "253402300800"])
def test_a_time_that_no_date_has_is_no_report(time: str) -> None:
    use = (
        '{"gpu": "GPU-0", "claims": ["claim"], "given_mib": 1, "given_cores": 1, "used_mib": 9,'
        f'"pods": [], "idle_since": null, "exceeded_since": {time}}}'
    )
    line = f'{{"version": 1, "generation": 1, "time": 1, "uses": [{use}]}}'
    with pytest.raises(MessageError, match="exceeded_since"):
        SharingReport.parse(line.encode())
