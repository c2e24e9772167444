"""Seeded mutated admission reviews against the webhook, without sockets."""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cluster.dump import load_dump
from cluster.ledger.ledger import Ledger
from cluster.ledger.writer import SnapshotCell
from extender.tracking.last_answers import LastAnswers
from injector.rules.file import load_rules
from service.http.app import create_app
from service.http.health import Health
from service.metrics import Metrics
from service.runtime import build_verb_options
from service.webhook import Webhook
from tests.builders import BUILDER, LABEL_KEYS
from tests.defaults import RULE_CONTEXT
from tests.extender_app import make_settings
from tests.fakes.webhook import container, make_pod, make_review
from tests.fuzz.campaign import call_application
from tests.fuzz.contract import Answer, ContractError
from tests.fuzz.corpus import CAPTURES, DUMP
from tests.fuzz.mutations import Seed, make_seed, mutate
from tests.fuzz.review_contract import ReviewTerms, check_review

MUTATE: Final = "/mutate"
CONFIGS: Final = Path(__file__).parents[2] / "configs"
GPU: Final = "nvidia.com/gpu"
CHAIN: Final = ("nvidia.com/mig-3g.40gb", "nvidia.com/mig-2g.20gb", GPU)
EVERYTHING: Final = {"schedulerName": "gpu-scheduler", "toleration": True}
SETTINGS: Final[tuple[Mapping[str, Any], ...]] = (
    {"injection": {**EVERYTHING}, "fallback": {"chains": [CHAIN]}},
    {"injection": {"existing": "keep"}},
)
AMOUNTS: Final = (
    "0", "1", "2", "8", 1, 2.5, 10**20, "1.5", "500m", "1Gi", "1K", "-1", "1e3",
    "1e999", ".5", "", None, True, "9" * 40, "1n",
)  # fmt: skip
RESOURCES: Final = (
    GPU, *CHAIN, "amd.com/gpu", "cpu", "memory", "ephemeral-storage", "example.com/nic",
    "hugepages-2Mi", "requests.cpu", "",
)  # fmt: skip
ANNOTATIONS: Final = (
    ("task.bkbcs.tencent.com/gpu-type", ("V100", "A100", "H100", "v100", "")),
    (
        "kubernetes.io/limit-ranger",
        (
            "LimitRanger plugin set: cpu, memory request for container a",
            "LimitRanger plugin set: cpu limit for init container a; ; x",
        ),
    ),
    ("kubernetes.io/config.mirror", ("x",)),
    ("kubernetes.io/config.source", ("api", "file")),
    ("gpu-extender.io/fallback", ("never", "x")),
    ("gpu-extender.io/fallback-weighed", ("nvidia.com/gpu",)),
    ("gpu-extender.io/sharing", ("allowed",)),
    ("gpu-extender.io/gpu-type", ("V100", "!", "A100, !H100")),
)


