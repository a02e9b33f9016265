package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// restricted is a pod that level restricted allows, with all kinds of containers and volumes that
// the level allows.
const restricted = `{"apiVersion":"v1","kind":"Pod",
"metadata":{"name":"restricted","namespace":"n","labels":{"k":"v"},"annotations":{"k":"v"}},
"spec":{
 "restartPolicy":"OnFailure","terminationGracePeriodSeconds":5,"hostname":"h","subdomain":"s",
 "securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},
 "volumes":[{"name":"e","emptyDir":{}},{"name":"p","persistentVolumeClaim":{"claimName":"p"}},{"name":"c","configMap":{"name":"c"}},
  {"name":"s","secret":{"secretName":"s"}},{"name":"i","image":{"reference":"i"}},
  {"name":"d","downwardAPI":{"items":[{"path":"n","fieldRef":{"fieldPath":"metadata.name"}}]}},
  {"name":"j","projected":{"sources":[{"secret":{"name":"s"}},{"configMap":{"name":"c"}}]}}],
 "initContainers":[{"name":"a","image":"i","securityContext":` + safe + `},
  {"name":"b","image":"i","restartPolicy":"Always","securityContext":` + safe + `}],
 "containers":[{"name":"c","image":"i","securityContext":` + safe + `,
   "env":[{"name":"A","value":"1"}],"ports":[{"containerPort":80}],
   "volumeMounts":[{"name":"e","mountPath":"/e"},{"name":"p","mountPath":"/p","subPath":"x"}],
   "livenessProbe":{"httpGet":{"port":80}},"lifecycle":{"preStop":{"exec":{"command":["a"]}}}},
  {"name":"d","image":"i","stdin":true,"tty":true,"securityContext":` + safe + `}]}}`

// safe is the security context of a container that level restricted allows.
const safe = `{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}`

// places are the paths of containers of each kind: an init container, a sidecar, two containers,
// and an ephemeral one.
var places = []string{"spec.initContainers[0]", "spec.initContainers[1]", "spec.containers[0]", "spec.containers[1]",
	"spec.ephemeralContainers[0]"}

// ofContainers has values for the fields of a container that the policy checks.
var ofContainers = map[string][]string{
	"securityContext":                          {`null`, `{}`, safe},
	"securityContext.privileged":               {`true`, `false`, `null`},
	"securityContext.allowPrivilegeEscalation": {`true`, `false`, `null`},
	"securityContext.capabilities": {`null`, `{}`, `{"drop":[]}`, `{"drop":["ALL"]}`, `{"drop":["all"]}`,
		`{"drop":["CAP_ALL"]}`, `{"drop":["NET_RAW"]}`,
		`{"drop":["KILL","ALL"]}`, `{"add":["ALL"],"drop":["ALL"]}`, `{"add":["all"],"drop":["ALL"]}`,
		`{"add":["NET_RAW","NET_BIND_SERVICE"],"drop":["ALL"]}`},
	"securityContext.procMount":      {`"Default"`, `"Unmasked"`, `""`, `null`},
	"securityContext.runAsNonRoot":   {`true`, `false`, `null`},
	"securityContext.runAsUser":      {`0`, `1`, `null`},
	"securityContext.runAsGroup":     {`0`, `1`},
	"securityContext.seLinuxOptions": seLinux,
	"securityContext.seccompProfile": {`null`, `{}`, `{"type":"RuntimeDefault"}`, `{"type":"Unconfined"}`,
		`{"type":""}`, `{"type":"x"}`,
		`{"type":"Localhost","localhostProfile":"a"}`, `{"type":"Localhost","localhostProfile":"../a"}`},
	"securityContext.appArmorProfile": {`null`, `{}`, `{"type":"RuntimeDefault"}`, `{"type":"Unconfined"}`,
		`{"type":""}`, `{"type":"x"}`,
		`{"type":"Localhost","localhostProfile":"a"}`, `{"type":"Localhost","localhostProfile":"unconfined"}`},
	"securityContext.windowsOptions": windows,
	"ports": {`[{"containerPort":80,"hostPort":80}]`, `[{"containerPort":80,"hostPort":0}]`,
		`[{"containerPort":80},{"containerPort":81,"hostPort":81,"protocol":"UDP"}]`,
		`[{"containerPort":80,"hostIP":"127.0.0.1"}]`},
	"livenessProbe":       probes,
	"readinessProbe":      probes,
	"startupProbe":        probes,
	"lifecycle.postStart": hooks,
	"lifecycle.preStop":   hooks,
	"volumeMounts": {`[{"name":"e","mountPath":"/e","mountPropagation":"Bidirectional"}]`,
		`[{"name":"e","mountPath":"/e","mountPropagation":"HostToContainer"}]`,
		`[{"name":"e","mountPath":"/proc"}]`, `[{"name":"e","mountPath":"/e","subPathExpr":"$(A)"}]`,
		`[{"name":"e","mountPath":"/e","subPath":"../.."}]`},
	"volumeDevices": {`[{"name":"p","devicePath":"/dev/p"}]`},
	"resources":     {`{"limits":{"example.com/gpu":"1"}}`, `{"claims":[{"name":"a"}]}`},
	"envFrom":       {`[{"secretRef":{"name":"s"}}]`},
	"env": {`[{"name":"A","valueFrom":{"fileKeyRef":{"volumeName":"e","path":"a","key":"b"}}}]`,
		`[{"name":"PODRUN_WITHHELD","value":"/"}]`},
}

