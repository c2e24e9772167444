import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from extender.tracking.last_answers import LastAnswers
from service.doctor.callers_view import SentObjects, with_sent
from service.doctor.page import Page, Unchecked
from service.doctor.scheduler import (
    SchedulerConfigError,
    check_calls,
    check_sample,
    check_scheduler_config,
    find_sample,
    read_scheduler_config,
)
from service.runtime import build_verb_options
from tests.builders import Tree, make_node, make_pod, make_snapshot
from tests.doctor import (
    NOW,
    make_facts,
    make_scheduler_tree,
    make_settings,
    read_scheduler,
    whats,
)
from tests.fakes.outcomes import make_filter_outcome, make_request

RESOURCES = ("amd.com/gpu", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb")


def found_in(tree: Any, **facts: Any) -> list[str]:
    known = make_facts(managed_resources=RESOURCES, **facts)
    return whats(check_scheduler_config(known, read_scheduler(tree), "s.yaml"))


def changed(**fields: Any) -> Any:
    """Return the printed configuration with fields of its extender replaced."""
    tree = make_scheduler_tree(RESOURCES)
    tree["extenders"][0].update(fields)
    return tree


def managed(*names: str, ignored: bool = False) -> list[dict[str, Any]]:
    return [{"name": name, "ignoredByScheduler": ignored} for name in names]


def test_the_configuration_that_is_printed_has_no_fault() -> None:
    assert found_in(changed()) == []


def test_stale_managed_resources_are_told_with_the_file() -> None:
    tree = changed(managedResources=managed("nvidia.com/gpu", "amd.com/gpu"))

    assert found_in(tree) == [
        (
            "managedResources in s.yaml lack nvidia.com/mig-1g.10gb, which nodes offer"
            " or the configuration names."
        )
    ]


def test_an_http_timeout_below_the_deadline_is_told_with_both() -> None:
    assert found_in(changed(httpTimeout="500ms")) == [
        "httpTimeout is 500ms in s.yaml, and extender.deadlineMilliseconds is 800."
    ]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        pytest.param({"httpTimeout": "800ms"}, "httpTimeout is 800ms", id="equal"),
        pytest.param({"httpTimeout": "0.8s"}, "httpTimeout is 0.8s", id="in parts"),
        pytest.param({"httpTimeout": "801ms"}, None, id="just above"),
        pytest.param({"httpTimeout": "1m0s"}, None, id="a minute"),
        pytest.param({"httpTimeout": ""}, None, id="five seconds by default"),
        pytest.param({"httpTimeout": "soon"}, None, id="the scheduler would not start"),
        pytest.param({"ignorable": True}, "ignorable is true", id="ignorable"),
        pytest.param(
            {"nodeCacheCapable": False}, "nodeCacheCapable is false", id="whole nodes"
        ),
        pytest.param(
            {"managedResources": managed(*RESOURCES, ignored=True)},
            "ignoredByScheduler is true in s.yaml for amd.com/gpu, nvidia.com/gpu, nv",
            id="ignored",
        ),
        pytest.param({"managedResources": []}, None, id="every pod is sent"),
        pytest.param(
            {"managedResources": managed(*RESOURCES, "x.y/z")}, None, id="one too many"
        ),
        pytest.param(
            {"urlPrefix": "http://127.0.0.1:9999/scheduler"},
            "No extender in s.yaml calls port 8888, where the verbs are served; it"
            " calls http://127.0.0.1:9999/scheduler.",
            id="another port",
        ),
        pytest.param(
            {"urlPrefix": "http://127.0.0.1:8888"},
            "In s.yaml, urlPrefix and verb lead elsewhere: filterVerb (/filter, wanted",
            id="no path",
        ),
        pytest.param(
            {"urlPrefix": "http://127.0.0.1:8888/scheduler/"}, None, id="final slash"
        ),
        pytest.param(
            {"preemptVerb": ""},
            "In s.yaml, urlPrefix and verb lead elsewhere: preemptVerb (none, wanted",
            id="no preemption",
        ),
        pytest.param(
            {"urlPrefix": "http://a:port/x"}, "No extender in s.yaml", id="no URL"
        ),
    ],
)
def test_each_difference_is_told_in_a_sentence(
    fields: dict[str, Any], what: str | None
) -> None:
    found = found_in(changed(**fields))

    assert len(found) == (what is not None), found
    assert what is None or found[0].startswith(what)


