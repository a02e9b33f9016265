package support

// table has the rule of each field, by the name of its Go type and its JSON name. A type that is
// listed must be listed with all its fields; all fields of a type that is not listed are accepted.
// For a map type the keys are listed; a key that ends with "*" stands for all other keys with this
// prefix.
var table = map[string]map[string]*rule{
	"Pod": {
		"kind": yes(""), "apiVersion": yes(""), "metadata": yes(""), "spec": yes(""),
		"status": ignored(ofPodrun),
	},
	"ObjectMeta": {
		"name":      limited("the pod's full name has the node's name as suffix"),
		"namespace": yes("default if not given"),
		"uid": limited("letters, digits, '.', '_' and '-', 63 at most; made from " +
			"the manifest if not given"),
		"labels":                     yes(""),
		"annotations":                limited("see below"),
		"generateName":               ignored("has no effect beside metadata.name, which is needed"),
		"selfLink":                   ignored(byServer),
		"resourceVersion":            ignored(byServer),
		"generation":                 ignored(byServer),
		"creationTimestamp":          ignored(byServer),
		"deletionTimestamp":          never("is set by an API server only; leave it out"),
		"deletionGracePeriodSeconds": never("is set by an API server only; leave it out"),
		"ownerReferences":            ignored("there is no API server that would know the owner; the pod goes when its manifest goes"),
		"finalizers":                 ignored("there is no API server that would wait for them"),
		"managedFields":              ignored(byServer),
	},
	"PodSpec": {
		"volumes":             yes(""),
		"initContainers":      yes(""),
		"containers":          yes("1000 at most, with initContainers"),
		"ephemeralContainers": never("cannot be part of a manifest, as in Kubernetes"),
		"restartPolicy":       yes(""),
		"terminationGracePeriodSeconds": yes("as by the kubelet a pod that is ended has 1 s at least and " +
			"each container 2 s from its stop signal, also with 0"),
		"activeDeadlineSeconds": yes(""),
		"dnsPolicy":             yes("ClusterFirst is Default without --cluster-dns"),
		"nodeSelector": limited("the labels kubernetes.io/hostname, kubernetes.io/os, " +
			"kubernetes.io/arch and those of --node-labels; with any other, or another value, the pod waits"),
		"serviceAccountName":           ignored(noAccount),
		"serviceAccount":               ignored(noAccount),
		"automountServiceAccountToken": ignored("there is no API server and so no token to mount", "false"),
		"nodeName": limited("only this node's name; with --ignore-node-name any other is ignored with " +
			"a warning"),
		"hostNetwork":           yes(""),
		"hostPID":               yes(""),
		"hostIPC":               yes(""),
		"shareProcessNamespace": yes(""),
		"securityContext":       yes(""),
		"imagePullSecrets":      yes("Secrets in the manifests; they count before --registry-config"),
		"hostname":              yes(""),
		"subdomain":             yes(""),
		"affinity":              yes(""),
		"schedulerName":         ignored("has no effect: the pod is on its machine already", "default-scheduler"),
		"tolerations":           yes("have no effect: a machine of podrun's has no taints"),
		"hostAliases":           yes(""),
		"priorityClassName": ignored("there are no PriorityClasses but the system's two, whose pods end last "+
			"when the machine shuts down; podrun preempts and evicts no pod",
			"system-node-critical", "system-cluster-critical"),
		"priority": yes("critical pods end last when the machine shuts down; else " +
			"no effect: no pod is preempted or evicted"),
		"dnsConfig": yes(""),
		"readinessGates": warned("is never met, because there is no API server through which a " +
			"gate could be set: the pod is never Ready"),
		"runtimeClassName":          yes("one that the node's --node-config names"),
		"enableServiceLinks":        yes("has no effect: there are no Services"),
		"preemptionPolicy":          yes("has no effect: no pod is preempted"),
		"overhead":                  no(),
		"topologySpreadConstraints": ignored(noScheduler),
		"setHostnameAsFQDN":         yes(""),
		"os":                        yes(""),
		"hostUsers": yes("with false each pod has 65536 users of its own; needs " +
			"overlayfs, Linux 5.19, or 6.3 for volumes in memory such as a Secret's, and file systems for its volumes that can be shown with other owners; " +
			"not with shareProcessNamespace"),
		"schedulingGates":    never("needs an API server through which the gate would be lifted"),
		"resourceClaims":     never("needs an API server and a scheduler that allocate devices"),
		"resources":          yes("cpu, memory and huge pages of all containers together"),
		"hostnameOverride":   yes(""),
		"schedulingGroup":    never("needs a scheduler"),
		"evictionResponders": never("needs an API server; podrun evicts no pod"),
	},
	"Affinity": {"nodeAffinity": yes(""), "podAffinity": ignored(noScheduler), "podAntiAffinity": ignored(noScheduler)},
	"NodeAffinity": {
		"requiredDuringSchedulingIgnoredDuringExecution": yes("the labels that nodeSelector knows, and the node's name; " +
			"while they do not match, the pod waits"),
		"preferredDuringSchedulingIgnoredDuringExecution": ignored(noScheduler),
	},
	"NodeSelector":            {"nodeSelectorTerms": yes("")},
	"NodeSelectorTerm":        {"matchExpressions": yes(""), "matchFields": yes("metadata.name")},
	"NodeSelectorRequirement": {"key": yes(""), "operator": yes(""), "values": yes("")},
	"PodReadinessGate":        {"conditionType": yes("")},
	"PodOS":                   {"name": only("", "linux")},
	"Toleration": {
		"key":               yes(""),
		"operator":          yes(""),
		"value":             yes(""),
		"effect":            yes(""),
		"tolerationSeconds": yes(""),
	},
	"PodSecurityContext": podSecurity,
	"SecurityContext":    security,
	"Container":          container,
	"Sysctl":             {"name": yes(""), "value": yes("")},
	"Capabilities": {
		"add":  limited("Linux' names, with or without CAP_, or ALL"),
		"drop": limited("Linux' names, with or without CAP_, or ALL"),
	},
	"SeccompProfile": {
		"type": yes("without a profile a container is Unconfined, or RuntimeDefault with " +
			"--seccomp-default"),
		"localhostProfile": yes("a file below seccomp in the root directory"),
	},
	"SELinuxOptions": {
		"user":  yes(""),
		"role":  yes(""),
		"type":  yes(""),
		"level": yes("without one, the pod has one of its own"),
	},
	"AppArmorProfile":    {"type": yes(""), "localhostProfile": yes("a profile that is loaded")},
	"HostAlias":          {"ip": yes(""), "hostnames": yes("")},
	"PodDNSConfig":       {"nameservers": yes(""), "searches": yes(""), "options": yes("")},
	"PodDNSConfigOption": {"name": yes(""), "value": yes("")},
	"ContainerPort": {
		"name": yes(""), "containerPort": yes(""), "protocol": yes(""),
		"hostPort": yes("while another pod or a process of the machine has it, the pod waits"),
		"hostIP":   limited("an IP address"),
	},
	"ContainerResizePolicy":           {"resourceName": yes(""), "restartPolicy": yes("")},
	"ContainerRestartRule":            {"action": yes(""), "exitCodes": yes("")},
	"ContainerRestartRuleOnExitCodes": {"operator": yes(""), "values": yes("")},
	"Probe": {
		"exec": yes(""), "httpGet": yes(""), "tcpSocket": yes(""), "grpc": yes(""),
		"initialDelaySeconds": yes(""), "timeoutSeconds": yes(""), "periodSeconds": yes(""),
		"successThreshold": yes(""), "failureThreshold": yes(""), "terminationGracePeriodSeconds": yes(""),
	},
	"ExecAction": {"command": yes("")},
	"HTTPGetAction": {
		"path":        yes(""),
		"port":        yes(""),
		"host":        yes(""),
		"scheme":      yes(""),
		"httpHeaders": yes(""),
		"protocol":    no(),
	},
	"HTTPHeader":      {"name": yes(""), "value": yes("")},
	"TCPSocketAction": {"port": yes(""), "host": yes("")},
	"GRPCAction":      {"port": yes(""), "service": yes(""), "mode": no()},
	"SleepAction":     {"seconds": yes("")},
	"Lifecycle": {
		"postStart": yes("as in Kubernetes it may run twice: again if podrun was killed " +
			"before it was done"),
		"preStop":    yes(""),
		"stopSignal": yes("as in Kubernetes with ContainerStopSignals"),
	},
	"LifecycleHandler": {
		"exec": yes(""), "httpGet": yes(""), "sleep": yes(""),
		"tcpSocket": never("is not run by Kubernetes either; use exec or httpGet"),
	},
	"EnvVar":               {"name": yes(""), "value": yes(""), "valueFrom": yes("")},
	"LocalObjectReference": {"name": yes("")},
	"EnvVarSource": {
		"fieldRef":         yes(""),
		"resourceFieldRef": yes(""),
		"configMapKeyRef":  yes(""),
		"secretKeyRef":     yes(""),
		"fileKeyRef":       limited("of emptyDir volumes on disk or in memory"),
	},
	"ObjectFieldSelector":   {"apiVersion": yes(""), "fieldPath": yes("")},
	"ResourceFieldSelector": {"containerName": yes(""), "resource": yes(""), "divisor": yes("")},
	"ConfigMapKeySelector":  {"name": yes(""), "key": yes(""), "optional": yes("")},
	"SecretKeySelector":     {"name": yes(""), "key": yes(""), "optional": yes("")},
	"FileKeySelector":       {"volumeName": yes(""), "path": yes(""), "key": yes(""), "optional": yes("")},
	"EnvFromSource":         {"prefix": yes(""), "configMapRef": yes(""), "secretRef": yes("")},
	"ConfigMapEnvSource":    {"name": yes(""), "optional": yes("")},
	"SecretEnvSource":       {"name": yes(""), "optional": yes("")},
	"KeyToPath":             {"key": yes(""), "path": yes(""), "mode": yes(""), "user": no()},
	"ConfigMapVolumeSource": {
		"name":        yes("of a ConfigMap in the manifests"),
		"items":       yes(""),
		"defaultMode": yes(""),
		"defaultUser": no(),
		"optional":    yes(""),
	},
	"SecretVolumeSource": {
		"secretName":  yes("of a Secret in the manifests"),
		"items":       yes(""),
		"defaultMode": yes(""),
		"defaultUser": no(),
		"optional":    yes(""),
	},
	"DownwardAPIVolumeSource": {"items": yes(""), "defaultMode": yes(""), "defaultUser": no()},
	"DownwardAPIVolumeFile": {
		"path":             yes(""),
		"fieldRef":         yes(""),
		"resourceFieldRef": yes(""),
		"mode":             yes(""),
		"user":             no(),
	},
	"ProjectedVolumeSource": {"sources": yes(""), "defaultMode": yes(""), "defaultUser": no()},
	"VolumeProjection":      projection,
	"SecretProjection":      {"name": yes(""), "items": yes(""), "optional": yes("")},
	"ConfigMapProjection":   {"name": yes(""), "items": yes(""), "optional": yes("")},
	"DownwardAPIProjection": {"items": yes("")},
	"ResourceRequirements": {
		"limits": yes(""), "requests": yes(""),
		"claims": never("needs an API server and a scheduler that allocate devices"),
	},
	"ResourceList": {
		"cpu": yes(""), "memory": yes("").inBytes(),
		"ephemeral-storage": limited("of containers: emptyDirs on disk, files that podrun writes for ConfigMap, " +
			"downwardAPI and projected volumes, logs and what is written into root filesystems; a pod that exceeds a limit fails, as soon as that is seen: every 10 s").inBytes(),
		"hugepages-*": yes("of a size that the machine has pages of, where the cgroup controller " +
			"hugetlb is in use"),
		"*": limited("whole numbers of devices that the node's --node-config or a device plugin (--plugins) has, as " +
			"example.com/gpu; while others have them, the pod waits"),
	},
	"VolumeDevice": {"name": yes(""), "devicePath": yes("")},
	"VolumeMount": {
		"name": yes(""), "readOnly": yes(""), "mountPath": yes(""),
		"recursiveReadOnly": yes(""),
		"subPath":           yes(""),
		"subPathExpr":       yes(""),
		"mountPropagation":  yes(""),
		"bindMountOptions":  no(),
	},
	"Volume":            volume,
	"ImageVolumeSource": {"reference": yes(""), "pullPolicy": yes("")},
	"CSIVolumeSource": {
		"driver": yes(""), "readOnly": yes(""), "fsType": yes(""), "volumeAttributes": yes(""),
		"nodePublishSecretRef": yes("a Secret in the manifests"),
	},
	"NFSVolumeSource":                   {"server": yes(""), "path": yes(""), "readOnly": yes("")},
	"PersistentVolumeClaimVolumeSource": {"claimName": yes("unique in the pod's namespace"), "readOnly": yes("")},
	"EmptyDirVolumeSource": {
		"medium":    yes(""),
		"sizeLimit": yes("on disk a pod that exceeds it fails, as soon as that is seen: every 10 s").inBytes(),
		"mode":      no(),
	},
	"HostPathVolumeSource": {"path": yes(""), "type": yes("")},
}