var (
	seLinux = []string{`null`, `{}`, `{"type":"container_t"}`, `{"type":"container_init_t"}`,
		`{"type":"container_kvm_t"}`, `{"type":"container_engine_t"}`,
		`{"type":"spc_t"}`, `{"type":"container_t "}`, `{"user":"system_u"}`, `{"role":"system_r"}`,
		`{"level":"s0:c1,c2"}`}
	windows = []string{`null`, `{}`, `{"hostProcess":true}`, `{"hostProcess":false}`, `{"runAsUserName":"a"}`}
	probes  = []string{`{"httpGet":{"port":80,"host":"127.0.0.1"}}`, `{"httpGet":{"port":80,"host":""}}`,
		`{"tcpSocket":{"port":80,"host":"127.0.0.1"}}`,
		`{"tcpSocket":{"port":80}}`, `{"grpc":{"port":80}}`, `{"exec":{"command":["a"]}}`,
		`{"httpGet":{"port":80,"httpHeaders":[{"name":"Host","value":"127.0.0.1"}]}}`,
		`{"httpGet":{"port":80,"path":"http://127.0.0.1/"}}`}
	hooks = append([]string{`{"sleep":{"seconds":1}}`}, probes...)
)

// capabilitiesToAdd are names of capabilities that a level allows or forbids to add.
var capabilitiesToAdd = []string{"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
	"NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP",
	"SETUID", "SYS_CHROOT", "NET_RAW", "SYS_ADMIN", "BPF", "ALL", "CAP_NET_BIND_SERVICE", "CAP_CHOWN", "CAP_SYS_ADMIN",
	"net_bind_service", "sys_admin", "Cap_Sys_Admin", "all"}

// ofPods has values for the fields of a pod that the policy checks, or might check.
var ofPods = map[string][]string{
	"spec.hostNetwork": {`true`, `false`}, "spec.hostPID": {`true`, `false`}, "spec.hostIPC": {`true`, `false`},
	"spec.hostUsers":             {`true`, `false`, `null`},
	"spec.shareProcessNamespace": {`true`}, "spec.os": {`{"name":"windows"}`, `{"name":"linux"}`, `{"name":"Windows"}`},
	"spec.securityContext": {`null`, `{}`, `{"runAsNonRoot":true}`,
		`{"seccompProfile":{"type":"RuntimeDefault"}}`},
	"spec.securityContext.runAsNonRoot":   {`true`, `false`, `null`},
	"spec.securityContext.runAsUser":      {`0`, `1`, `null`},
	"spec.securityContext.runAsGroup":     {`0`},
	"spec.securityContext.fsGroup":        {`0`},
	"spec.securityContext.windowsOptions": windows, "spec.securityContext.seLinuxOptions": seLinux,
	"spec.securityContext.seccompProfile":     ofContainers["securityContext.seccompProfile"],
	"spec.securityContext.appArmorProfile":    ofContainers["securityContext.appArmorProfile"],
	"spec.securityContext.supplementalGroups": {`[0]`},
	"metadata.annotations": {
		`{"container.apparmor.security.beta.kubernetes.io/c":"unconfined"}`,
		`{"container.apparmor.security.beta.kubernetes.io/c":"runtime/default"}`,
		`{"container.apparmor.security.beta.kubernetes.io/":"x"}`,
		`{"seccomp.security.alpha.kubernetes.io/pod":"unconfined"}`,
		`{"container.seccomp.security.alpha.kubernetes.io/c":"unconfined"}`, `{"cdi.k8s.io/a":"example.com/gpu=all"}`,
		`{"cdi.k8s.io/a":""}`,
		`{"CDI.k8s.io/a":"example.com/gpu=all"}`, `{"k8s.v1.cni.cncf.io/networks":"lan"}`,
		`{"podrun.io/run-policy":"once-ever"}`,
		`{"podrun.io/after":"a"}`, `{"podrun.io/nosuch":"a"}`, `{"run.oci.hooks.stdout":"/x"}`,
		`{"io.containerd.runc.v2.group":"g"}`, `{"org.criu.config":"/x"}`},
	"metadata.uid":          {`"12345678-1234-1234-1234-123456789abc"`, `"../x"`},
	"metadata.name":         {`"../x"`},
	"metadata.labels":       {`{"pod-security.kubernetes.io/enforce":"privileged"}`, `{"podrun.io/user":"x"}`},
	"metadata.generateName": {`"a-"`}, "spec.runtimeClassName": {`"a"`},
	"spec.priorityClassName": {`"system-node-critical"`},
	"spec.resourceClaims":    {`[{"name":"a","resourceClaimName":"a"}]`}, "spec.imagePullSecrets": {`[{"name":"s"}]`},
}

