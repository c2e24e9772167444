"""The rule file in the form of gpuinjector, checked as a whole when it is loaded.

The form is ``resourceMap``, ``namespaceResourceMap`` and ``namespaceWhiteList`` of
``bcs-webhook-server`` in https://github.com/TencentBlueKing/bk-bcs, folder
``docs/features/bcs-webhook-server/plugins/gpuinjector``. No pod is ever refused for a
slip of the pen in here: what could go wrong later is a fault now.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from cluster.yaml_text import describe_unreadable
from injector.rules.conflicts import RuleContext, find_conflicts
from injector.rules.fields import (
    Entries,
    FieldReader,
    RuleTextError,
    Tree,
    describe,
    page_size,
    parse_json,
    parse_yaml,
)
from injector.rules.rules import InjectionRule, ResourceRule, RuleMap, Rules
from scoring.faults import Fault, FaultsError, list_faults
from scoring.names import is_annotation_key, is_extended_resource
from scoring.quantity import exact_quantity, shorten


class RulesError(FaultsError):
    """A rule file with faults.

    Attributes
    ----------
    source : str
        Name of the file.
    """

    def __init__(self, source: str, faults: list[Fault]) -> None:
        super().__init__(faults, list_faults(source, faults))
        self.source = source


def load_rules(path: Path, context: RuleContext) -> Rules:
    """Read a rule file, YAML by its suffix, else JSON; raise `RulesError`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RulesError(
            str(path), [Fault("file", describe_unreadable(error))]
        ) from error
    is_yaml = path.suffix in {".yaml", ".yml"}
    return parse_rules(text, str(path), context, is_yaml=is_yaml)


def parse_rules(
    text: str,
    source: str,
    context: RuleContext,
    *,
    is_yaml: bool = False,
) -> Rules:
    """Read the text of a rule file.

    Parameters
    ----------
    source : str
        Name for messages.
    is_yaml : bool
        Whether the text is YAML and not JSON.

    Raises
    ------
    RulesError
        With every fault, each with its path.
    """
    try:
        tree = parse_yaml(text) if is_yaml else parse_json(text)
    except RuleTextError as error:
        raise RulesError(source, [Fault("file", describe_unreadable(error))]) from error
    reader = FieldReader()
    rules = _RuleReader(reader, context).rules(tree)
    if reader.faults:
        raise RulesError(source, reader.faults)
    return rules


class _RuleReader:
    """Turns one tree into rules; what is wrong is left out and named."""

    def __init__(self, reader: FieldReader, context: RuleContext) -> None:
        self._reader = reader
        self._context = context
        # (path of a rule, resource) -> path of its entry
        self._paths: dict[tuple[str, str], str] = {}

    def rules(self, tree: Tree) -> Rules:
        """Read the whole file."""
        if tree is None:
            self._reader.fault("file", "wanted a mapping, got nothing")
        fields = self._reader.fields(
            tree, "", {"resourceMap", "namespaceResourceMap", "namespaceWhiteList"}
        )
        default = self._types(fields.get("resourceMap"), "resourceMap")
        path = "namespaceResourceMap"
        by_namespace: dict[str, RuleMap] = {}
        for namespace, item, where in self._reader.entries(fields.get(path), path):
            self._reader.namespace(namespace, where)
            by_namespace[namespace] = self._types(item, where)
        path = "namespaceWhiteList"
        skipped = [
            self._reader.namespace(item, where)
            for item, where in self._reader.items(fields.get(path), path)
        ]
        rules = Rules(default, MappingProxyType(by_namespace), frozenset(skipped))
        self._reader.faults += find_conflicts(rules, self._paths, self._context)
        return rules

    def _types(self, tree: Tree, path: str) -> RuleMap:
        """Read GPU type -> GPU resource -> rule."""
        types: dict[str, Mapping[str, InjectionRule]] = {}
        for gpu_type, item, where in self._reader.entries(tree, path):
            if not gpu_type.strip():
                self._reader.fault(where, f"wanted a GPU type, got {gpu_type!r}")
            types[gpu_type] = self._gpu_resources(item, where)
        return MappingProxyType(types)

    def _gpu_resources(self, tree: Tree, path: str) -> Mapping[str, InjectionRule]:
        """Read GPU resource -> rule."""
        rules: dict[str, InjectionRule] = {}
        for resource, item, where in self._reader.entries(tree, path):
            if not is_extended_resource(resource):
                self._reader.fault(
                    where,
                    "wanted the name of an extended resource such as nvidia.com/gpu,"
                    f" got {shorten(resource)}",
                )
            rule = self._rule(item, where)
            if is_extended_resource(resource):
                rules[resource] = rule
        return MappingProxyType(rules)

    def _rule(self, tree: Tree, path: str) -> InjectionRule:
        """Read one rule."""
        fields = self._reader.fields(tree, path, {"resourceList", "annotations"})
        where = f"{path}.resourceList"
        resources: dict[str, ResourceRule] = {}
        for item, entry in self._reader.items(fields.get("resourceList"), where):
            resource = self._resource(item, entry)
            if resource is None:
                continue
            if resource.name in resources:
                self._reader.fault(
                    f"{entry}.name", f"{resource.name!r} is listed twice"
                )
            resources[resource.name] = resource
            self._paths[path, resource.name] = f"{entry}.name"
        self._check_huge_pages(resources, path)
        return InjectionRule(
            tuple(resources.values()),
            self._annotations(fields.get("annotations"), f"{path}.annotations"),
        )

    def _check_huge_pages(self, resources: Mapping[str, object], path: str) -> None:
        """Name a fault if the API server would refuse a container that asks no more."""
        if resources.keys().isdisjoint(("cpu", "memory")):
            for name in resources:
                if page_size(name):
                    self._reader.fault(
                        self._paths[path, name],
                        f"{name!r} needs cpu or memory in the same rule",
                    )

    def _annotations(self, tree: Tree, path: str) -> Mapping[str, str]:
        """Read annotation key -> value."""
        annotations: dict[str, str] = {}
        for key, value, where in self._reader.entries(tree, path):
            conflict = self._context.annotation_fault(key)
            if conflict:
                self._reader.fault(where, conflict)
            elif not is_annotation_key(key):
                self._reader.fault(
                    where, f"wanted an annotation key, got {shorten(key)}"
                )
            if not isinstance(value, str):
                self._reader.fault(where, f"wanted text, got {describe(value)}")
                continue
            annotations[key] = value
            fault = "" if conflict else self._context.value_fault(key, value)
            if fault:
                self._reader.fault(where, fault)
        self._reader.check_annotations(annotations, path)
        return MappingProxyType(annotations)

    def _resource(self, tree: Tree, path: str) -> ResourceRule | None:
        """Read one entry of a ``resourceList``; None if it has a fault."""
        fields = self._reader.fields(
            tree, path, {"name", "coefficient", "unit", "value"}
        )
        if not isinstance(tree, Entries):
            return None
        name = self._reader.resource_name(fields.get("name"), f"{path}.name")
        unit = self._reader.unit(fields.get("unit"), name, f"{path}.unit")
        if fields.get("value"):
            self._reader.fault(
                f"{path}.value", "has never had an effect; use coefficient"
            )
        coefficient = self._reader.coefficient(
            fields.get("coefficient"), f"{path}.coefficient"
        )
        if name is None or unit is None or coefficient is None:
            return None
        per_gpu = coefficient * exact_quantity(f"1{unit}")
        self._reader.check_size(name, per_gpu, f"{path}.coefficient")
        return ResourceRule(name, per_gpu, is_binary=unit.endswith("i"))
