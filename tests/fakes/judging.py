"""A `Compute` that can be asked how much work it was given."""

from extender.verbs.reuse import Arrays
from scoring.candidates import Candidates, PodRequest
from scoring.feasibility import judge


class Judging:
    """Judges candidates, and remembers how many it was given."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def __call__(self, candidates: Candidates, pod_request: PodRequest) -> Arrays:
        self.counts.append(len(candidates.known))
        result = judge(candidates, pod_request, is_enforcing=True)
        return result.verdicts, result.mismatched
