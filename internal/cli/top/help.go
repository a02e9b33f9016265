package top

// Help is the help of the command.
const Help = "top shows the CPU usage of containers in millicores, measured over a second by default, and their memory\n" +
	"working set, which does not count cached file data that has not been used recently. It reads the\n" +
	"kernel's cgroups, so it also works while serve is down. top node shows the same of the whole machine.\n\n" +
	"With --watch it measures again and again, and shows the last 30 measurements of each container as a line,\n" +
	"from nothing to the container's limit, or to the highest of them if it has no limit. What was used\n" +
	"in the last hour serve has, if somebody has looked or with --history: see its web page."
