package query

// WaitHelp is the help of the command.
const WaitHelp = "wait exits when each of the pods has met the condition of --for, or with exit code 1 at the\n" +
	"timeout. It also waits for pods that do not exist yet, but fails at once if serve runs and none of\n" +
	"its manifests names the pod; --for=create waits even then. --selector and --all select from the\n" +
	"pods that exist when wait starts. Whether a pod is ready is unknown while no process runs it, so\n" +
	"wait then waits until a process does. wait fails when a pod is rolled back. deployment/NAME stands for all pods of the\n" +
	"Deployment; it is the Deployment itself with the conditions Available and Progressing, and with\n" +
	"--for=condition=Complete, which it is when all its pods have the template and are available, and no\n" +
	"others are left. Progressing=False is one whose edit was rolled back or is late.\n" +
	"job/NAME is the Job itself, with the conditions Complete, Failed and Suspended; so are job NAME, unless\n" +
	"there is a pod of the name job, and jobs --all.\n\n--for is one of\n\n" +
	"  condition=NAME[=True|False]  a condition of the pod: Ready, Initialized, ContainersReady, …\n" +
	"  phase=NAME                   Pending, Running, Succeeded or Failed\n" +
	"  jsonpath={PATH}[=VALUE]      a field of the pod exists, or has that value\n" +
	"  create                       the pod exists\n" +
	"  delete                       the pod has been removed"

// WaitExample is the example of the command.
const WaitExample = "  podrun wait web --for=condition=Ready --timeout 60s\n  podrun wait job --for=phase=Succeeded\n" +
	"  podrun wait web db --for=delete\n  podrun wait pods --all --for=condition=Ready\n" +
	"  podrun wait job backup --for=condition=Complete\n  podrun wait deployment/web --for=condition=Complete"