def test_without_any_extender_that_is_said() -> None:
    assert found_in({"kind": "KubeSchedulerConfiguration"}) == [
        (
            "No extender in s.yaml calls port 8888, where the verbs are served; it"
            " calls none at all."
        )
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(None, "no such file", id="no file"),
        pytest.param("", "Expected `object`, got `null`", id="empty"),
        pytest.param("[]", "Expected `object`, got `array`", id="a list"),
        pytest.param("a: [", "while parsing", id="no YAML"),
        pytest.param("kind: Pod", "wanted the kind KubeSchedulerConf", id="a Pod"),
        pytest.param("extenders: []", "missing required field `kind`", id="no kind"),
        pytest.param("kind: a\nextenders: x", "$.extenders", id="no extenders"),
        pytest.param("kind: a\nkind: b", "kind", id="twice the same key"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(
    tmp_path: Path, text: str | None, fault: str
) -> None:
    path = tmp_path / "s.yaml"
    if text is not None:
        path.write_text(text)

    with pytest.raises(SchedulerConfigError) as caught:
        read_scheduler_config(path)

    assert str(caught.value).startswith(f"{path}: ")
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_read_as_kube_scheduler_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(changed()))

    config = read_scheduler_config(path)

    assert config == read_scheduler(changed())


def calls(leader: str | None = "", **facts: Any) -> tuple[list[str], list[str]]:
    found = list(check_calls(make_facts(**facts), leader))
    unchecked = [item.why for item in found if isinstance(item, Unchecked)]
    return whats(found), unchecked


def test_an_extender_that_is_never_called_is_told() -> None:
    (what,), unchecked = calls(uncalled_bindings=3)

    assert what == (
        "kube-scheduler has bound 3 GPU pods since this process started, and has asked"
        " it about none of them."
    )
    assert unchecked == []


@pytest.mark.parametrize(
    ("leader", "is_told"),
    [
        pytest.param("host-1", True, id="the one beside us leads"),
        pytest.param("host-2", False, id="another leads"),
        pytest.param("", True, id="nobody says so"),
        pytest.param(None, True, id="we may not know"),
    ],
)
def test_a_replica_whose_scheduler_does_not_lead_is_called_by_nobody(
    leader: str | None, is_told: bool
) -> None:
    found, unchecked = calls(leader, uncalled_bindings=3, filter_calls=0)

    assert (len(found), len(unchecked)) == (is_told, not is_told)
    assert ("could not be read" in "".join(found)) is (leader is None)


@pytest.mark.parametrize(
    ("sections", "lease"),
    [
        pytest.param({}, "kube-system/kube-scheduler", id="the cluster's scheduler"),
        pytest.param({"injection": {"schedulerName": "gpus"}}, "", id="one of its own"),
        pytest.param(
            {
                "injection": {"schedulerName": "gpus"},
                "extender": {"schedulerLease": "gpu-extender/gpus"},
            },
            "gpu-extender/gpus",
            id="whose Lease is known",
        ),
    ],
)
def test_the_lease_of_another_scheduler_tells_nothing(
    sections: dict[str, Any], lease: str
) -> None:
    assert make_facts(make_settings(**sections)).scheduler_lease == lease


def test_a_resource_that_is_not_sent_is_told() -> None:
    found, unchecked = calls(
        called_bindings=9,
        filter_calls=9,
        uncalled_bindings=1,
        uncalled_resources=("nvidia.com/mig-3g.40gb",),
    )

    assert unchecked == []
    assert found == [
        (
            "kube-scheduler binds pods that ask nvidia.com/mig-3g.40gb and does not ask"
            " us about them."
        )
    ]


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        pytest.param({}, "no GPU pod has been placed since", id="nothing happened"),
        pytest.param({"source": "file"}, "the cluster comes from files", id="files"),
    ],
)
def test_without_pods_nothing_can_be_told(facts: dict[str, Any], why: str) -> None:
    found, unchecked = calls(**facts)

    assert found == []
    assert unchecked[0].startswith(why)


