package top

// Help is the help of the command.
const Help = "top shows the CPU usage of containers in millicores, measured over a second by default, and their memory\n" +
	"working set, which does not count cached file data that has not been used recently. It reads the\n" +
	"kernel's cgroups, so it also works while serve is down. top node shows the same of the whole machine.\n\n" +
	"With --watch it measures again and again, and shows what each container has used recently as a line, from\n" +
	"nothing to the container's limit, or to the highest value if it has no limit. The line begins with what the serve\n" +
	"that runs has of the last hour, if its web page was open then or with serve --history; each character is the mean\n" +
	"of up to 2 minutes. Otherwise it shows the last 30 measurements."
