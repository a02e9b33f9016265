package stream

// ExecHelp is the help of podrun exec.
const ExecHelp = "exec runs a command in a running container and exits with the exit code of the command. A restart\n" +
	"of containerd does not end the command."
