"""Operations of a loop without any network: callbacks and timers."""

from headrace.bench.model import Case, Endpoint, Scenario


def checks_itself(endpoint: Endpoint) -> None:
    """The program fails by itself when a callback is lost."""


CALL_SOON = Scenario(
    name="call-soon",
    summary="callbacks by call_soon, in batches of 10,000",
    workloads={"loop.program": ("self_timed.py", "call-soon")},
    cases=(Case(name="10000", check=checks_itself, url="", connections=0),),
    baseline="uvloop",
    transport="none",
    driver="self",
    unit="callback",
)

TIMERS = Scenario(
    name="timers",
    summary="timers by call_later, nine of ten cancelled, in batches of 10,000",
    workloads={"loop.program": ("self_timed.py", "timers")},
    cases=(Case(name="90 % cancelled", check=checks_itself, url="", connections=0),),
    baseline="uvloop",
    transport="none",
    driver="self",
    unit="timer",
)