// Why fields have no effect.
const (
	byServer  = "is set by an API server only, and has no effect here"
	noAccount = "there is no API server and so no service account: the pod gets no token"
	// noScheduler is of fields by which a scheduler chooses among nodes.
	noScheduler = "has no effect: there is no scheduler, and podrun runs every pod that it is given on this machine"
)

var container = map[string]*rule{
	"name": yes(""), "image": yes(""), "command": yes(""), "args": yes(""), "workingDir": yes(""), "ports": yes(""),
	"env": yes(""), "resources": yes(""), "volumeMounts": yes(""), "imagePullPolicy": yes(""),
	"securityContext":          yes(""),
	"envFrom":                  yes(""),
	"resizePolicy":             yes(""),
	"restartPolicy":            yes("an init container with Always is a sidecar"),
	"restartPolicyRules":       yes(""),
	"volumeDevices":            yes("of claims with a PersistentVolume of csi and volumeMode Block; see plugins.md"),
	"livenessProbe":            yes(""),
	"readinessProbe":           yes(""),
	"startupProbe":             yes(""),
	"lifecycle":                yes(""),
	"terminationMessagePath":   yes(""),
	"terminationMessagePolicy": yes(""),
	"stdin":                    yes("podrun attach -i writes to it"),
	"stdinOnce":                yes("a terminal's input does not end"),
	"tty":                      yes(""),
}