// sysctls are names of safe and other kernel parameters.
var sysctls = []string{"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
	"net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat",
	"net/ipv4/tcp_syncookies", "net/ipv4.tcp_syncookies",
	"kernel.msgmax", "kernel/core_pattern", "kernel.core_pattern", "net.ipv4.ip_forward", "fs.mqueue.queues_max",
	"vm.overcommit_memory"}

// ofSources has a minimal source of each kind of volume that needs more than {}.
var ofSources = map[string]string{
	"hostPath": `{"path":"/"}`, "nfs": `{"server":"a","path":"/"}`, "configMap": `{"name":"a"}`,
	"secret": `{"secretName":"a"}`, "image": `{"reference":"i"}`,
	"persistentVolumeClaim": `{"claimName":"a"}`, "gitRepo": `{"repository":"a"}`,
	"iscsi":       `{"targetPortal":"a","iqn":"iqn.2026-01.a:b","lun":0}`,
	"downwardAPI": `{"items":[{"path":"a","fieldRef":{"fieldPath":"metadata.name"}}]}`,
	"projected":   `{"sources":[{"secret":{"name":"a"}}]}`,
	"csi":         `{"driver":"a"}`, "flexVolume": `{"driver":"a/b"}`, "fc": `{"targetWWNs":["a"],"lun":0}`,
	"rbd": `{"monitors":["a"],"image":"i"}`,
}

// sources returns the names of all kinds of volumes.
func sources() []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[v1.VolumeSource]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// change is a JSON value to set at a path.
type change struct{ at, value string }

// restrictingChanges returns the changes on which it depends whether a level allows a pod.
func restrictingChanges() []change {
	var all []change
	for _, at := range slices.Sorted(maps.Keys(ofPods)) {
		for _, value := range ofPods[at] {
			all = append(all, change{at, value})
		}
	}
	for _, name := range sysctls {
		all = append(all, change{"spec.securityContext.sysctls", fmt.Sprintf(`[{"name":%q,"value":"1"}]`, name)})
	}
	for _, kind := range sources() {
		source := ofSources[kind]
		if source == "" {
			source = `{}`
		}
		all = append(all, change{"spec.volumes[0]", fmt.Sprintf(`{"name":"e",%q:%s}`, kind, source)})
		// The policy of restricted accepts a volume as soon as one of its sources is allowed.
		all = append(all, change{"spec.volumes[0]", fmt.Sprintf(`{"name":"e","emptyDir":{},%q:%s}`, kind, source)})
		all = append(all,
			change{"spec.volumes[4]", fmt.Sprintf(`{"name":"i","image":{"reference":"i"},%q:%s}`, kind, source)})
	}
	for _, place := range places {
		for _, at := range slices.Sorted(maps.Keys(ofContainers)) {
			for _, value := range ofContainers[at] {
				all = append(all, change{place + "." + at, value})
			}
		}
		for _, name := range capabilitiesToAdd {
			all = append(all,
				change{place + ".securityContext.capabilities", fmt.Sprintf(`{"drop":["ALL"],"add":[%q]}`, name)})
		}
	}
	return all
}

