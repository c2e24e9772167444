"""`FilterAnswer`: what a filter call is answered, in the form that was sent."""

from dataclasses import dataclass

import numpy as np

from extender.verbs.call import VerbCall
from extender.wire import answers
from extender.wire import filter as wire
from scoring.feasibility import Feasibility
from scoring.snapshot import IndexArray


@dataclass(frozen=True, slots=True, eq=False)
class FilterAnswer:
    """The answer to a filter call.

    Attributes
    ----------
    data : bytes
    places : index array
        Places of the candidates that are answered.
    expected_prioritize_body : bytes or None
        The prioritize call about them, as kube-scheduler writes it; None where the
        filter call was not one of kube-scheduler's, or had whole objects.
    """

    data: bytes
    places: IndexArray
    expected_prioritize_body: bytes | None


def encode_filter(
    body: bytes,
    args: wire.ExtenderArgs,
    verb_call: VerbCall,
    result: Feasibility,
    shortlist: IndexArray | None,
) -> FilterAnswer:
    """Return the answer to the filter call `body`; `shortlist` from `shortlisted`."""
    verdicts = result.verdicts
    is_whole = shortlist is None and not verdicts.any()
    if is_whole and args.names_at and verb_call.names is args.names:
        # PERF: all names pass, so the request's own list is the answer's, and the
        # prioritize call that follows has the same bytes; bench/extender/http.py
        places = np.arange(len(verdicts), dtype=np.intp)
        data = answers.encode_filter_result(
            body[args.names_at : -1], answers.NO_REFUSALS, has_objects=False
        )
        return FilterAnswer(data, places, body)
    places = (verdicts == 0).nonzero()[0] if shortlist is None else shortlist
    refused = answers.NO_REFUSALS
    # What a shortlist leaves out has no reason, so reasons would not be complete.
    if shortlist is None or not len(places):
        refused = answers.encode_refusals(verb_call.literals(), verdicts)
    if args.nodes is not None:
        objects = list(args.nodes.values())
        kept = answers.join_objects(objects[place] for place in places.tolist())
        data = answers.encode_filter_result(kept, refused, has_objects=True)
        return FilterAnswer(data, places, None)
    kept = answers.join_names(verb_call.literals(places))
    data = answers.encode_filter_result(kept, refused, has_objects=False)
    if not args.names_at:
        return FilterAnswer(data, places, None)
    return FilterAnswer(data, places, body[: args.names_at] + kept + b"}")
