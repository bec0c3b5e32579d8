"""What pods have of a GPU together."""

from hypothesis import given
from hypothesis import strategies as st

from carina_dra.sharing.message import WantedShare
from sharing.use import given_uses, mib, used_by_pods
from tests.unit.sharing.samples import process, share


def claims_and_pods(*shares: WantedShare) -> list[tuple[str, list[str], list[str]]]:
    return [
        (use.gpu, list(use.claims), [pod.name for pod in use.pods]) for use in given_uses(shares)
    ]


def test_a_claim_of_a_pod_is_a_use() -> None:
    assert claims_and_pods(share("a", "p"), share("b", "q")) == [
        ("GPU-0", ["a-uid"], ["p"]),
        ("GPU-0", ["b-uid"], ["q"]),
    ]


def test_a_claim_that_pods_share_is_a_use_of_them_together() -> None:
    (use,) = given_uses([share("a", "p", "q")])
    assert (use.memory_mib, [pod.name for pod in use.pods]) == (1000, ["p", "q"])


def test_claims_of_a_pod_on_a_gpu_are_summed() -> None:
    (use,) = given_uses([share("a", "p"), share("b", "p")])
    assert (use.claims, use.memory_mib, use.cores) == (("a-uid", "b-uid"), 2000, 20)


def test_pods_are_connected_over_others() -> None:
    shares = (share("a", "p", "q"), share("b", "q", "r"), share("c", "s"))
    assert claims_and_pods(*shares) == [
        ("GPU-0", ["a-uid", "b-uid"], ["p", "q", "r"]),
        ("GPU-0", ["c-uid"], ["s"]),
    ]


def test_on_another_gpu_they_are_another_use() -> None:
    assert claims_and_pods(share("a", "p"), share("a", "p", gpu="GPU-1")) == [
        ("GPU-0", ["a-uid"], ["p"]),
        ("GPU-1", ["a-uid"], ["p"]),
    ]


def test_a_claim_without_pods_is_a_use_of_nobody() -> None:
    assert claims_and_pods(share("a"), share("b")) == [
        ("GPU-0", ["a-uid"], []),
        ("GPU-0", ["b-uid"], []),
    ]


def test_two_shares_of_a_claim_on_a_gpu_are_summed() -> None:
    (use,) = given_uses([share("a"), share("a")])
    assert (use.claims, use.memory_mib) == (("a-uid",), 2000)


_SHARES = st.lists(
    st.builds(
        lambda claim, pods, gpu: share(claim, *pods, gpu=gpu),
        st.sampled_from("abcdef"),
        st.sets(st.sampled_from("pqrst"), max_size=3),
        st.sampled_from(["GPU-0", "GPU-1"]),
    ),
    max_size=12,
)


@given(_SHARES)
def test_all_shares_are_in_one_use_each_and_no_pod_is_in_two_of_a_gpu(
    shares: list[WantedShare],
) -> None:
    uses = given_uses(shares)
    assert sum(use.memory_mib for use in uses) == 1000 * len(shares)
    for names in (
        [(use.gpu, claim) for use in uses for claim in use.claims],
        [(use.gpu, pod.uid) for use in uses for pod in use.pods],
    ):
        assert len(names) == len(set(names))
    assert given_uses(reversed(shares)) == uses


def test_memory_of_a_pod_is_that_of_its_processes_rounded_up() -> None:
    (use,) = given_uses([share("a", "p", "q")])
    seen = used_by_pods(use, [process("p", 3), process("p", 4), process("other", 5)])
    assert [(pod.pod.name, pod.memory_mib, pod.processes) for pod in seen] == [
        ("p", 7, 2),
        ("q", 0, 0),
    ]
    assert mib(1) == 1


def test_a_pod_computes_what_its_processes_do_but_no_more_than_all() -> None:
    (use,) = given_uses([share("a", "p")])
    (some,) = used_by_pods(use, [process("p", 1, 30), process("p", 1, 20)])
    (all_,) = used_by_pods(use, [process("p", 1, 90), process("p", 1, 90)])
    (unknown,) = used_by_pods(use, [process("p", 1, None)])
    assert (some.sm_percent, all_.sm_percent, unknown.sm_percent) == (50, 100, None)
