package stream

// AttachHelp is the help of the command.
const AttachHelp = "attach prints what a running container writes from now on, its standard error to standard error.\n" +
	"It exits when the container exits. Interrupting attach does not affect the container.\n\n" +
	"With -i, attach passes standard input to a container whose manifest says stdin: true. It exits at\n" +
	"the end of standard input, and the container's input stays open for the next attach. With\n" +
	"stdinOnce: true the container's input is closed too, however attach ends, and attach prints the\n" +
	"rest of the output. With -it and a container with tty: true, keys and the size of the terminal are\n" +
	"passed to the container; the detach keys detach from it.\n\n" +
	"To run a shell in a running container, use podrun exec -it."
