package kinds

// The API groups of more than one kind.
var (
	core         = []string{""}
	apps         = []string{"apps"}
	batch        = []string{"batch"}
	rbac         = []string{"rbac.authorization.k8s.io"}
	storage      = []string{"storage.k8s.io"}
	admission    = []string{"admissionregistration.k8s.io"}
	networking   = []string{"networking.k8s.io", "extensions"}
	flowControl  = []string{"flowcontrol.apiserver.k8s.io"}
	certificates = []string{"certificates.k8s.io"}
	resources    = []string{"resource.k8s.io"}
	leases       = []string{"coordination.k8s.io"}
)

// What it means that podrun passes over several kinds.
const (
	noAccounts   = "there is no API server, so pods get no token and no rights there"
	noAdmission  = "there is no API server, so nothing is checked or changed by it"
	noServer     = "there is no API server"
	noDevices    = "there is no scheduler that would allocate devices; see devices in the node configuration"
	noDrivers    = "it is for the controllers of a cluster; a claim is a directory on this machine"
	noBudget     = "podrun evicts no pod for a budget to forbid it"
	noScaling    = "the number of pods does not change by itself"
	noNetPolicy  = "none of its rules applies: pods reach each other, and what the machine reaches"
	noServices   = "there is no virtual IP: pods find each other by their names, hostPort makes a port reachable"
	noIngress    = "nothing routes requests by host or path; hostPort makes a port reachable"
	noQuota      = "neither its limits nor its defaults apply to pods"
	noNamespaces = "a namespace exists when a pod is in it"
	noOrders     = "it is what a cluster records of itself, and orders nothing"
)

// passed are the kinds that are read and not needed. A kind that makes pods is never one of them.
var passed = []Kind{
	{"Namespace", Passed, core, noNamespaces},
	{"ServiceAccount", Passed, core, noAccounts},
	{"Service", Passed, core, noServices},
	{"Endpoints", Passed, core, noServices},
	{"LimitRange", Passed, core, noQuota},
	{"ResourceQuota", Passed, core, noQuota},
	{"Role", Passed, rbac, noAccounts},
	{"RoleBinding", Passed, rbac, noAccounts},
	{"ClusterRole", Passed, rbac, noAccounts},
	{"ClusterRoleBinding", Passed, rbac, noAccounts},
	{"Ingress", Passed, networking, noIngress},
	{"IngressClass", Passed, networking[:1], noIngress},
	{"NetworkPolicy", Passed, networking, noNetPolicy},
	{"EndpointSlice", Passed, []string{"discovery.k8s.io"}, noServices},
	{"PodDisruptionBudget", Passed, []string{"policy"}, noBudget},
	{"PodSecurityPolicy", Passed, []string{"policy", "extensions"}, "pods are held to --pod-security alone"},
	{"HorizontalPodAutoscaler", Passed, []string{"autoscaling"}, noScaling},
	{"CustomResourceDefinition", Passed, []string{"apiextensions.k8s.io"},
		noServer + " that would have custom resources; a program that needs them does not work here"},
	{"APIService", Passed, []string{"apiregistration.k8s.io"}, noServer + " to extend"},
	{"ValidatingWebhookConfiguration", Passed, admission, noAdmission},
	{"MutatingWebhookConfiguration", Passed, admission, noAdmission},
	{"ValidatingAdmissionPolicy", Passed, admission, noAdmission},
	{"ValidatingAdmissionPolicyBinding", Passed, admission, noAdmission},
	{"MutatingAdmissionPolicy", Passed, admission, noAdmission},
	{"MutatingAdmissionPolicyBinding", Passed, admission, noAdmission},
	{"CSINode", Passed, storage, noDrivers},
	{"CSIStorageCapacity", Passed, storage, noDrivers},
	{"VolumeAttachment", Passed, storage, noDrivers},
	{"VolumeAttributesClass", Passed, storage, noDrivers},
	{"PriorityClass", Passed, []string{"scheduling.k8s.io"}, "podrun preempts and evicts no pod"},
	{"RuntimeClass", Passed, []string{"node.k8s.io"}, "a pod's runtimeClassName is one that --node-config names"},
	{"Lease", Passed, leases, noServer + " in which a leader would be elected"},
	{"LeaseCandidate", Passed, leases, noServer + " in which a leader would be elected"},
	{"FlowSchema", Passed, flowControl, noServer},
	{"PriorityLevelConfiguration", Passed, flowControl, noServer},
	{"CertificateSigningRequest", Passed, certificates, noServer + " that would sign it"},
	{"ClusterTrustBundle", Passed, certificates, noServer},
	{"PodCertificateRequest", Passed, certificates, noServer + " that would sign it"},
	{"DeviceClass", Passed, resources, noDevices},
	{"ResourceClaim", Passed, resources, noDevices},
	{"ResourceClaimTemplate", Passed, resources, noDevices},
	{"ResourceSlice", Passed, resources, noDevices},
	{"DeviceTaintRule", Passed, resources, noDevices},
	{"Node", Passed, core, "the machine's labels and taints are those that --node-config names"},
	{"Event", Passed, []string{"", "events.k8s.io"}, noOrders},
	{"ComponentStatus", Passed, core, noOrders},
	{"ControllerRevision", Passed, apps, noOrders},
	{"Binding", Passed, core, "there is one machine, on which all pods run"},
	{"ServiceCIDR", Passed, networking[:1], noServices},
	{"IPAddress", Passed, networking[:1], noServices},
	{"StorageVersion", Passed, []string{"internal.apiserver.k8s.io"}, noServer},
	{"StorageVersionMigration", Passed, []string{"storagemigration.k8s.io"}, noServer},
}
