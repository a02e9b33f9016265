package list

// Help is the help of podrun get, and Example has its examples.
const (
	Help = "get pods lists the pods with the status that serve last published. While serve is down, it also\n" +
		"prints the age of that status. NAME is the full name of a pod or its name in the manifest. REASON\n" +
		"is the reason why a pod is not well, cut off at the width of the terminal; podrun describe prints\n" +
		"all of it. A pod that no process runs is Unowned; REASON then shows the age of its last status.\n\n" +
		"-o manifest prints pods as they may be put back into the directory of manifests: without status,\n" +
		"defaults and what podrun adds.\n\n" +
		"get deployments lists the Deployments of serve with their pods counted, and so do statefulsets,\n" +
		"daemonsets and replicasets; those of podrun once are listed as long as they have pods. get jobs shows\n" +
		"what has become of the Jobs of serve, also when their pods are gone. get jobs,pods lists several types,\n" +
		"and get all pods and workloads. -f lists what the manifest has: a Deployment, not its pods.\n\n" +
		"get volumes lists the persistentVolumeClaims that pods have and those that have a volume: a PersistentVolume,\n" +
		"what a CSI driver has made, or a directory. -o wide shows the driver and its name for the volume, or the path.\n" +
		"podrun volumes rm removes them.\n\n" +
		"get plugins lists the plugins that serve --plugins knows. get events is the same as podrun events."

	Example = "  podrun get pods\n  podrun get volumes -A\n  podrun get deployment web\n  podrun get jobs\n" +
		"  podrun get pods -A -o wide\n  podrun get pod web -o yaml\n  podrun get pods -l app=web -w\n" +
		"  podrun get -f /etc/pods/web.yaml\n" +
		"  podrun get pods -o jsonpath='{.items[*].metadata.name}'\n" +
		"  podrun get pods -o custom-columns=POD:.metadata.name,IP:.status.podIP"
)

// EventsHelp is the help of podrun events.
const EventsHelp = "events shows the events of pods and of manifests that cannot be used, oldest first. podrun keeps\n" +
	"the last 50 events of each pod and the last 1000 of all pods, including removed pods."

// EventsExample is the example of podrun events.
const EventsExample = "  podrun events\n  podrun events web -w\n" +
	"  podrun events -A --types Warning\n  podrun events web -o json"
