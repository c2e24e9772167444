"""Names in the settings that Kubernetes, or the other parts of us, would not take."""

from pathlib import Path

import pytest

from service.settings.settings import SettingsError, read_settings


def faults_of(folder: Path, text: str) -> list[str]:
    path = folder / "config.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_settings(path)
    return [str(fault) for fault in caught.value.faults]


def test_all_illegal_names_are_told_at_once(tmp_path: Path) -> None:
    faults = faults_of(
        tmp_path,
        "injection:\n"
        "  triggerAnnotation: ''\n"
        "  schedulerName: my scheduler\n"
        "  schedulerOptOutLabel: Example.com/x\n"
        "  skippedNamespaces: [kube_system]\n"
        "fallback:\n"
        "  namespaces: [ML]\n"
        "  annotations: {mark: a/b/c}\n"
        "extender: {wakeUpAnnotation: 'a b'}\n"
        "labels: {accelerator: ''}\n"
        "webhook: {host: everywhere}\n",
    )

    assert faults == [
        "webhook.host: wanted an IP address, got 'everywhere'",
        "labels.accelerator: wanted a label key such as example.com/name, got ''",
        (
            "extender.wakeUpAnnotation: wanted an annotation key such as"
            " example.com/name, got 'a b'"
        ),
        (
            "injection.triggerAnnotation: wanted an annotation key such as"
            " example.com/name, got ''"
        ),
        "injection.schedulerName: wanted the name of a scheduler, got 'my scheduler'",
        (
            "injection.schedulerOptOutLabel: wanted a label key such as"
            " example.com/name, got 'Example.com/x'"
        ),
        (
            "injection.skippedNamespaces.0: wanted the name of a namespace,"
            " got 'kube_system'"
        ),
        "fallback.namespaces.0: wanted the name of a namespace, got 'ML'",
        (
            "fallback.annotations.mark: wanted an annotation key such as"
            " example.com/name, got 'a/b/c'"
        ),
    ]


def test_annotations_have_names_of_their_own_in_a_faulty_file_too(
    tmp_path: Path,
) -> None:
    clash = (
        "fallback.annotations.mark: wanted a name of its own, got 'x/y', which is also"
        " fallback.annotations.record"
    )
    text = "fallback: {annotations: {mark: x/y, record: x/y}}\n"

    assert faults_of(tmp_path, text) == [clash]
    assert faults_of(tmp_path, f"{text}extra: 1\n") == [
        "extra: unknown key, got 1",
        clash,
    ]


def test_a_name_that_is_the_default_of_another_annotation_is_a_fault(
    tmp_path: Path,
) -> None:
    assert faults_of(
        tmp_path,
        "injection: {triggerAnnotation: gpu-webhook.k8s.io/fallback}\n"
        "demandAnnotations: {exclusive: gpu-extender.io/linked}\n",
    ) == [
        (
            "injection.triggerAnnotation: wanted a name of its own, got"
            " 'gpu-webhook.k8s.io/fallback', which is also fallback.annotations.record"
        ),
        (
            "demandAnnotations.linked: wanted a name of its own, got"
            " 'gpu-extender.io/linked', which is also demandAnnotations.exclusive"
        ),
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "injection: {triggerAnnotation: Example.COM/gpu-type}",
            id="capitals in an annotation's prefix",
        ),
        pytest.param(
            "injection: {triggerAnnotation: gpu-extender.io/gpu-type}",
            id="one annotation for the rule and the model",
        ),
        pytest.param("injection: {schedulerName: gpu_scheduler}", id="a scheduler"),
        pytest.param('webhook: {host: "::"}', id="all addresses of IPv6"),
        pytest.param("webhook: {host: localhost}", id="localhost"),
    ],
)
def test_what_kubernetes_takes_is_taken(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)

    assert read_settings(path).fallback.chains == ()