// imagesGroup is the remark on a group that only podrun gives a process.
const imagesGroup = "without it, the group of the image's USER counts, which the kubelet with containerd ignores"

var podSecurity = map[string]*rule{
	"seLinuxOptions":           yes("where SELinux is not in use, a container with them does not start, unless its type is spc_t"),
	"windowsOptions":           never("podrun runs Linux containers"),
	"runAsUser":                yes(""),
	"runAsGroup":               yes(imagesGroup),
	"runAsNonRoot":             yes(""),
	"supplementalGroups":       yes("at most 65536, those of the image included, as the kernel supports"),
	"supplementalGroupsPolicy": yes(""),
	"fsGroup": yes("of emptyDir, configMap, secret, downwardAPI, projected and " +
		"persistentVolumeClaim volumes"),
	"sysctls":             yes("safe ones, and those that --allowed-unsafe-sysctls names"),
	"fsGroupChangePolicy": yes(""),
	"seccompProfile":      yes(""),
	"appArmorProfile":     yes("a container that asks for a profile does not start where AppArmor is not in use"),
	"seLinuxChangePolicy": only("volumes of podrun's own are labelled file by file", "Recursive"),
}

var projection = map[string]*rule{
	"secret": yes(""), "configMap": yes(""), "downwardAPI": yes(""),
	"serviceAccountToken": never("needs an API server that issues tokens; put a token of your own into a Secret"),
	"clusterTrustBundle":  never("needs an API server that keeps trust bundles; put the certificates into a ConfigMap"),
	"podCertificate": never("needs an API server that signs certificates; put a certificate and its " +
		"key into a Secret"),
}