def own_reviews() -> list[Any]:
    """Return reviews such as the captures have not."""
    whole = {"limits": {GPU: "2"}, "requests": {GPU: "2", "cpu": "1"}}
    slices = {"limits": {CHAIN[1]: "1"}, "requests": {CHAIN[1]: "1"}}
    beside = {"requests": {"cpu": "1", "memory": "1Gi"}}
    pods = [
        make_pod(container("a", whole), container("s", beside)),
        make_pod(container("a", slices), gpu_type="A100"),
        make_pod(
            container("a", whole),
            container("b", {"limits": {GPU: 1, "example.com/nic": "1"}}),
            initContainers=[container("i", beside, restartPolicy="Always")],
            resources={"limits": {"memory": "64Gi"}},
            tolerations=[{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
        ),
    ]
    old = make_review(pods[0], dryRun=True)
    return [
        *map(make_review, pods),
        make_review(pods[0], namespace="gpu-training"),
        {**old, "apiVersion": "admission.k8s.io/v1beta1"},
    ]


def build_corpus() -> tuple[Seed, ...]:
    """Return captured reviews and our own."""
    captured = [path.read_bytes() for path in sorted(CAPTURES.glob("*/mutate.*.json"))]
    own = [json.dumps(review).encode() for review in own_reviews()]
    # Most captured pods have no GPU type: ours come as often as all of those.
    share = max(len(captured) // len(own), 1)
    return tuple(map(make_seed, [*captured, *own * share]))


@dataclass(slots=True)
class ReviewTally:
    """What has come of a campaign so far."""

    reviews: int = 0
    # what became of a review -> how often
    outcomes: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


class ReviewCampaign:
    """Sends mutated reviews one after the other; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self.tally = ReviewTally()
        self._chance = random.Random(seed)  # noqa: S311  the same bodies in every run
        self._corpus = build_corpus()
        ledger = Ledger(LABEL_KEYS)
        for change in load_dump([DUMP], BUILDER):
            ledger.apply(change)
        self._cell = SnapshotCell()
        self._cell.publish(ledger.build())
        self._apps = [self._build(settings) for settings in SETTINGS]

    def _build(self, tree: Mapping[str, Any]) -> tuple[Any, ReviewTerms]:
        """Return the application under some settings, and what holds for it."""
        rules_file = str(CONFIGS / "injection-rules.json")
        injection = {**tree["injection"], "rulesFile": rules_file}
        settings = make_settings({**tree, "injection": injection})
        metrics = Metrics()
        webhook = Webhook(self._cell, settings, metrics, CONFIGS)
        webhook.load_rules()
        options = build_verb_options(settings)
        health = Health(self._cell, lambda: {"file": 0.0}, 180.0)
        app = create_app(
            self._cell,
            lambda: options,
            webhook.resource,
            metrics,
            health,
            answered=LastAnswers(),
        )
        rules = load_rules(CONFIGS / "injection-rules.json", RULE_CONTEXT)
        maps = (rules.default, *rules.by_namespace.values())
        by_resource = [item for types in maps for item in types.values()]
        named = {
            name
            for found in by_resource
            for gpu_resource, rule in found.items()
            for name in (gpu_resource, *(item.name for item in rule.resources))
        }
        chained = {name for chain in settings.fallback.chains for name in chain}
        return app, ReviewTerms(frozenset(named), frozenset(chained))

    def run(self, reviews: int) -> None:
        """Send so many reviews."""
        for _ in range(reviews):
            chance = self._chance
            body = self._mutated(chance.choice(self._corpus))
            app, terms = chance.choice(self._apps)
            self.tally.reviews += 1
            changed = self._ask(app, terms, body)
            if changed is not None:
                again = json.dumps(changed).encode()
                if self._ask(app, terms, again) is not None:
                    self._violated("a second review changes the pod again", body)

    def _mutated(self, seed: Seed) -> bytes:
        """Return a review with anything anywhere, or with odd amounts in its pod."""
        chance = self._chance
        if chance.random() < 0.5:
            return mutate(seed, chance)
        tree = json.loads(seed.body)
        pod = tree["request"]["object"]
        if not isinstance(pod, dict):
            return mutate(seed, chance)
        for _ in range(chance.randint(1, 4)):
            mutate_pod(pod, chance)
        return json.dumps(tree).encode()

    def _ask(self, app: Any, terms: ReviewTerms, body: bytes) -> dict[str, Any] | None:
        """Send one review; note what is wrong with its answer."""
        answer = call_application(app, MUTATE, body)
        self.tally.outcomes[outcome_of_answer(answer)] += 1
        try:
            return check_review(body, answer, terms)
        except (ContractError, ValueError, LookupError, TypeError) as error:
            self._violated(f"{type(error).__name__}: {error}", body)
            return None

    def _violated(self, said: str, body: bytes) -> None:
        self.tally.violations.append(f"{said}, for {body!r}")


def mutate_pod(pod: dict[str, Any], chance: random.Random) -> None:
    """Give a container an amount, or the pod an annotation."""
    metadata, spec = pod.setdefault("metadata", {}), pod.get("spec") or {}
    if chance.random() < 0.3:
        key, values = chance.choice(ANNOTATIONS)
        metadata["annotations"] = {
            **(metadata.get("annotations") or {}),
            key: chance.choice(values),
        }
        return
    found = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    if found:
        resources = chance.choice(found).setdefault("resources", {})
        side = chance.choice(("requests", "limits"))
        amounts = resources[side] = resources.get(side) or {}
        resource, amount = chance.choice(RESOURCES), chance.choice(AMOUNTS)
        for each in {side, chance.choice(("requests", "limits"))}:
            resources[each] = {**(resources.get(each) or amounts), resource: amount}


def outcome_of_answer(answer: Answer) -> str:
    """Return what became of a review."""
    if answer.status != 200:
        return str(answer.status)
    response = json.loads(answer.body)["response"]
    if not response["allowed"]:
        return "refused"
    return "patched" if "patch" in response else "unchanged"


def main() -> int:
    """Run a campaign for some time; return 1 if there was a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.reviews")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    campaign = ReviewCampaign(options.seed)
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        campaign.run(500)
    tally = campaign.tally
    for violation in tally.violations[:20]:
        sys.stdout.write(violation[:3000] + "\n")
    counts = "  ".join(f"{name}: {n:,}" for name, n in sorted(tally.outcomes.items()))
    sys.stdout.write(f"seed {options.seed}\nreviews {tally.reviews:,}  {counts}\n")
    verdict = "miss" if tally.violations else "pass"
    sys.stdout.write(
        f"bar fuzz_review_violations {len(tally.violations)} 0 {verdict}\n"
    )
    return 1 if tally.violations else 0


if __name__ == "__main__":
    sys.exit(main())