def test_calls_as_they_should_be_are_no_finding() -> None:
    facts: dict[str, Any] = {
        "called_bindings": 5,
        "filter_calls": 12,
        "uncalled_bindings": 1,
    }

    assert calls(**facts) == ([], [])
    assert calls(filter_calls=4) == ([], [])  # none of them placed yet


def judged_with(text: str, **sent: Any) -> Page:
    """Return a page with what is wrong with a file that a caller has sent."""
    page = Page((), (Unchecked("scheduler configuration", "not named"),), make_facts())
    file = {"name": "s.yaml", "text": text}
    body = json.dumps({"objects": {}, "schedulerConfig": file, **sent})
    return with_sent(page, msgspec.json.decode(body, type=SentObjects), NOW)


def test_the_file_that_a_caller_sends_is_judged() -> None:
    text = yaml.safe_dump(changed(ignorable=True))

    page = judged_with(text)

    assert whats(page.findings)[0].startswith("ignorable is true in s.yaml")
    assert page.unchecked == ()
    assert "registration" in [
        item.check for item in judged_with(text, unread={"/x": "no right"}).unchecked
    ]


def test_a_file_that_a_caller_sends_and_is_none_is_named() -> None:
    with pytest.raises(SchedulerConfigError, match=r"^s\.yaml: line 2, column 1: "):
        judged_with("a: [\n")


VOLUME = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
SAMPLED = {"nodes": 1000, "nodes_shown": 420, "nodes_passing": 900}


@pytest.mark.parametrize(
    ("facts", "is_told"),
    [
        pytest.param(SAMPLED, False, id="by default"),
        pytest.param(
            {**SAMPLED, "has_type_affinity": False}, True, id="without affinity"
        ),
        pytest.param({**SAMPLED, "has_webhook": False}, True, id="without webhook"),
        pytest.param(
            {"nodes": 1000, "nodes_offered": 420, "has_webhook": False},
            False,
            id="other nodes do not pass its own checks",
        ),
        pytest.param({"nodes": 9, "has_webhook": False}, False, id="no call yet"),
    ],
)
def test_a_sample_of_nodes_matters_where_nobody_writes_affinity(
    facts: dict[str, Any], is_told: bool
) -> None:
    assert len(list(check_sample(make_facts(make_settings(), **facts)))) == is_told


def shown(pod: Tree, count: int) -> tuple[int, int]:
    """Return what is found of a pending pod that was shown so many nodes."""
    snapshot = make_snapshot(
        nodes=[
            make_node(name=f"n{number}", gpus=8 if number < 130 else 0)
            for number in range(150)
        ],
        pods=[pod],
    )
    answered, request = LastAnswers(), make_request(pod["metadata"]["uid"])
    answered.filtered(make_filter_outcome([0] * count, pod_request=request))
    return find_sample(snapshot, answered, build_verb_options(make_settings()))


@pytest.mark.parametrize(
    ("pod", "count", "found"),
    [
        pytest.param({"gpus": 4}, 110, (110, 130), id="a sample"),
        pytest.param({"gpus": 4}, 130, (0, 0), id="all that pass its own checks"),
        pytest.param({"gpus": 4}, 90, (0, 0), id="fewer than it ever looks for"),
        pytest.param(
            {"gpus": 4, "spec": {"nodeSelector": {"zone": "a"}}},
            110,
            (0, 0),
            id="others do not match its selector",
        ),
        pytest.param(
            {"gpus": 4, "spec": {"volumes": [VOLUME]}},
            110,
            (0, 0),
            id="what its volumes refuse is not known",
        ),
        pytest.param(
            {"gpus": 4, "requests": {f"a.b/r{n}": "1" for n in range(300)}},
            110,
            (0, 0),
            id="too many resources to judge",
        ),
    ],
)
def test_a_sample_is_found_where_nodes_that_pass_were_not_shown(
    pod: dict[str, Any], count: int, found: tuple[int, int]
) -> None:
    assert shown(make_pod(**pod), count) == found