// Why volumes of other machines are not mounted, and what to do instead.
const (
	mountIt    = "mount it on the machine, for a hostPath or as the directory of a claim"
	noDriver   = "needs a driver that podrun does not have; " + mountIt
	wasRemoved = "was removed from Kubernetes; " + mountIt
)

var volume = map[string]*rule{
	"name": yes(""), "emptyDir": yes(""), "hostPath": yes(""),
	"secret": yes(""), "configMap": yes(""), "downwardAPI": yes(""), "projected": yes(""),
	"nfs": yes("mounted with the machine's mount command"),
	"persistentVolumeClaim": yes("a PersistentVolume by documents, or a directory of that name that outlives the pod; " +
		"see podrun get volumes"),
	"image":                yes("read-only; `volumeStatus` of the container's mounts has its digest"),
	"iscsi":                never(noDriver),
	"fc":                   never(noDriver),
	"gcePersistentDisk":    never(noDriver),
	"awsElasticBlockStore": never(noDriver),
	"gitRepo":              never("is switched off in Kubernetes too; clone into an emptyDir"),
	"glusterfs":            never(wasRemoved),
	"rbd":                  never(wasRemoved),
	"flexVolume":           never(noDriver),
	"cinder":               never(noDriver),
	"cephfs":               never(wasRemoved),
	"flocker":              never(wasRemoved),
	"azureFile":            never(noDriver),
	"vsphereVolume":        never(noDriver),
	"quobyte":              never(wasRemoved),
	"azureDisk":            never(noDriver),
	"photonPersistentDisk": never(wasRemoved),
	"portworxVolume":       never(noDriver),
	"scaleIO":              never(wasRemoved),
	"storageos":            never(wasRemoved),
	"csi":                  yes("needs a CSI driver that has registered; see plugins.md"),
	"ephemeral":            never("needs an API server; use emptyDir or a persistentVolumeClaim"),
}

