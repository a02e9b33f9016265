package stream

// ExecHelp is the help of podrun exec.
const ExecHelp = "exec runs a command in a running container and exits with the exit code of the command. A restart\n" +
	"of containerd does not end the command."

// ExecExample is the example of podrun exec.
const ExecExample = "  podrun exec web -- cat /etc/hosts\n  podrun exec -it web -c app -- sh\n" +
	"  podrun exec -i db -- psql < dump.sql"
