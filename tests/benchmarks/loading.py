"""Measures how long a fleet takes to load, and its memory."""

import json

from carina_dra.kube.collector_pause import collector_paused
from tests.benchmarks.fleet import Kind, Page, key_of, pages
from tests.benchmarks.measurement import Measurement
from tests.benchmarks.memory import resident_kib
from tests.benchmarks.stopwatch import took_ms
from tests.benchmarks.subject import Subject


def load(subject: Subject) -> None:
    """Loads the fleet: the time from parsed JSON to the first decision, and the memory it takes."""
    scenario, carina, upstream = subject.scenario, subject.carina, subject.upstream
    before, devices = resident_kib(), 0
    with collector_paused(freeze=True):  # as a process reads its first lists
        for page in pages(scenario.make(subject.nodes)):
            text = json.dumps(page.objects)
            # Objects of a fleet share parts; those that a client receives do not.
            carina.add(Page(page.kind, json.loads(text)))
            if upstream is not None:
                upstream.add(page, text)
            if page.kind is Kind.SLICES:
                devices += sum(len(each["spec"].get("devices", ())) for each in page.objects)
            elif page.kind is Kind.IN_USE:
                subject.held += [key_of(claim) for claim in page.objects]
    first_ms = took_ms(lambda: carina.place(scenario.one(0)))
    go = "" if upstream is None else f"; Go decodes the objects in {upstream.decode_s:.1f} s"
    subject.hear(
        Measurement(
            subject.name,
            "load, from parsed JSON to the first decision",
            carina.load_s + first_ms / 1000,
            "s",
            goal=scenario.goals.load_s,
            note=f"{devices} devices, {len(subject.held)} claims{go}",
        )
    )
    kib = (resident_kib() - before) / max(1, devices)
    subject.hear(
        Measurement(subject.name, "memory of a device, with its slice and claim", kib, "KiB")
    )
