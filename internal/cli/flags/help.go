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
