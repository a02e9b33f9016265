package query

// DownHelp is the help of podrun down.
const DownHelp = "down stops the named pods, or with --all all pods of podrun, within their grace periods. It\n" +
	"removes them with everything that podrun created for them, and prints what it waits for if that\n" +
	"takes long.\n\n" +
	"An interrupt ends down within a second, with exit code 130, or 143 for SIGTERM. Run it again to\n" +
	"remove the rest, with a shorter --grace-period if pods take too long to stop.\n\n" +
	"down refuses pods that serve runs, because serve would start them again, and pods that once runs.\n" +
	"With --all it names these pods and removes all others."
