package main

import (
	"regexp"
	"slices"
	"strings"
)

// meaning is an intended difference.
type meaning struct {
	// by is the value of difference.By.
	by string
	// field matches the whole path, message a part of the text.
	field, message *regexp.Regexp
	// beside, if not nil, must match the whole path of another field for which podrun reports an
	// error in the same manifest.
	beside *regexp.Regexp
	what   string
	why    string
}

// explains reports whether a difference is this one.
func (m meaning) explains(d difference, podrun verdict) bool {
	if m.by != d.By || !m.field.MatchString(ofPodItself(d.Field)) || !m.message.MatchString(d.Message) {
		return false
	}
	return m.beside == nil || slices.ContainsFunc(podrun.Errors, func(f finding) bool {
		return m.beside.MatchString(ofPodItself(outsideItems(f.Field)))
	})
}

// ofPodItself returns the path that a field of a template's pod has in a pod of its own, and one of a CronJob's Job in
// the Job.
func ofPodItself(path string) string {
	path = strings.TrimPrefix(path, "spec.jobTemplate.")
	return strings.TrimPrefix(path, "spec.template.")
}

// on returns an entry of the table from regular expressions. In the one for a path, [] stands for
// any index or key.
func on(by, field, message, what, why string) meaning {
	return meaning{by: by, field: path(field), message: regexp.MustCompile(message), what: what, why: why}
}

// where adds the condition that podrun reports an error for another field of the same manifest; see
// meaning.beside.
func (m meaning) where(beside string) meaning {
	m.beside = path(beside)
	return m
}

func path(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`^(?:` + strings.ReplaceAll(pattern, `[]`, `\[[^\]]*\]`) + `)$`)
}

const (
	follows = "It follows from what podrun says of the other field."
	ignored = "It is ignored on one machine, with a warning; --strict-fields refuses it."
	misread = "Kubernetes spells the path wrongly; podrun names the field as it is written."
)

