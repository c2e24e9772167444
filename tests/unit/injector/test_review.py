"""Reading admission reviews, and writing their answers."""

import json
from typing import Any

import pytest

from injector.patch import encode_patch, json_patch
from injector.review import Answer, ReviewError, copy_of, decode_review, encode_answer
from tests.fakes.webhook import container, gpus, make_pod, make_review, make_webhook


def encoded(answer: Answer) -> dict[str, Any]:
    review = decode_review(json.dumps(make_review(None, uid="u")).encode())
    response: dict[str, Any] = json.loads(encode_answer(review, answer))["response"]
    return response


def review_without(*path: str, **changes: Any) -> bytes:
    review = {**make_review(None), **changes}
    parent = review
    for key in path[:-1]:
        parent = parent[key]
    if path:
        del parent[path[-1]]
    return json.dumps(review).encode()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"", "body: Input data was truncated", id="empty"),
        pytest.param(b"{", "body: Input data was truncated", id="cut off"),
        pytest.param(b"[]", "body: wanted an object, got []", id="a list"),
        pytest.param(b"null", "body: wanted an object, got None", id="null"),
        pytest.param(
            b'{"a":"\xff"}',
            "body: 'utf-8' codec can't decode byte 0xff in position 0: invalid start"
            " byte",
            id="not UTF-8",
        ),
        pytest.param(
            review_without("request"),
            "request: is missing",
            id="no request",
        ),
        pytest.param(
            review_without("request", "uid"),
            "request.uid: is missing",
            id="no UID",
        ),
        pytest.param(
            json.dumps({**make_review(None), "request": {"name": "p"}}).encode(),
            "request.uid: is missing; request.kind.kind: is missing;"
            " request.operation: is missing",
            id="nothing but a name",
        ),
        pytest.param(
            json.dumps({**make_review(None), "request": 3}).encode(),
            "request: wanted object, got int: 3",
            id="request is no object",
        ),
        pytest.param(
            review_without(apiVersion="v1", kind="Pod"),
            "apiVersion: wanted admission.k8s.io/v1 or admission.k8s.io/v1beta1, got"
            " 'v1'; kind: wanted AdmissionReview, got 'Pod'",
            id="another object",
        ),
        pytest.param(
            json.dumps(make_review(None, uid="")).encode(),
            "request.uid: is missing",
            id="empty UID",
        ),
        pytest.param(
            json.dumps(make_review(None, dryRun="yes", namespace=3)).encode(),
            "request.namespace: wanted str, got int: 3;"
            " request.dryRun: wanted bool | null, got str: 'yes'",
            id="wrong types, all of them",
        ),
    ],
)
def test_what_is_no_review_is_refused_with_its_path(body: bytes, message: str) -> None:
    with pytest.raises(ReviewError) as caught:
        decode_review(body)

    assert str(caught.value) == message


def test_a_bottomless_body_is_refused() -> None:
    with pytest.raises(ReviewError, match="body: maximum recursion depth"):
        decode_review(b"[" * 100_000)


def test_a_malformed_body_is_answered_400_naming_the_field() -> None:
    result = make_webhook().client.simulate_post("/mutate", body=b"{}")

    assert result.status_code == 400
    assert result.json["description"] == (
        "apiVersion: wanted admission.k8s.io/v1 or admission.k8s.io/v1beta1, got '';"
        " kind: wanted AdmissionReview, got ''; request: is missing"
    )


def test_a_pod_that_is_none_is_answered_400_with_all_faults() -> None:
    pod = make_pod(container("a", {"limits": 3}), gpu_type=None)
    pod["metadata"]["annotations"] = {"k": 3}

    result = make_webhook().client.simulate_post(
        "/mutate", body=json.dumps(make_review(pod))
    )

    assert result.status_code == 400
    description = result.json["description"]
    assert "request.object.spec.containers[0].resources.limits: " in description
    assert "request.object.metadata.annotations['k']: " in description


@pytest.mark.parametrize("pod", [3, "pod", [], True])
def test_an_object_that_is_no_mapping_is_answered_400(pod: Any) -> None:
    result = make_webhook().client.simulate_post(
        "/mutate", body=json.dumps(make_review(pod))
    )

    assert result.status_code == 400
    assert "request.object" in result.json["description"]


