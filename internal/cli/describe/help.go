package describe

// Help is the help of the command.
const Help = "describe shows the path of a pod's manifest and the errors in it, the current and the last state\n" +
	"of each container, its ports, resources, environment without the values of Secrets, mounts, and\n" +
	"probes with their last results, the pod's conditions and volumes, the last log lines of containers\n" +
	"that are not well, and the events of the pod. Of a workload it shows how many of its pods are there, updated\n" +
	"and available, how they are updated, its conditions and events, and then its pods. It also works while serve\n" +
	"is down."
