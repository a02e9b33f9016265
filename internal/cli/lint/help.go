package lint

// ValidateHelp is the help of podrun validate.
const ValidateHelp = "validate reads manifests as serve does and prints every error with its file, line and field. It\n" +
	"warns about fields that podrun ignores, about objects of kinds that it reads and does not need, and\n" +
	"about manifests that users other than root and the owner can write. The environment variables that\n" +
	"set flags of serve set them here too: PODRUN_NODE_NAME, PODRUN_NO_NODE_SUFFIX, PODRUN_POD_SECURITY,\n" +
	"PODRUN_STRICT_FIELDS, PODRUN_STRICT_KINDS, PODRUN_IGNORE_NODE_NAME and PODRUN_STRICT_PERMISSIONS.\n" +
	"Of files that serve reads it also says what serve does about an owner other than root.\n" +
	"What neither flags nor variables say is as the serve that runs has it, or the last one if none does.\n\n" +
	"Exit code: 0 all manifests can be used; 1 some cannot; 2 some cannot be read."

// ValidateExample is the example of podrun validate.
const ValidateExample = "  podrun validate /etc/pods\n  podrun validate web.yaml job.yaml -o json\n" +
	"  podrun get pods -o yaml | podrun validate -"