@pytest.mark.parametrize("depth", [200, 480, 900])
def test_a_deeply_nested_pod_is_answered_or_refused(depth: int) -> None:
    pod = make_pod(container("a", gpus(1)))
    nested: Any = {}
    for _ in range(depth):
        nested = {"x": nested}
    pod["spec"]["strange"] = nested

    result = make_webhook().client.simulate_post(
        "/mutate", body=json.dumps(make_review(pod))
    )

    assert result.status_code in {200, 400}
    if result.status_code == 400:
        assert "request.object: nested too deeply" in result.json["description"]


def test_documents_too_deep_to_compare_are_refused() -> None:
    nested: Any = {}
    for _ in range(2000):
        nested = {"x": nested}

    with pytest.raises(ReviewError, match=r"request.object: nested too deeply"):
        json_patch(nested, {"x": nested})


def test_an_answer_without_change_says_no_more_than_needed() -> None:
    assert encoded(Answer()) == {"uid": "u", "allowed": True}


def test_a_refusal_carries_code_and_message_and_no_patch() -> None:
    answer = Answer(is_allowed=False, patch=b"[]", status_code=403, message="why\nnot")

    assert encoded(answer) == {
        "uid": "u",
        "allowed": False,
        "status": {"code": 403, "message": "why not"},
    }


def test_a_patch_is_base64_and_named() -> None:
    assert encoded(Answer(patch=b"[]")) == {
        "uid": "u",
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": "W10=",
    }


def test_warnings_are_short_few_and_different() -> None:
    warnings = ["x" * 300, "same", "same", *(str(number) for number in range(20))]

    said = encoded(Answer(warnings=warnings))["warnings"]

    assert said[0] == "x" * 253 + "..."
    assert said[1:9] == ["same", "0", "1", "2", "3", "4", "5", "6"]
    assert said[9:] == ["13 more warnings left out"]


def test_audit_annotations_are_cut() -> None:
    audit = encoded(Answer(audit={"k": "x" * 5000}))["auditAnnotations"]

    assert len(audit["k"]) == 4096


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        pytest.param({"a": 1}, {"a": 1}, [], id="nothing"),
        pytest.param(1, 2, [{"op": "replace", "path": "", "value": 2}], id="the whole"),
        pytest.param(
            {"a": {"b/c~": 1}, "d": 1},
            {"a": {"b/c~": None}, "e": 2},
            [
                {"op": "remove", "path": "/d"},
                {"op": "add", "path": "/e", "value": 2},
                {"op": "replace", "path": "/a/b~1c~0", "value": None},
            ],
            id="members of objects",
        ),
        pytest.param(
            [{"name": "a"}, {"name": "b", "x": 1}],
            [{"name": "a"}, {"name": "b", "x": 2}, {"name": "c"}],
            [
                {"op": "replace", "path": "/1/x", "value": 2},
                {"op": "add", "path": "/2", "value": {"name": "c"}},
            ],
            id="a change inside and an item more",
        ),
        pytest.param(
            {"l": [{"name": "a"}, {"name": "b"}]},
            {"l": [{"name": "b"}]},
            [{"op": "remove", "path": "/l/0"}],
            id="an item less",
        ),
        pytest.param(
            {"l": ["a", "b"]},
            {"l": ["c", "a", "b"]},
            [{"op": "add", "path": "/l/0", "value": "c"}],
            id="an item in front",
        ),
    ],
)
def test_a_patch_says_what_has_changed(
    before: Any, after: Any, operations: list[dict[str, Any]]
) -> None:
    assert json_patch(before, after) == operations


def test_what_the_fast_encoder_refuses_is_written_all_the_same() -> None:
    half = [{"op": "add", "path": "/a", "value": "\ud83d"}]

    assert encode_patch(half) == b'[{"op":"add","path":"/a","value":"\\ud83d"}]'
    assert encode_patch([]) == b""


def test_a_copy_is_equal_and_its_own() -> None:
    for value in ("x", 2**70, "\ud83d", 1.5, None):
        tree = {"a": [value]}

        copied = copy_of(tree)

        assert copied == tree
        assert copied["a"] is not tree["a"]
