"""The rule file: what is read, and what is refused with its path."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from injector.rules.conflicts import list_fallback_gaps, list_tiny_amounts
from injector.rules.file import RulesError, load_rules, parse_rules
from injector.rules.rules import RuleBook, Rules
from scoring.quantity import shorten
from tests.defaults import RULE_CONTEXT
from tests.fakes.webhook import AMD, C1, GPU, TRIGGER

RULE = "resourceMap.V100.nvidia.com/gpu"


def file_with(*resources: str, gpu: str = GPU, annotations: str = "{}") -> str:
    listed = ", ".join(resources)
    return (
        f'{{"resourceMap": {{"V100": {{"{gpu}": {{"resourceList": [{listed}],'
        f' "annotations": {annotations}}}}}}}}}'
    )


def faults_of(text: str, *, is_yaml: bool = False) -> list[str]:
    with pytest.raises(RulesError) as caught:
        parse_rules(text, "rules", RULE_CONTEXT, is_yaml=is_yaml)
    assert str(caught.value).startswith(f"rules: {len(caught.value.faults)} fault(s)\n")
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(
            file_with('{"name": "memory", "coefficient": 8, "unit": "GB"}'),
            f"{RULE}.resourceList[0].unit: wanted a suffix such as m, Mi, Gi or none,"
            " got 'GB'",
            id="unit GB",
        ),
        pytest.param(
            file_with('{"name": "memory", "coefficient": 8, "unit": "K"}'),
            f"{RULE}.resourceList[0].unit: wanted a suffix such as m, Mi, Gi or none,"
            " got 'K'",
            id="unit K",
        ),
        pytest.param(
            file_with('{"name": "memory", "coefficient": 8, "unit": "0Gi"}'),
            f"{RULE}.resourceList[0].unit: wanted a suffix such as m, Mi, Gi or none,"
            " got '0Gi'",
            id="a digit in the unit",
        ),
        pytest.param(
            file_with('{"name": "cpu", "coefficient": -1}'),
            f"{RULE}.resourceList[0].coefficient: wanted a number above 0, got -1",
            id="negative coefficient",
        ),
        pytest.param(
            file_with('{"name": "cpu", "coefficient": 0.0}'),
            f"{RULE}.resourceList[0].coefficient: wanted a number above 0, got 0.0",
            id="coefficient zero",
        ),
        pytest.param(
            file_with('{"name": "cpu", "unit": "m"}'),
            f"{RULE}.resourceList[0].coefficient: is missing",
            id="no coefficient",
        ),
        pytest.param(
            file_with('{"name": "cpu", "coefficient": "4"}'),
            f"{RULE}.resourceList[0].coefficient: wanted a decimal number, got '4'",
            id="coefficient as text",
        ),
        pytest.param(
            file_with('{"name": "cpu", "coefficient": Infinity}'),
            f"{RULE}.resourceList[0].coefficient: wanted a decimal number,"
            " got infinity",
            id="endless coefficient",
        ),
        pytest.param(
            file_with('{"name": "cpu", "coefficient": true}'),
            f"{RULE}.resourceList[0].coefficient: wanted a decimal number, got true",
            id="coefficient true",
        ),
        pytest.param(
            file_with('{"name": "memory", "coefficient": 1e30}'),
            f"{RULE}.resourceList[0].coefficient: is more memory than Kubernetes can"
            " count",
            id="more than can be counted",
        ),
        pytest.param(
            file_with('{"name": "cpu", "coefficient": 0.5, "unit": "m"}'),
            f"{RULE}.resourceList[0].coefficient: gives one GPU less than 1m of cpu",
            id="less than a millicore",
        ),
        pytest.param(
            file_with('{"name": "memory", "coefficient": 1e-9, "unit": "Mi"}'),
            f"{RULE}.resourceList[0].coefficient: gives one GPU less than 1 byte of"
            " memory",
            id="less than a byte",
        ),
        pytest.param(
            file_with(gpu="cpu"),
            "resourceMap.V100.cpu: wanted the name of an extended resource such as"
            " nvidia.com/gpu, got 'cpu'",
            id="cpu as GPU resource",
        ),
        pytest.param(
            file_with(
                '{"name": "cpu", "coefficient": 1}', '{"name": "cpu", "coefficient": 2}'
            ),
            f"{RULE}.resourceList[1].name: 'cpu' is listed twice",
            id="resource twice",
        ),
        pytest.param(
            file_with('{"name": "x.com/y", "coefficient": 1, "unit": "m"}'),
            f"{RULE}.resourceList[0].unit: 'x.com/y' comes in whole pieces,"
            " got unit 'm'",
            id="thousandths of an extended resource",
        ),
        pytest.param(
            file_with(annotations=f'{{"{TRIGGER}": "T4"}}'),
            f"{RULE}.annotations.{TRIGGER}: a rule must not change what it was found"
            " by",
            id="the trigger as annotation",
        ),
        pytest.param(
            file_with('{"name": "cpu", "coefficient": 1, "ratio": 2}'),
            f"{RULE}.resourceList[0].ratio: unknown field",
            id="unknown field of a resource",
        ),
        pytest.param(
            '{"resourcesMap": {}}', "resourcesMap: unknown field", id="unknown field"
        ),
        pytest.param(
            file_with(f'{{"name": "{GPU}", "coefficient": 1}}'),
            f"{RULE}.resourceList[0].name: '{GPU}' is a GPU resource of this type",
            id="its own GPU resource",
        ),
        pytest.param(
            file_with('{"name": "pods", "coefficient": 1}'),
            f"{RULE}.resourceList[0].name: wanted cpu, memory, ephemeral-storage or an"
            " extended resource, got 'pods'",
            id="no resource of a container",
        ),
        pytest.param(
            file_with('{"name": "x.kubernetes.io/y", "coefficient": 1}'),
            f"{RULE}.resourceList[0].name: wanted cpu, memory, ephemeral-storage or an"
            " extended resource, got 'x.kubernetes.io/y'",
            id="a name that Kubernetes keeps",
        ),
        pytest.param(
            file_with(
                '{"name": "hugepages-2Mi", "coefficient": 3, "unit": "Mi"}',
                '{"name": "cpu", "coefficient": 1}',
            ),
            f"{RULE}.resourceList[0].coefficient: gives one GPU no whole number of"
            " hugepages-2Mi",
            id="a page and a half",
        ),
        pytest.param(
            file_with('{"name": "hugepages-large", "coefficient": 1, "unit": "Gi"}'),
            f"{RULE}.resourceList[0].name: wanted cpu, memory, ephemeral-storage or an"
            " extended resource, got 'hugepages-large'",
            id="huge pages of no size",
        ),
        pytest.param(
            file_with('{"name": "hugepages-2500m", "coefficient": 1, "unit": "Gi"}'),
            f"{RULE}.resourceList[0].name: wanted cpu, memory, ephemeral-storage or an"
            " extended resource, got 'hugepages-2500m'",
            id="huge pages of a broken size",
        ),
        pytest.param(
            file_with('{"coefficient": 1}'),
            f"{RULE}.resourceList[0].name: wanted cpu, memory, ephemeral-storage or an"
            " extended resource, got none",
            id="no name",
        ),
        pytest.param(
            file_with('{"name": "cpu", "coefficient": 1, "value": "4"}'),
            f"{RULE}.resourceList[0].value: has never had an effect; use coefficient",
            id="a value",
        ),
        pytest.param(
            file_with("3"),
            f"{RULE}.resourceList[0]: wanted a mapping, got 3",
            id="a number for a resource",
        ),
        pytest.param(
            file_with(annotations='{"k": 3}'),
            f"{RULE}.annotations.k: wanted text, got 3",
            id="a number for text",
        ),
        pytest.param(
            file_with(annotations='{"a b": ""}'),
            f"{RULE}.annotations.a b: wanted an annotation key, got 'a b'",
            id="a space in a key",
        ),
        pytest.param(
            file_with(annotations='{"a/b/c": ""}'),
            f"{RULE}.annotations.a/b/c: wanted an annotation key, got 'a/b/c'",
            id="two slashes in a key",
        ),
        pytest.param(
            file_with(annotations='{"example.org/-k": ""}'),
            f"{RULE}.annotations.example.org/-k: wanted an annotation key, got"
            " 'example.org/-k'",
            id="a key that begins with a dash",
        ),
        pytest.param(
            '{"resourceMap": {"V100": {}, "V100": {}}}',
            "resourceMap.V100: comes twice",
            id="a type twice",
        ),
        pytest.param(
            '{"resourceMap": {" ": {}}}',
            "resourceMap. : wanted a GPU type, got ' '",
            id="a blank type",
        ),
        pytest.param(
            '{"resourceMap": {"V100": {"nvidia.com/gpu": {"resourceList": {}}}}}',
            f"{RULE}.resourceList: wanted a list, got a mapping",
            id="a mapping for a list",
        ),
        pytest.param(
            '{"namespaceWhiteList": ["Team_A"]}',
            "namespaceWhiteList[0]: wanted the name of a namespace, got 'Team_A'",
            id="no name of a namespace",
        ),
        pytest.param(
            '{"namespaceResourceMap": {"": {}}}',
            "namespaceResourceMap.: wanted the name of a namespace, got ''",
            id="empty namespace",
        ),
        pytest.param("[]", "file: wanted a mapping, got a list", id="a list"),
        pytest.param("null", "file: wanted a mapping, got nothing", id="nothing"),
        pytest.param(
            "{",
            "file: not JSON: Expecting property name enclosed in double quotes: line 1"
            " column 2 (char 1)",
            id="not JSON",
        ),
    ],
)
def test_one_fault_is_named_with_its_path(text: str, fault: str) -> None:
    assert faults_of(text) == [fault]


REFUSED_NAMES = [
    pytest.param("a..b/x", id="an empty part"),
    pytest.param("a-.b/x", id="a part that ends with a dash"),
    pytest.param("a.-b/x", id="a part that begins with a dash"),
    pytest.param(f"{'a' * 250}/x", id="a domain of 250, too long for a quota"),
    pytest.param(f"{'a' * 245}/x", id="a domain of 245"),
    pytest.param("A.b/x", id="a capital"),
    pytest.param("a.b./x", id="a dot at the end"),
    pytest.param("a.b/", id="no name"),
    pytest.param("a.b/x/y", id="two names"),
    pytest.param(f"a.b/{'x' * 64}", id="a name of 64"),
    pytest.param("a.b/x-", id="a name that ends with a dash"),
    pytest.param("requests.a.b/x", id="a name of a quota"),
    pytest.param("kubernetes.io/x", id="a name that Kubernetes keeps"),
    pytest.param("hugepages-a.b/x", id="huge pages of no size"),
]


@pytest.mark.parametrize("name", REFUSED_NAMES)
def test_a_resource_that_kubernetes_refuses_is_a_fault(name: str) -> None:
    named = file_with(f'{{"name": "{name}", "coefficient": 1}}')
    path = f"{RULE}.resourceList[0].name"
    wanted = "wanted cpu, memory, ephemeral-storage or an extended resource"
    shown = shorten(name)

    assert faults_of(named) == [f"{path}: {wanted}, got {shown}"]
    assert faults_of(file_with(gpu=name)) == [
        (
            f"resourceMap.V100.{name}: wanted the name of an extended resource such as"
            f" nvidia.com/gpu, got {shown}"
        )
    ]


def test_the_longest_names_that_kubernetes_takes_are_taken() -> None:
    name = f"{'a' * 244}/{'x' * 63}"
    text = file_with(f'{{"name": "{name}", "coefficient": 1}}')

    (rule,) = parse_rules(text, "rules", RULE_CONTEXT).of_type("any", "V100").values()

    assert rule.resources[0].name == name


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("a..b/c", id="an empty part"),
        pytest.param("a/b~c", id="a tilde"),
        pytest.param("a-.b/c", id="a part that ends with a dash"),
        pytest.param(f"{'a' * 254}/c", id="a domain of 254"),
        pytest.param("c" * 64, id="a name of 64"),
        pytest.param("", id="nothing"),
        pytest.param("a/", id="no name"),
        pytest.param("/c", id="no domain"),
        pytest.param("c.", id="a dot at the end"),
    ],
)
def test_an_annotation_key_that_kubernetes_refuses_is_a_fault(key: str) -> None:
    text = file_with(annotations=json.dumps({key: ""}))

    assert faults_of(text) == [
        f"{RULE}.annotations.{key}: wanted an annotation key, got {shorten(key)}"
    ]


def test_an_annotation_key_may_have_capitals_as_for_kubernetes() -> None:
    text = file_with(annotations='{"Example.com/Key": ""}')

    (rule,) = parse_rules(text, "rules", RULE_CONTEXT).of_type("any", "V100").values()

    assert rule.annotations == {"Example.com/Key": ""}


@pytest.mark.parametrize(
    ("annotations", "path", "message"),
    [
        pytest.param(
            {"k": "x" * 270_000},
            "",
            "wanted at most 262144 bytes of keys and values, got 270001",
            id="one value that is too long",
        ),
        pytest.param(
            {"k": "é" * 70_000, "l": "é" * 70_000},
            "",
            "wanted at most 262144 bytes of keys and values, got 280002",
            id="values that are too long together, in bytes",
        ),
        pytest.param(
            {"k": "a\ud800"},
            ".k",
            "wanted UTF-8, got 'a\\ud800'",
            id="half of a surrogate pair",
        ),
        pytest.param(
            {"controller.kubernetes.io/pod-deletion-cost": "cheap"},
            ".controller.kubernetes.io/pod-deletion-cost",
            "wanted a whole number of 32 bits, got 'cheap'",
            id="no number for a cost",
        ),
        pytest.param(
            {"controller.kubernetes.io/pod-deletion-cost": "+10"},
            ".controller.kubernetes.io/pod-deletion-cost",
            "wanted a whole number of 32 bits, got '+10'",
            id="a sign before a cost",
        ),
        pytest.param(
            {"controller.kubernetes.io/pod-deletion-cost": "2147483648"},
            ".controller.kubernetes.io/pod-deletion-cost",
            "wanted a whole number of 32 bits, got '2147483648'",
            id="a cost of 33 bits",
        ),
        pytest.param(
            {"container.apparmor.security.beta.kubernetes.io/main": "unconfined"},
            ".container.apparmor.security.beta.kubernetes.io/main",
            "the API server reads it and refuses pods by it; use fields of the pod",
            id="a profile of a container that a pod may not have",
        ),
        pytest.param(
            {"scheduler.alpha.kubernetes.io/tolerations": "[]"},
            ".scheduler.alpha.kubernetes.io/tolerations",
            "the API server reads it and refuses pods by it; use fields of the pod",
            id="tolerations of old",
        ),
    ],
)
def test_an_annotation_that_makes_kubernetes_refuse_pods_is_a_fault(
    annotations: dict[str, str], path: str, message: str
) -> None:
    text = file_with(annotations=json.dumps(annotations))

    assert faults_of(text) == [f"{RULE}.annotations{path}: {message}"]


def test_a_key_that_is_no_text_is_a_fault() -> None:
    assert faults_of(r'{"resourceMap": {"V\ud800": {}}}') == [
        r"resourceMap.V\ud800: wanted a key in UTF-8, got 'V\ud800'"
    ]


@pytest.mark.parametrize(
    ("others", "is_fault"),
    [
        pytest.param((), True, id="alone"),
        pytest.param(("ephemeral-storage",), True, id="with storage"),
        pytest.param(("x.com/y",), True, id="with an extended resource"),
        pytest.param(("hugepages-1Gi",), True, id="with others"),
        pytest.param(("cpu",), False, id="with cpu"),
        pytest.param(("memory", "x.com/y"), False, id="with memory"),
    ],
)
def test_huge_pages_need_cpu_or_memory_in_their_rule(
    others: tuple[str, ...], is_fault: bool
) -> None:
    names = ("hugepages-2Mi", *others)
    text = file_with(
        *(f'{{"name": "{name}", "coefficient": 1, "unit": "Gi"}}' for name in names)
    )
    expected = [
        f"{RULE}.resourceList[{index}].name: {name!r} needs cpu or memory in the same"
        " rule"
        for index, name in enumerate(names)
        if name.startswith("hugepages-")
    ]

    if is_fault:
        assert faults_of(text) == expected
    else:
        assert list(parse_rules(text, "rules", RULE_CONTEXT).entries())


def test_a_namespace_rule_may_not_inject_a_gpu_resource_of_the_default() -> None:
    rules = {
        **C1,
        "namespaceResourceMap": {
            "ml": {"V100": {GPU: {"resourceList": [{"name": AMD, "coefficient": 1}]}}}
        },
    }

    assert faults_of(json.dumps(rules)) == [
        (
            "namespaceResourceMap.ml.V100.nvidia.com/gpu.resourceList[0].name:"
            " 'amd.com/gpu' is a GPU resource of this type, see"
            " resourceMap.V100.amd.com/gpu"
        )
    ]


def test_a_default_rule_may_not_inject_what_a_namespace_has_a_rule_for() -> None:
    cores = {"resourceList": [{"name": "cpu", "coefficient": 1}]}
    rules = {
        "resourceMap": {
            "V100": {GPU: {"resourceList": [{"name": "x.com/vgpu", "coefficient": 1}]}}
        },
        "namespaceResourceMap": {
            "ml": {"V100": {"x.com/vgpu": cores}},
            # Here the default rule is not in force.
            "own": {"V100": {"x.com/vgpu": cores, GPU: cores}},
            "other": {"T4": {"x.com/vgpu": cores}},
        },
    }

    assert faults_of(json.dumps(rules)) == [
        (
            "resourceMap.V100.nvidia.com/gpu.resourceList[0].name: 'x.com/vgpu' is a"
            " GPU resource of this type, see namespaceResourceMap.ml.V100.x.com/vgpu"
        )
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(
            file_with('{"name": "x.com/vgpu", "coefficient": 1}'),
            f"{RULE}.resourceList[0].name: 'x.com/vgpu' can fall back to another"
            " resource, see fallback.chains",
            id="a resource that falls",
        ),
        pytest.param(
            file_with(annotations='{"x.com/weighed": ""}'),
            f"{RULE}.annotations.x.com/weighed: a rule must not change what fallback"
            " goes by",
            id="an annotation of the fallback",
        ),
        pytest.param(
            file_with(annotations='{"kubernetes.io/limit-ranger": ""}'),
            f"{RULE}.annotations.kubernetes.io/limit-ranger: a rule must not set it:"
            " LimitRanger says in it what it filled in",
            id="the annotation of LimitRanger",
        ),
        pytest.param(
            file_with(annotations='{"gpu-extender.io/filled": ""}'),
            f"{RULE}.annotations.gpu-extender.io/filled: a rule must not set it:"
            " it says what a review has filled in",
            id="the annotation of what was filled in",
        ),
        pytest.param(
            file_with(annotations='{"kubernetes.io/config.mirror": ""}'),
            f"{RULE}.annotations.kubernetes.io/config.mirror: a rule must not set it:"
            " it would make the pod a mirror pod",
            id="the annotation of a mirror pod",
        ),
        pytest.param(
            file_with(annotations='{"gpu-extender.io/sharing": "yes"}'),
            f"{RULE}.annotations.gpu-extender.io/sharing: wanted 'allowed', got 'yes'",
            id="a demand that cannot be read",
        ),
    ],
)
def test_a_rule_leaves_alone_what_the_rest_of_the_webhook_goes_by(
    text: str, fault: str
) -> None:
    context = replace(
        RULE_CONTEXT,
        decisions=frozenset({"x.com/weighed"}),
        falling=frozenset({"x.com/vgpu"}),
    )

    with pytest.raises(RulesError) as caught:
        parse_rules(text, "rules", context=context)

    assert [str(found) for found in caught.value.faults] == [fault]


def test_all_faults_are_named_at_once() -> None:
    text = file_with(
        '{"name": "memory", "coefficient": 8, "unit": "GB"}',
        '{"name": "cpu", "coefficient": -1, "ratio": 1}',
        '{"name": "x.com/y", "unit": "m"}',
        annotations=f'{{"{TRIGGER}": ""}}',
    )

    assert [fault.partition(": ")[0] for fault in faults_of(text)] == [
        f"{RULE}.resourceList[0].unit",
        f"{RULE}.resourceList[1].ratio",
        f"{RULE}.resourceList[1].coefficient",
        f"{RULE}.resourceList[2].unit",
        f"{RULE}.resourceList[2].coefficient",
        f"{RULE}.annotations.{TRIGGER}",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(
            "resourceMap: {V100: {nvidia.com/gpu: {resourceList: [{name: cpu,"
            " coefficient: .inf}]}}}",
            f"{RULE}.resourceList[0].coefficient: wanted a decimal number, got .inf",
            id="endless",
        ),
        pytest.param(
            "resourceMap: {V100: {nvidia.com/gpu: {resourceList: [{name: cpu,"
            " coefficient: 1_000}]}}}",
            f"{RULE}.resourceList[0].coefficient: wanted a decimal number, got 1_000",
            id="underscore",
        ),
        pytest.param(
            "resourceMap: {V100: {nvidia.com/gpu: {annotations: {k: yes}}}}",
            f"{RULE}.annotations.k: wanted text, got true",
            id="a bare yes",
        ),
        pytest.param(
            "a: &a {b: *a}", "file: line 1: nested too deeply", id="an endless alias"
        ),
        pytest.param(
            "resourceMap:\n  <<: {}",
            "file: line 2: merge keys are not supported",
            id="merge key",
        ),
        pytest.param(
            "? [a]\n: 1", "file: line 1: a key must be text", id="list as key"
        ),
        pytest.param("", "file: wanted a mapping, got nothing", id="empty"),
    ],
)
def test_yaml_faults_are_named(text: str, fault: str) -> None:
    assert faults_of(text, is_yaml=True) == [fault]


def test_what_is_not_yaml_is_refused() -> None:
    (fault,) = faults_of("a: [", is_yaml=True)

    assert fault.startswith("file: not YAML: ")


def test_yaml_says_the_same_as_json(tmp_path: Path) -> None:
    in_json, in_yaml = tmp_path / "rules.conf", tmp_path / "rules.yaml"
    in_json.write_text(json.dumps(C1))
    in_yaml.write_text(
        """