// meant has all intended differences, each with its reason. An entry that no manifest shows any
// more is also a failure.
var meant = []meaning{
	on(ofPodrun, `metadata\.uid`, `must be at most 63`, "podrun refuses a `metadata.uid` that cannot be a file name",
		"The UID is part of paths below the log and root directories; `../x` must not lead elsewhere."),
	on(ofPodrun, `metadata\.name`, `makes a file name of \d+ characters`,
		"podrun refuses names that are too long together",
		"A pod's logs are in a directory named `<namespace>_<name>_<uid>`, and Linux takes 255 "+
			"characters. Kubernetes judges each name alone."),
	on(ofPodrun, `metadata\.name`, `Duplicate value: .* (has the same name|makes a pod)`,
		"podrun refuses a pod that is twice in a file",
		"Only one of them could run; an API server refuses the second one when it is sent."),
	on(ofPodrun, `metadata\.annotations\[podrun\.io/.*\]`, ``, "podrun judges annotations of its own",
		"They mean nothing to Kubernetes; a typo in one must not be ignored."),
	on(ofPodrun, `metadata\.annotations\[cdi\.k8s\.io/.*\]`, `must be a device`,
		"podrun judges the names of CDI devices",
		"A container runtime fails to start the container; until then Kubernetes only sees an annotation."),
	on(ofPodrun, `metadata\.annotations\[kubernetes\.io/(in|e)gress-bandwidth\]`, ``,
		"podrun judges limits of a pod's network",
		"Kubernetes leaves them to its network, which takes no notice of what it cannot read or do."),
	on(ofPodrun, `metadata\.annotations\[k8s\.v1\.cni\.cncf\.io/networks\]`, ``,
		"podrun judges which networks a pod wants",
		"Kubernetes leaves it to a plugin; a pod without a network that it asks for would run all the same."),
	on(ofPodrun, `.*`, `is beyond the limits of quantities`, "podrun refuses quantities beyond 64 bits",
		"Of a larger one Kubernetes' type returns the lowest 64 bits, which may be 0 or negative: a limit would "+
			"be none. One with a large exponent takes hours to compute."),
	on(ofKubernetes, `spec\..*resources\.requests`, `must be less than or equal to`,
		"Kubernetes compares a request beyond 64 bits with its limit", follows).where(`spec\..*resources\.requests[]`),
	on(ofKubernetes, `spec\..*resources\.requests[]`, `.`,
		"Kubernetes says of a request what it says of the limit that the request follows from, too", follows).
		where(`spec\..*resources\.limits[]`),
	on(ofPodrun, `spec\..*resources\.(limits|requests)[]`, `must be at most 2147483647`,
		"podrun refuses more than 2147483647 CPUs or devices",
		"The sums of a pod's containers must fit into 64 bits, also in thousandths."),
	on(ofPodrun, `--pod-security (?:baseline|restricted)`, `--inline-csi-drivers does not have`,
		"at a level of `--pod-security` podrun refuses inline volumes of CSI drivers that `--inline-csi-drivers` does not list",
		"In Kubernetes a CSIDriver object permits them, which only an administrator can write. In podrun it is in the "+
			"same manifests as the pods."),
	on(ofPodrun, `spec\.volumes[]\.nfs\.server`, `must be a host name`,
		"podrun refuses an `nfs.server` that is no host name or address",
		"The machine's mount command gets it, as the kubelet's does. It must not be taken for anything else there."),
	on(ofPodrun, `spec\.nodeName`, `this node is`, "podrun refuses another node's `spec.nodeName`",
		"The kubelet overwrites it. A manifest that says that it is for another machine was probably "+
			"copied to the wrong one."),
	on(ofPodrun, `spec\.(?:initC|c)ontainers[]\.env[]\.(name|value)`, `NUL`, "podrun refuses a NUL in a variable",
		"No process can be given one; the container would fail to start."),
	on(ofPodrun, `spec\.(?:initC|c)ontainers[]\.ports[]\.hostIP`, `must be an IP address`,
		"podrun refuses a `hostIP` that is no address",
		"No port can be forwarded from it; the kubelet fails to start the pod."),
	on(ofPodrun, `spec\.(?:initC|c)ontainers[]\.securityContext\.capabilities\.(add|drop)[]`, `no such capability`,
		"podrun refuses a capability that does not exist",
		"Misspelt under `drop`, it would silently stay. Names are taken with `CAP_` too, which "+
			"Kubernetes' runtimes do not know."),
	on(ofPodrun, `spec\.volumes[]\.hostPath\.type`, `Unsupported value`,
		"podrun judges `hostPath.type` without a path too",
		"All errors at once; Kubernetes looks no further when the path is "+
			"missing.").where(`spec\.volumes[]\.hostPath\.path`),
	on(ofKubernetes, `spec\.(?:initC|c)ontainers[]\.volumeMounts[]\.name`, `Not found`,
		"Kubernetes does not find the volume of a mount when the volume is wrong",
		follows).where(`spec\.volumes.*`),
	on(ofPodrun, `spec\.volumes[]\.emptyDir\.medium`, `Unsupported value`,
		"podrun refuses an unknown `emptyDir.medium`",
		"The kubelet takes it and then never starts the pod."),
	on(ofPodrun, `spec\.volumes[]\.persistentVolumeClaim\.claimName`, `RFC 1123|253 characters`,
		"podrun judges a claim's name",
		"It is a directory's name. In Kubernetes no claim of such a name can exist, and the pod would wait for ever."),
	on(ofPodrun, `spec\.volumes[]\.image\.reference`, ``,
		"podrun needs the `reference` of an image volume, and in a form that can be one",
		"The kubelet takes it and then never starts the pod."),
	on(ofKubernetes, `spec\.volumes[]\.projected\.path`, ``,
		"Kubernetes says `projected.path` for the path of a projected token or certificate",
		misread).where(`spec\.volumes[]\.projected\.sources[]\.(serviceAccountToken|clusterTrustBundle|podCertificate).*`),
	on(ofKubernetes, `kind`, `invalid pod: \*core\.(ConfigMap|Secret)`, "podrun reads ConfigMaps and Secrets",
		"The kubelet takes pods only; podrun's manifests bring what its pods refer to."),
	on(ofKubernetes, `kind`, `invalid pod: \*(core\.(Namespace|Service|ServiceAccount)|rbac\.\w+)$|^not a Pod$`,
		"podrun passes over objects that one machine does not need",
		"A file that is made for a cluster runs as it is; a warning says what each object would have meant, and "+
			"--strict-kinds refuses it."),
	on(ofPodrun, `spec(\.replicas)?`, `at most \d+ pods of a (workload|manifest)`, "podrun refuses more than 1000 `replicas`",
		"They are all on this machine; a digit too many must not take it down."),
	on(ofPodrun, `spec\.(?:initC|c)ontainers[]\.ports[]\.hostPort`, `cannot have the same port`,
		"podrun refuses a `hostPort` of several replicas",
		"They are all on this machine; a cluster would leave all but one pending."),
	on(ofPodrun, `metadata\.name`, `the name of its last pod is a host name`,
		"podrun refuses a StatefulSet whose name is too long for its pods",
		"The API server takes it, and then none of its pods."),
	on(ofKubernetes, `spec\.hostname|metadata\.labels`, `no more than 63|valid label|name part`,
		"Kubernetes does not take the labels or host names that a workload's bad name makes",
		follows).where(`metadata\.(name|labels)`),
	on(ofPodrun, `spec\.(volumeClaimTemplates[]\.spec\.)?dataSource(Ref)?`, `nothing would fill`,
		"podrun refuses a claim that another object fills",
		"A claim is a directory here; an empty one where a program expects its data is worse than an error."),
	on(ofKubernetes, `spec\.volumeClaimTemplates[]\.spec\.dataSource(Ref)?\..*`, ``,
		"Kubernetes judges what fills a claim",
		follows).where(`spec\.volumeClaimTemplates[]\.spec\.dataSource(Ref)?`),
	on(ofKubernetes, `spec\.volumeClaimTemplates[]\.spec\.volumeAttributesClassName`, ``,
		"podrun does not judge a claim's `volumeAttributesClassName`", ignored),
	on(ofPodrun, `spec\.(awsElasticBlockStore|local)`, `needs a driver|use hostPath`,
		"podrun refuses PersistentVolumes of other kinds than csi, hostPath and nfs",
		"Only a driver of the kubelet's own could mount them; the message says what to use."),
	on(ofPodrun, `spec`, `must specify a volume type`, "podrun then misses the kind of the PersistentVolume",
		follows).where(`spec\.(awsElasticBlockStore|local)`),
	on(ofKubernetes, `spec\.nodeAffinity`, `Local volume requires`, "Kubernetes judges what a `local` volume needs",
		follows).where(`spec\.local`),
	on(ofPodrun, `spec\.(claimRef|csi\.nodeStageSecretRef)\.namespace`, `Required`,
		"podrun needs the namespaces that a PersistentVolume refers to",
		"In Kubernetes a controller or the one who binds fills them in; here nobody would."),
	on(ofPodrun, `spec\.volumeMode`, `only volumes of csi`, "podrun refuses hostPath and nfs as block devices",
		"A device of the machine is for a CDI specification or a privileged container; an export is none."),
	on(ofPodrun, `spec\.(?:initC|c)ontainers[]\.volumeDevices[]\.devicePath`, `must be an absolute path`,
		"podrun refuses a `devicePath` that does not begin with `/`", "The kubelet then does not start the container."),
	on(ofPodrun, `spec\.mountOptions`, `only volumes of csi`, "podrun refuses `mountOptions` of hostPath and nfs",
		"They would be ignored: podrun mounts these as it mounts a pod's own volumes."),
	on(ofPodrun, `spec\.accessModes`, `only volumes of csi`, "podrun refuses ReadWriteOncePod for hostPath and nfs",
		"Nothing would keep a second pod from the directory."),
	on(ofPodrun, `spec\.capacity\[storage\]`, `must be given`, "podrun names the capacity that is missing",
		"Kubernetes names the whole map."),
	on(ofKubernetes, `spec\.capacity`, ``, "Kubernetes says `spec.capacity`", misread).where(`spec\.capacity\[storage\]`),
	on(ofPodrun, `spec\.(volumeClaimTemplates[]\.spec\.)?(accessModes[]|resources\.requests\[storage\])`, ``,
		"podrun names what of a claim is wrong", "Kubernetes names the whole list, or spells the path wrongly."),
	on(ofKubernetes, `spec\.(volumeClaimTemplates[]\.spec\.)?(accessModes|resources\[storage\])`, ``,
		"Kubernetes says `accessModes` or `resources[storage]`",
		misread).where(`spec\.(volumeClaimTemplates[]\.spec\.)?(accessModes[]|resources\.requests\[storage\])`),
	on(ofPodrun, `spec\.(updateS|s)trategy\.type`, ``, "podrun names the `type` of a strategy that does not exist",
		"Kubernetes names the strategy."),
	on(ofKubernetes, `spec\.(updateS|s)trategy`, ``, "Kubernetes names the strategy of which the `type` does not exist",
		"podrun names the field that holds the value.").where(`spec\.(updateS|s)trategy\.type`),
	on(ofKubernetes, `labels|annotations`, ``, "Kubernetes says `spec.template.labels` and `spec.template.annotations`",
		misread).where(`metadata\.(labels|annotations|name)`),
	on(ofPodrun, `metadata\.(labels|annotations)`, `valid|name part|no more than|non-empty`,
		"podrun names a template's labels and annotations as they are written",
		"Kubernetes spells the path wrongly."),
	on(ofKubernetes, `spec\.selector.*`, ``, "Kubernetes says more of a selector that is invalid, or that podrun refuses",
		follows).where(`spec\.(selector.*|manualSelector)`),
	on(ofPodrun, `spec\.scheduling`, `Forbidden`, "podrun refuses a Job's `scheduling`",
		"There is no scheduler that would place its pods together."),
	on(ofKubernetes, `spec\.scheduling\..*`, ``, "Kubernetes judges the `scheduling` of a Job",
		follows).where(`spec\.scheduling`),
	on(ofPodrun, `spec\.(selector|manualSelector|managedBy)`, `Forbidden`,
		"podrun refuses a Job's `selector`, `manualSelector` and `managedBy`",
		"The pods of a Job are found by its name, and nobody else runs it here."),
	on(ofKubernetes, `spec\.podFailurePolicy\.rules[]\..*`, ``,
		"Kubernetes judges the conditions of a rule that has exit codes too",
		follows).where(`spec\.podFailurePolicy\.rules[]`),
	on(ofPodrun, `spec\.\w+`, `requires indexed completion mode`,
		"podrun says what needs an Indexed Job though the mode is unknown", follows).where(`spec\.completionMode`),
	on(ofKubernetes, `spec\.maxFailedIndexes`, `requires indexed`,
		"Kubernetes says of each field of an Indexed Job that it is one",
		follows).where(`spec\.backoffLimitPerIndex`),
	on(ofKubernetes, `spec`, `Internal error`, "Kubernetes' validation crashes without `completions`",
		"podrun says that they are missing.").where(`spec\.completions`),
	on(ofPodrun, `spec\.selector`, `Required value`, "podrun misses the selector of a DaemonSet",
		"Kubernetes says that it does not match."),
	on(ofKubernetes, `metadata\.labels`, `does not match template`,
		"Kubernetes says of a selector that is missing that it does not match",
		follows).where(`spec\.(selector|manualSelector)`),
	on(ofPodrun, `--pod-security (?:baseline|restricted)`, `spec\.template\.spec: `,
		"podrun holds a level against a workload without pods",
		"It would have pods after its next change."),
	on(ofKubernetes, `\S*stringData`, `cannot unmarshal`,
		"Kubernetes names `stringData` where podrun names the key in it",
		misread).where(`stringData[]`),
	on(ofPodrun, `spec\.volumes[]\.downwardAPI`, `more than 1 volume type`,
		"podrun names a `downwardAPI` beside another source as it is written",
		"Kubernetes spells the path wrongly."),
	on(ofKubernetes, `spec\.volumes[]\.\w+`, `may not specify more than 1 volume type`,
		"Kubernetes finds a volume's second source beside one that podrun refuses, or spells it wrongly",
		follows).where(`spec\.volumes[]\.\w+`),
	on(ofKubernetes, `spec\.volumes[]\.persistentDisk\.pdName`, ``,
		"Kubernetes says `persistentDisk` for `gcePersistentDisk` or `photonPersistentDisk`",
		misread).where(`spec\.volumes[]\.(gce|photon)PersistentDisk`),
	on(ofKubernetes, `spec\.os`, `Unsupported value|Required value`, "Kubernetes says `spec.os` for `spec.os.name`",
		"podrun names the field that holds the value.").where(`spec\.os\.name`),
	on(ofKubernetes, `spec\.(securityContext|hostUsers|(?:initC|c)ontainers)\S*`, `for a windows pod`,
		"Kubernetes refuses fields beside `os.name: windows`",
		follows).where(`spec\.os\.name`),
	on(ofKubernetes, `spec(?:\.hostNetwork)?`, `hostProcess containers`,
		"Kubernetes says what else a pod with `windowsOptions.hostProcess` needs",
		follows).where(`spec\S*\.windowsOptions|spec\.ephemeralContainers`),
	on(ofPodrun, `spec\.host(PID|IPC)`, `cannot be used together with hostUsers`,
		"podrun names `hostPID` and `hostIPC` beside `hostUsers: false` as they are written",
		"Kubernetes spells the path wrongly."),
	on(ofKubernetes, `spec\.Host(PID|IPC)`, ``, "Kubernetes says `HostPID` and `HostIPC`",
		misread).where(`spec\.host(PID|IPC)`),
	on(ofPodrun, `spec\.(?:initC|c)ontainers[]\.resources\.limits[]`, `must be at most the pod's limit`,
		"podrun names a container's limit that is over the pod's as it is written",
		"Kubernetes spells the path wrongly."),
	on(ofKubernetes, `spec\.resources\.containers[][]\.limits`, ``,
		"Kubernetes names such a limit as if it were under `spec.resources`",
		misread).where(`spec\.(?:initC|c)ontainers[]\.resources\.limits[]`),
	on(ofKubernetes, `spec\.(?:initC|c)ontainers[]\.(liveness|readiness|startup)Probe\..*`, ``,
		"Kubernetes judges a probe's numbers though its action is missing",
		"podrun names what is missing first.").where(`spec\.(?:initC|c)ontainers[]\.(liveness|readiness|startup)Probe`),
	on(ofPodrun, `spec\.(?:initC|c)ontainers[]\.resizePolicy[]\.(resourceName|restartPolicy)`, ``,
		"podrun names what of a `resizePolicy` is wrong",
		"Kubernetes names the whole list."),
	on(ofKubernetes, `spec\.(?:initC|c)ontainers[]\.resizePolicy`, ``,
		"Kubernetes names the `resizePolicy` of which something is wrong",
		"podrun names the field that holds the "+
			"value.").where(`spec\.(?:initC|c)ontainers[]\.resizePolicy[]\.(resourceName|restartPolicy)`),
	on(ofKubernetes, `spec\.nodeName`, `schedulingGates`, "Kubernetes refuses `nodeName` beside `schedulingGates`",
		follows).where(`spec\.schedulingGates`),
	on(ofKubernetes, `metadata\.annotations.*`, `seccomp|'\.\.'|AppArmor|container not found`,
		"podrun does not judge the deprecated annotations of seccomp, and of AppArmor only a container's profile",
		"They count for an API server only, which sets the fields from them. "+ignored),
	on(ofKubernetes, `spec\.securityContext\.seccompProfile\.type`, `annotation and field must match`,
		"podrun does not compare the deprecated annotation of a seccomp profile with the field",
		"The field counts, as for the kubelet. "+ignored),
	on(ofKubernetes, ``, `after top-level value|in numeric literal`,
		"kubectl does not read `---` after a JSON document",
		"The kubelet and YAML do; a file that was put together from two is no error."),
	on(ofPod, `metadata\.(creationTimestamp|finalizers|generat\w+|managedFields|ownerReferences|resourceVersion|selfLink)`, ``,
		"podrun leaves out metadata that only an API server acts on", ignored),
	on(ofPod, `spec\.(volumes|(?:initC|c)ontainers[]\.volumeMounts)`, `kube-api-access-`,
		"podrun leaves out the volume with a token that an API server adds",
		"Nothing here issues the token. A warning says so."),
	on(ofKubernetes, `metadata\.finalizers[]`, `Invalid value`, "podrun does not judge finalizers", ignored),
	on(ofKubernetes, `metadata\.annotations`, `scheduler\.alpha\.kubernetes\.io/tolerations`,
		"podrun does not judge the alpha annotation for tolerations", ignored),
	on(ofKubernetes, `spec\.topologySpreadConstraints[]\..*`, ``, "podrun does not judge topology spread constraints", ignored),
	on(ofPod, ``, `podrun makes 2 pods of it, Kubernetes 1`, "Kubernetes drops without a word what comes after `...`",
		"`...` ends a document in YAML; nothing is dropped silently."),
	on(ofPodrun, `metadata\.labels\.1`, `duplicate key "1", which was spelled`,
		"Kubernetes takes a key that is given twice in two spellings (`1` and `'1'`)",
		"It uses one of the two values, not always the same one."),
	on(ofPodrun, ``, `^text after the end of the document`,
		"Kubernetes drops without a word what comes after the brace that ends a document",
		"Nothing is dropped silently."),
	on(ofPodrun, `items[]|kind`, `is not an object|supported values: Pod$`,
		"podrun looks at the kind of a PodList's items",
		"Kubernetes takes any item as a Pod, and a null one as an empty one, and then misses its fields."),
	on(ofKubernetes, `metadata\.name|spec\.containers`, `name is needed|Required value`,
		"Kubernetes misses the fields of a PodList's item that is no Pod",
		follows).where(`items[]|kind`),
	on(ofPodrun, `--pod-security (?:baseline|restricted)`, `metadata\.annotations\[cdi\.k8s\.io/.*: devices$`,
		"podrun refuses `cdi.k8s.io/` annotations at the levels baseline and restricted",
		"Kubernetes' policy knows nothing of them, since there only device plugins name devices; here "+
			"the manifest does."),
}
