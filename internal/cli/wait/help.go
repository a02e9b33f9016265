package wait

// Help is the help of the command.
const Help = "wait exits when each of the pods has met the condition of --for, or with exit code 1 at the\n" +
	"timeout. It also waits for pods that do not exist yet, but fails at once if serve runs and none of\n" +
	"its manifests names the pod; --for=create waits even then. --selector and --all select from the\n" +
	"pods that exist when wait starts. All must meet the condition at one time. Whether a pod is ready is unknown\n" +
	"while no process runs it, so wait then waits until a process does. An edit of a manifest file that serve has\n" +
	"not read yet is waited for too; wait fails if the manifest cannot be used, or is rolled back by itself.\n\n" +
	"deployment/NAME, or another workload, stands for all its pods. It is the workload itself with a jsonpath,\n" +
	"create and delete, and with --for=condition=Complete, which it is when all its pods have the template and are\n" +
	"available, and no others are left; after podrun undo, the former one. A Deployment has the conditions\n" +
	"Available and Progressing too; Progressing=False is one whose edit was rolled back or is late.\n" +
	"job/NAME is the Job itself, with the conditions Complete, Failed and Suspended, and wait fails when it has\n" +
	"finished otherwise; so are job NAME, unless there is a pod of the name job, and jobs --all.\n\n--for is one of\n\n" +
	"  condition=NAME[=True|False]  a condition of the pod: Ready, Initialized, ContainersReady, …\n" +
	"  phase=NAME                   Pending, Running, Succeeded or Failed\n" +
	"  jsonpath={PATH}[=VALUE]      a field of the pod, or of the workload, exists, or has that value\n" +
	"  create                       the pod, or workload, exists\n" +
	"  delete                       it has been removed"

// Example is the example of the command.
const Example = "  podrun wait web --for=condition=Ready --timeout 60s\n  podrun wait job --for=phase=Succeeded\n" +
	"  podrun wait web db --for=delete\n  podrun wait pods --all --for=condition=Ready\n" +
	"  podrun wait job backup --for=condition=Complete\n  podrun wait deployment/web --for=condition=Complete"
