package portforward

// Help is the help of the command.
const Help = "port-forward listens on the port LOCAL of this machine and connects to the port REMOTE at\n" +
	"localhost inside the pod, so it also reaches processes that listen only there. REMOTE is the\n" +
	"number of a port, or its name in the manifest. LOCAL defaults to REMOTE; :REMOTE selects a free\n" +
	"local port. port-forward continues across restarts of the pod until it is interrupted or the pod\n" +
	"is removed. It forwards TCP only."

// Example is the example of podrun port-forward.
const Example = "  podrun port-forward web 8080:80\n  podrun port-forward web :http\n" +
	"  podrun port-forward db 5432 --address 192.0.2.1"
