"""What an answer to an admission review must be like, by the body alone."""

import base64
import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import jsonpatch

from scoring.quantity import QuantityError, exact_quantity
from tests.fuzz.contract import Answer, ContractError, check_error, must, read

SIDES: Final = ("requests", "limits")
MAX_COUNT: Final = 2**31


@dataclass(frozen=True, slots=True)
class ReviewTerms:
    """What the rules and chains say.

    Attributes
    ----------
    named : frozenset of str
        Resources that a rule names, as what it injects or as what it is found by.
    chained : frozenset of str
        Resources that can become one another.
    """

    named: frozenset[str]
    chained: frozenset[str]


def check_review(
    body: bytes, answer: Answer, terms: ReviewTerms
) -> dict[str, Any] | None:
    """Raise `ContractError` if the answer to a review breaks the contract.

    Returns the body's tree with the pod as it has become, None without a patch.
    """
    must(answer.status in (200, 400), f"status {answer.status}")
    must(answer.content_type == "application/json", answer.content_type)
    if answer.status == 400:
        check_error(answer.body)
        return None
    sent: dict[str, Any] = read(body)
    told = json.loads(answer.body)
    response = told["response"]
    must(told["kind"] == "AdmissionReview", "another kind")
    must(told["apiVersion"] == sent["apiVersion"], "another version")
    must(response["uid"] == sent["request"]["uid"], "another UID")
    must(response["allowed"] in (True, False), "no verdict")
    must(("patch" in response) == ("patchType" in response), "half a patch")
    if not response["allowed"]:
        must(response["status"]["code"] == 403, f"code {response['status']['code']}")
        must(response["status"]["message"], "no message")
        must("patch" not in response, "a patch of a refused pod")
        return None
    return check_patch(sent, response, terms) if "patch" in response else None


def check_patch(
    sent: dict[str, Any], response: dict[str, Any], terms: ReviewTerms
) -> dict[str, Any]:
    """The patch applies, and takes nothing away that no rule names."""
    operations = json.loads(base64.b64decode(response["patch"], validate=True))
    must(operations, "an empty patch")
    before = sent["request"]["object"]
    try:
        after = jsonpatch.apply_patch(copy.deepcopy(before), operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise ContractError(f"a patch that does not apply: {error}") from error
    must(after != before, "a patch that changes nothing")
    check_amounts(before, after, terms)
    return {**sent, "request": {**sent["request"], "object": after}}


def check_amounts(before: Any, after: Any, terms: ReviewTerms) -> None:
    """No container loses what no rule names; what falls back keeps its number."""
    touched = terms.named | terms.chained
    pairs = zip(containers(before), containers(after), strict=True)
    for old, new in pairs:
        for side in SIDES:
            asked, given = amounts_of(old, side), amounts_of(new, side)
            for resource, amount in asked.items():
                must(
                    resource in touched or given.get(resource) == amount,
                    f"{side} of {resource}: {amount!r} became {given.get(resource)!r}",
                )
        if is_legal(old, terms.chained):
            counts = [count_of(item, terms.chained) for item in (old, new)]
            must(counts[0] <= counts[1], f"{counts[0]} of a chain became {counts[1]}")


def is_legal(container: Any, resources: frozenset[str]) -> bool:
    """Say whether Kubernetes would take what a container asks of these.

    Of extended resources, requests and limits must be whole and equal.
    """
    requests, limits = (
        {name: amount for name, amount in found.items() if name in resources}
        for found in (amounts_of(container, side) for side in SIDES)
    )
    amounts = (number(amount) for amount in requests.values())
    return requests == limits and all(
        amount is not None and amount.denominator == 1 and amount < MAX_COUNT
        for amount in amounts
    )


def count_of(container: Any, resources: frozenset[str]) -> Fraction:
    """Return how much a container asks of these resources together."""
    requests = amounts_of(container, "requests")
    found = (number(requests[name]) for name in resources & requests.keys())
    return sum((amount for amount in found if amount), Fraction(0))


def number(amount: Any) -> Fraction | None:
    """Return an amount, None for what is no amount."""
    if isinstance(amount, bool):
        return None
    try:
        return exact_quantity(amount if isinstance(amount, str) else repr(amount))
    except QuantityError:
        return None


def containers(pod: Any) -> Iterator[Any]:
    """Yield the containers of all kinds, as far as there are any."""
    spec = pod.get("spec") if isinstance(pod, dict) else None
    for key in ("containers", "initContainers"):
        yield from (spec or {}).get(key) or ()


def amounts_of(container: Any, side: str) -> dict[str, Any]:
    """Return the requests or limits of a container."""
    found: dict[str, Any] = (container.get("resources") or {}).get(side) or {}
    return found