// restrictions returns manifests for the levels of the Pod Security Standards: each change in a pod
// that restricted allows, in one that baseline allows, and in both with a user namespace of their
// own; every edge value in the restricted one; and the disguises.
func restrictions() []manifest {
	var all []manifest
	seen := map[string]bool{}
	add := func(name string, data []byte) {
		if !seen[name] {
			seen[name] = true
			all = append(all, manifest{Name: name, Data: data})
		}
	}
	baseline := strings.NewReplacer(safe, `{}`, `{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}}`,
		`{}`).Replace(restricted)
	for _, base := range []struct{ name, text string }{{"restricted", restricted}, {"baseline", baseline}} {
		for _, users := range []string{"", "own users, "} {
			for _, c := range append([]change{{"spec.restartPolicy", `"Never"`}}, restrictingChanges()...) {
				pod := parse(base.text)
				if users != "" {
					pod.set(parsePath("spec.hostUsers"), `false`)
				}
				if strings.HasPrefix(c.at, "spec.ephemeralContainers") {
					pod.set(parsePath("spec.ephemeralContainers[0]"),
						`{"name":"x","image":"i","securityContext":`+safe+`}`)
				}
				pod = parse(string(pod.bytes())) // set does not lead into values that were set before
				if pod.set(parsePath(c.at), c.value) {
					add(fmt.Sprintf("%s, %s%s = %s", base.name, users, c.at, short(c.value)), pod.bytes())
				}
			}
		}
	}
	for _, f := range fields() {
		for _, value := range append(edgeValues(f.t), special[plain(f.path)]...) {
			pod := parse(restricted)
			if name := plain(f.path); strings.HasPrefix(name, "spec.volumes.") && name != "spec.volumes.name" {
				pod.set(parsePath("spec.volumes[0]"), `{"name":"e"}`) // a volume has one source
				pod = parse(string(pod.bytes()))
			}
			if sameKind(f.t, value) && pod.set(f.path, value) {
				add("restricted edge "+written(f.path)+" = "+short(value), pod.bytes())
			}
		}
	}
	for _, m := range disguises() {
		add(m.Name, m.Data)
	}
	return all
}

// disguises returns manifests with a pod that no level allows, written so that a check might miss
// it.
func disguises() []manifest {
	pod := parse(restricted).value
	text := func(value any) string { return string(tree{value}.bytes()) }
	bad := parse(restricted)
	bad.set(parsePath("spec.hostPID"), `true`)
	good, worse := text(pod), string(bad.bytes())
	second := strings.Replace(worse, `"name": "restricted"`, `"name": "second"`, 1)
	plain := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    image: i\n"
	var all []manifest
	for _, one := range []struct{ name, text string }{
		{"second document", good + "---\n" + second},
		{"second document in JSON", good + second},
		{"after the document's end", plain + "...\n---\n" + second},
		{"in a List", `{"apiVersion":"v1","kind":"List","items":[` + good + "," + second + `]}`},
		{"in a PodList", `{"apiVersion":"v1","kind":"PodList","items":[` + good + "," + second + `]}`},
		{"in a PodList without a kind", `{"apiVersion":"v1","kind":"PodList","items":[` +
			strings.NewReplacer(`"apiVersion": "v1",`, "", `"kind": "Pod",`, "").Replace(worse) + `]}`},
		{"in a List in a List",
			`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"List","items":[` + worse + `]}]}`},
		{"by a merge key", plain + "    <<: {securityContext: {privileged: true}}\n"},
		{"by an alias", "x: &x {privileged: true}\n" + plain + "    securityContext: *x\n"},
		{"by an anchor in the pod",
			plain + "    securityContext: &x {privileged: true}\n  - name: d\n    image: i\n    securityContext: *x\n"},
		{"spelled yes", plain + "    securityContext: {privileged: yes}\n"},
		{"spelled on", plain + "  hostPID: on\n"},
		{"with a tag", plain + "    securityContext: {privileged: !!bool \"true\"}\n"},
		{"given twice", plain + "    securityContext: {privileged: false, privileged: true}\n"},
		{"in another case", plain + "    securityContext: {Privileged: true}\n  HostPID: true\n"},
		{"given twice in two cases", plain + "    securityContext: {privileged: false, PRIVILEGED: true}\n"},
		{"escaped in JSON", strings.Replace(worse, `"hostPID"`, `"host\u0050ID"`, 1)},
	} {
		all = append(all, manifest{Name: "disguised, " + one.name, Data: []byte(one.text)})
	}
	return all
}
