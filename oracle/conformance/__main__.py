"""See the package: both servers' answers to every scenario, or to those whose names contain a text."""

from __future__ import annotations

import sys

import oracle.conformance.scenarios  # noqa: F401
from oracle.conformance.coordinators import wait_for_coordinators
from oracle.conformance.deliberate import is_deliberate
from oracle.conformance.normal_form import Address
from oracle.conformance.scenario import SCENARIOS, differences


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main(arguments: list[str]) -> int:
    if len(arguments) not in (2, 3):
        print("usage: python -m oracle.conformance KAFKA_HOST:PORT DURALOG_HOST:PORT [part of a scenario's name]")
        return 2
    kafka, duralog = map(_address, arguments[:2])
    for address in (kafka, duralog):
        wait_for_coordinators(address)
    unlike = 0
    for name, scenario in SCENARIOS.items():
        if len(arguments) == 3 and arguments[2] not in name:
            continue
        transcripts = [scenario.run(address).transcript for address in (kafka, duralog)]
        found = [each for each in differences(name, *transcripts) if not is_deliberate(each)]
        unlike += bool(found)
        print(f"{name}: {len(transcripts[0])} answers, {len(found)} differences")
        for each in found:
            print(f"  {each}")
    return int(unlike > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
