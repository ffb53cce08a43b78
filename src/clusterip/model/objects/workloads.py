"""ReplicaSets and Deployments."""

import msgspec

from clusterip.model.objects.meta import Condition, Labels, ObjectMeta, Value


class LabelSelectorRequirement(Value, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Value, frozen=True):
    match_labels: Labels = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class PodTemplateSpec(Value, frozen=True):
    """The template is copied into pods whole, so its spec is kept as the JSON it came in."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class ReplicaSetSpec(Value, frozen=True):
    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector = LabelSelector()
    template: PodTemplateSpec = PodTemplateSpec()


class ReplicaSetStatus(Value, frozen=True):
    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    observed_generation: int = 0


class ReplicaSet(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class RollingUpdate(Value, frozen=True):
    max_surge: int | str = "25%"
    max_unavailable: int | str = "25%"


class DeploymentStrategy(Value, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(Value, frozen=True):
    replicas: int = 1
    min_ready_seconds: int = 0
    revision_history_limit: int = 10
    progress_deadline_seconds: int = 600
    paused: bool = False
    selector: LabelSelector = LabelSelector()
    strategy: DeploymentStrategy = DeploymentStrategy()
    template: PodTemplateSpec = PodTemplateSpec()


class DeploymentStatus(Value, frozen=True):
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class Deployment(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()
