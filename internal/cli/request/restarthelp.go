package request

// RestartHelp is the help of podrun restart.
const RestartHelp = "restart terminates a container, or all containers of a pod that run, within the grace period, and\n" +
	"starts them again at once, whatever the restartPolicy. It counts as a restart. A wait for a back-off\n" +
	"ends at once, and the back-off begins anew. The pod keeps its address and its volumes; init\n" +
	"containers that have succeeded do not run again, and sidecars are terminated last.\n\n" +
	"The process that runs the pod, serve or once, restarts the containers; it continues if restart is\n" +
	"interrupted. restart exits when the containers run again.\n\n" +
	"The pods of a Deployment or another workload are restarted one after the other: the next one when the one\n" +
	"before has been ready for minReadySeconds, those of a StatefulSet from the last to the first. If one is not\n" +
	"ready in time, the rest stay as they are."
