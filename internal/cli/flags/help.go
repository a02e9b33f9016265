package flags

// ServeHelp is the help of podrun serve.
const ServeHelp = "serve runs the pods of all manifests, restarts containers as the restartPolicy of each pod says,\n" +
	"and applies every change of the manifests, until SIGTERM or SIGINT stops it. The pods then\n" +
	"continue to run, and the next serve takes them over without a restart. A manifest that becomes\n" +
	"invalid never stops a running pod.\n\n" +
	"A pod that another process owns, such as once, is shown as OwnedByOther. serve takes it over as\n" +
	"soon as that process releases it. serve does not touch pods that once runs or has left running if\n" +
	"no manifest of serve names them.\n\n" +
	"With --manifest-url and without --manifests, /etc/pods is read only if it exists, or as soon as it\n" +
	"exists. The last response of the URL is kept on disk, for a restart while the server is down."

// DownHelp is the help of podrun down.
const DownHelp = "down stops the named pods, or with --all all pods of podrun, within their grace periods. It\n" +
	"removes them with everything that podrun created for them, and prints what it waits for if that\n" +
	"takes long.\n\n" +
	"An interrupt ends down within a second, with exit code 130, or 143 for SIGTERM. Run it again to\n" +
	"remove the rest, with a shorter --grace-period if pods take too long to stop.\n\n" +
	"down refuses pods that serve runs, because serve would start them again, and pods that once runs.\n" +
	"With --all it names these pods and removes all others."

// ServeExample is the example of podrun serve.
const ServeExample = "  # run the pods of a machine\n  podrun serve --manifests /etc/pods\n\n" +
	"  # two sources, separate directories, JSON logs\n" +
	"  podrun serve --manifests /etc/pods --manifests /srv/extra.yaml \\\n" +
	"    --root-dir /data/podrun --log-format json\n\n" +
	"  # run the pods that a server returns; ps does not show a secret in an environment variable\n" +
	"  PODRUN_MANIFEST_URL_HEADER='Authorization: Bearer s3cret' \\\n" +
	"    podrun serve --manifest-url https://pods.example/node1.yaml"

// DiffHelp is the help of podrun diff, and DiffExample its example.
const (
	DiffHelp = "diff reads the manifests as serve would and prints for each pod whether serve would create,\n" +
		"replace, update, keep or remove it, and the fields that differ, with their old and new values. diff\n" +
		"changes nothing. What its flags do not say, the name of the node or the manifests for example, is as\n" +
		"the serve that runs has it, or the last one if none does.\n" +
		"FILE, or -f FILE, compares what is in it alone, as kubectl diff does. --manifests names the whole set\n" +
		"of manifests: what is not in it is removed. --manifests - is standard input, as is -f -.\n\n" +
		"An update leaves the pod's containers running: of labels, annotations, the deadline, and CPU and\n" +
		"memory, as soon as the machine has them, or of the files of volumes with an edited ConfigMap or\n" +
		"Secret. If the resizePolicy of a container requires that it restarts, diff says so. Environment\n" +
		"variables with values of an edited ConfigMap or Secret keep their old value until the container\n" +
		"restarts, so they are no update.\n\n" +
		"Exit code: 0 serve would change nothing; 1 serve would create, replace, update or remove pods;\n" +
		"2 a source cannot be read or used."
	DiffExample = "  # show what a new set of manifests would change on this machine\n" +
		"  podrun diff --manifests new/\n\n" +
		"  # show what one manifest would change\n" +
		"  podrun diff -f web.yaml\n\n" +
		"  podrun diff --manifest-url https://pods.example/node1.yaml -o json"
)
