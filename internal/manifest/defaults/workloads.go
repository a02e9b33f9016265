package defaults

import (
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// maxRevisions is the default of revisionHistoryLimit.
const maxRevisions = 10

// Deployment sets the fields of a Deployment, but for its template, that a manifest omits.
func Deployment(d *appsv1.Deployment) {
	orElse(&d.Namespace, v1.NamespaceDefault)
	s := &d.Spec
	orElseNew(&s.Replicas, 1)
	orElse(&s.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if s.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		orElseNew(&s.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		orElseNew(&s.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		orElseNew(&s.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	orElseNew(&s.RevisionHistoryLimit, maxRevisions)
	orElseNew(&s.ProgressDeadlineSeconds, 600)
}

// ReplicaSet sets the fields of a ReplicaSet, but for its template, that a manifest omits.
func ReplicaSet(r *appsv1.ReplicaSet) {
	orElse(&r.Namespace, v1.NamespaceDefault)
	orElseNew(&r.Spec.Replicas, 1)
}

// DaemonSet sets the fields of a DaemonSet, but for its template, that a manifest omits.
func DaemonSet(d *appsv1.DaemonSet) {
	orElse(&d.Namespace, v1.NamespaceDefault)
	s := &d.Spec
	orElse(&s.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if s.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		orElseNew(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		orElseNew(&s.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		orElseNew(&s.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	orElseNew(&s.RevisionHistoryLimit, maxRevisions)
}

// StatefulSet sets the fields of a StatefulSet, but for its template, that a manifest omits.
func StatefulSet(s *appsv1.StatefulSet) {
	orElse(&s.Namespace, v1.NamespaceDefault)
	spec := &s.Spec
	orElse(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	if spec.UpdateStrategy.Type == "" {
		spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		orElseNew(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if rolling := spec.UpdateStrategy.RollingUpdate; rolling != nil &&
		spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		orElseNew(&rolling.Partition, 0)
		orElseNew(&rolling.MaxUnavailable, intstr.FromInt32(1))
	}
	orElseNew(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	policy := spec.PersistentVolumeClaimRetentionPolicy
	orElse(&policy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	orElse(&policy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	orElseNew(&spec.Replicas, 1)
	orElseNew(&spec.RevisionHistoryLimit, maxRevisions)
	for i := range spec.VolumeClaimTemplates {
		Claim(&spec.VolumeClaimTemplates[i])
	}
}

// Claim sets the fields of a PersistentVolumeClaim that a manifest omits.
func Claim(c *v1.PersistentVolumeClaim) {
	orElse(&c.Namespace, v1.NamespaceDefault)
	orElseNew(&c.Spec.VolumeMode, v1.PersistentVolumeFilesystem)
}