resourceMap:
  V100:
    nvidia.com/gpu:
      resourceList:
        - {name: cpu, coefficient: 4000, unit: m}
        - {name: memory, coefficient: 8, unit: Gi}
      annotations: {tke.cloud.tencent.com/networks: tke-route-eni}
    amd.com/gpu:
      resourceList:
        - {name: cpu, coefficient: 1000, unit: m}
namespaceWhiteList: ~
"""
    )

    assert load_rules(in_yaml, RULE_CONTEXT) == load_rules(in_json, RULE_CONTEXT)


def test_numbers_are_read_from_the_text() -> None:
    text = file_with(
        '{"name": "cpu", "coefficient": 0.1}',
        '{"name": "memory", "coefficient": 2.357142857142857142857, "unit": "Gi"}',
        '{"name": "x.com/y", "coefficient": 1.5e1, "unit": ""}',
        '{"name": "ephemeral-storage", "coefficient": 8, "unit": "e9", "value": ""}',
        '{"name": "hugepages-2Mi", "coefficient": 4, "unit": "Mi"}',
    )

    (rule,) = parse_rules(text, "rules", RULE_CONTEXT).of_type("any", "V100").values()

    assert [item.per_gpu for item in rule.resources] == [
        Fraction(1, 10),
        Fraction("2.357142857142857142857") * 2**30,
        Fraction(15),
        Fraction(8 * 10**9),
        Fraction(4 * 2**20),
    ]
    assert [item.is_binary for item in rule.resources] == [
        False,
        True,
        False,
        False,
        True,
    ]


def test_a_type_may_look_like_a_number() -> None:
    text = "resourceMap: {4090: {nvidia.com/gpu: {}}}"

    rules = parse_rules(text, "rules", RULE_CONTEXT, is_yaml=True)

    assert list(rules.default) == ["4090"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{}", id="nothing in it"),
        pytest.param('{"resourceMap": null, "namespaceWhiteList": null}', id="nulls"),
    ],
)
def test_an_empty_rule_file_is_legal(text: str) -> None:
    assert parse_rules(text, "rules", RULE_CONTEXT) == Rules()


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=r"missing.json: 1 fault.*\n  file: "):
        load_rules(tmp_path / "missing.json", RULE_CONTEXT)


def test_another_trigger_frees_the_usual_one() -> None:
    text = file_with(annotations=f'{{"{TRIGGER}": "V100"}}')

    rules = parse_rules(
        text,
        "rules",
        context=replace(RULE_CONTEXT, trigger_annotation="example.com/type"),
    )

    assert rules.of_type("any", "V100")[GPU].annotations == {TRIGGER: "V100"}


def test_a_faulty_reload_keeps_the_rules_in_force() -> None:
    book = RuleBook(parse_rules(json.dumps(C1), "rules", RULE_CONTEXT))
    before: Any = book.current()

    with pytest.raises(RulesError):
        book.replace(parse_rules("{", "rules", RULE_CONTEXT))

    assert book.current() is before


def test_rules_that_a_fall_leaves_or_loses_by_are_listed() -> None:
    text = json.dumps(
        {
            "resourceMap": {
                "A100": {
                    "x.com/2g": {
                        "resourceList": [
                            {"name": "cpu", "coefficient": 3},
                            {"name": "memory", "coefficient": 6, "unit": "Gi"},
                        ]
                    },
                    "x.com/1g": {"resourceList": [{"name": "cpu", "coefficient": 2}]},
                },
                "L4": {"x.com/gpu": {"resourceList": []}},
            },
            "namespaceResourceMap": {
                "ml": {
                    "A100": {
                        "x.com/gpu": {
                            "resourceList": [
                                {"name": "cpu", "coefficient": 9},
                                {"name": "memory", "coefficient": 9, "unit": "Gi"},
                            ]
                        }
                    }
                }
            },
        }
    )
    rules = parse_rules(text, "rules", RULE_CONTEXT)

    found = list_fallback_gaps(rules, [("x.com/2g", "x.com/1g", "x.com/gpu")])

    path = "resourceMap.A100"
    missing = "which has no rule for this type"
    assert found == [
        (
            f"{path}.x.com/1g: 2 cpu per GPU is less than the 3 of x.com/2g, which"
            " falls to it"
        ),
        (
            f"{path}.x.com/1g: 0 memory per GPU is less than the 6Gi of x.com/2g, which"
            " falls to it"
        ),
        f"{path}.x.com/2g: falls to x.com/gpu, {missing}: that of x.com/2g applies",
        f"{path}.x.com/1g: falls to x.com/gpu, {missing}: that of x.com/1g applies",
    ]
    assert list_fallback_gaps(rules, []) == []


def test_a_smaller_slice_may_give_less_as_its_memory_is_less() -> None:
    text = json.dumps(
        {
            "resourceMap": {
                "A100": {
                    resource: {"resourceList": [{"name": "cpu", "coefficient": cpu}]}
                    for resource, cpu in (
                        ("nvidia.com/mig-3g.40gb", 6),
                        ("nvidia.com/mig-2g.20gb", 3),
                        ("nvidia.com/mig-1g.10gb", 1),
                        ("nvidia.com/gpu", 5),
                    )
                }
            }
        }
    )
    rules = parse_rules(text, "rules", RULE_CONTEXT)
    chain = [f"nvidia.com/mig-{name}" for name in ("3g.40gb", "2g.20gb", "1g.10gb")]

    found = list_fallback_gaps(rules, [(*chain, "nvidia.com/gpu")])

    small, whole = "resourceMap.A100.nvidia.com/mig-1g.10gb", "nvidia.com/gpu"
    assert found == [
        (
            f"{small}: 1 cpu per GPU is less in proportion to its memory than the 6 of"
            f" {chain[0]}, which falls to it"
        ),
        (
            f"resourceMap.A100.{whole}: 5 cpu per GPU is less than the 6 of {chain[0]},"
            " which falls to it"
        ),
        (
            f"{small}: 1 cpu per GPU is less in proportion to its memory than the 3 of"
            f" {chain[1]}, which falls to it"
        ),
    ]


def test_memory_without_its_unit_is_told() -> None:
    text = file_with(
        '{"name": "memory", "coefficient": 8}',
        '{"name": "ephemeral-storage", "coefficient": 8, "unit": "Gi"}',
    )

    assert list_tiny_amounts(parse_rules(text, "rules", RULE_CONTEXT)) == [
        f"{RULE}: 8 bytes of memory per GPU start no container; is the unit missing?"
    ]