// security has the rules of a container's security context.
var security = map[string]*rule{
	"capabilities":             yes(""),
	"privileged":               yes(""),
	"seLinuxOptions":           yes("where SELinux is not in use, a container with them does not start, unless its type is spc_t"),
	"windowsOptions":           never("podrun runs Linux containers"),
	"runAsUser":                yes(""),
	"runAsGroup":               yes(imagesGroup),
	"runAsNonRoot":             yes(""),
	"readOnlyRootFilesystem":   yes(""),
	"allowPrivilegeEscalation": yes(""),
	"procMount":                yes("Unmasked needs hostUsers: false"),
	"seccompProfile":           yes(""),
	"appArmorProfile":          yes("a container that asks for a profile does not start where AppArmor is not in use"),
}

// ofPodrun is about what podrun itself writes: the output of podrun get -o yaml has it.
const ofPodrun = "is podrun's to write; what the manifest has is ignored"

// annotations has the rules of the annotations with a meaning in podrun, by name or by prefix with
// its slash. Others are retained unchanged.
var annotations = map[string]*rule{
	"podrun.io/": never("means nothing to this version of podrun"),
	"podrun.io/run-policy": only("under serve a pod that has completed never runs again, "+
		"not even after a reboot or podrun down, unless serve has seen it removed or replaced; by default it runs once per boot. On a Job, in its own metadata: per-boot runs it "+
		"again after each boot; by default the same Job runs once", "once-ever"),
	"podrun.io/schedule": never(ofCronJob),
	"podrun.io/restart-on-change": only("an edit of a ConfigMap or Secret that the "+
		"pod refers to replaces the pod; by default it changes the files in its volumes only", "true", "false"),
	"podrun.io/config.hash": ignored(ofPodrun),
	"podrun.io/rollback": only("under serve, a revision of the manifest that is not healthy in time gives way to the "+
		"last one that was; by default as --rollback says. It has no effect in Jobs and CronJobs", "true", "false"),
	"podrun.io/auto-update": only("under serve: when the reference of an image refers to another one in the registry, "+
		"registry updates the pod, and rolls it back if it is not healthy in time; notify records an event. "+
		"It has no effect in Jobs and CronJobs", "registry", "notify"),
	"podrun.io/progress-deadline-seconds": yes("how many seconds a revision may take to become healthy before it is " +
		"rolled back; by default 120, or the progressDeadlineSeconds of a Deployment"),
	"podrun.io/update": only("under serve, an edit starts another pod beside this one, which has its host ports as "+
		"soon as it is ready, and then replaces this one; by default this one ends first. For Pods alone: "+
		"a Deployment has spec.strategy, a DaemonSet spec.updateStrategy", "rolling"),
	"podrun.io/after": yes("pods, with commas between, by their " +
		"manifests' names or as namespace/name: this one starts when each of them has succeeded, or is " +
		"ready if its restartPolicy is Always"),
	"podrun.io/junit": yes("JUnit reports that the containers write, VOLUME:PATH with commas between: " +
		"podrun once --report merges them; the last element of a path may have wildcards"),
	"podrun.io/manifest": ignored(ofPodrun + "; podrun get -o manifest prints a pod as it can be put back: " +
		"that of -o yaml has the node's name in its own already"),
	"podrun.io/manifest-error":    ignored(ofPodrun),
	"podrun.io/manifest-hash":     ignored(ofPodrun),
	"podrun.io/manifest-warnings": ignored(ofPodrun),
	"podrun.io/next-attempt":      ignored(ofPodrun),
	"podrun.io/rolled-back":       ignored(ofPodrun),
	"podrun.io/pinned-images":     ignored(ofPodrun),
	"podrun.io/workload":          ignored(ofPodrun),
	"podrun.io/surge":             ignored(ofPodrun),
	"cdi.k8s.io/": yes("devices of this node's CDI specifications, " +
		"vendor/class=name with commas between, for all containers; not with --pod-security baseline or restricted"),
	"kubernetes.io/ingress-bandwidth": yes("bits a second that come to the pod, as 10M; " +
		"a network of CNI's needs a plugin that can, as bandwidth"),
	"kubernetes.io/egress-bandwidth": yes("bits a second that go from the pod, as 10M; " +
		"a network of CNI's needs a plugin that can, as bandwidth"),
	"k8s.v1.cni.cncf.io/networks": yes("networks of CNI's beside the pod's own, by " +
		"the names in --cni-conf-dir's configurations: NAME or NAME@INTERFACE with commas between, or a " +
		"list in JSON with name, interface, ips and mac"),
	"container.apparmor.security.beta.kubernetes.io/": ignored("has no effect; a value other than runtime/default is refused; use " +
		"securityContext.appArmorProfile"),
	"container.seccomp.security.alpha.kubernetes.io/": ignored("has no effect since Kubernetes 1.27; use " +
		"securityContext.seccompProfile"),
	"seccomp.security.alpha.kubernetes.io/pod": ignored("has no effect since Kubernetes 1.27; use " +
		"securityContext.seccompProfile"),
	"scheduler.alpha.kubernetes.io/tolerations": ignored("has no effect in Kubernetes either; use " +
		"spec.tolerations"),
}
