package logs

// Help is the help of the command.
const Help = "logs prints the log of a container, its standard error to standard error. It also works while\n" +
	"serve is down. With -f it follows the log across restarts as long as podrun runs the pod, and\n" +
	"exits when the container will not run again. Lines of several containers are prefixed with the pod\n" +
	"and the container. deployment/NAME stands for all pods of the Deployment."
