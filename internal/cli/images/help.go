package images

// LoadHelp is the help of podrun images load.
const LoadHelp = "load loads images from OCI or Docker archives, compressed or not. The file - is standard input.\n" +
	"Pods that wait for one of the images start at once."

// PruneHelp is the help of podrun images prune.
const PruneHelp = "prune removes images that no container, running or not, and no volume of a pod uses, except pinned\n" +
	"images and those that a rollback would run. It also removes what interrupted pulls have fetched."

// PullHelp is the help of podrun images pull.
const PullHelp = "pull fetches images, whether or not they are present, and prints each with its digest. It does not\n" +
	"fetch again what an interrupted pull has fetched. Pods that wait for one of the images start at once."

// OutdatedHelp is the help of podrun images outdated.
const OutdatedHelp = "outdated asks the registries of images whether their tags refer to other images by now, and lists those\n" +
	"whose do. It pulls nothing; podrun images pull does. An image that was loaded from an archive and pushed by another\n" +
	"program can have another digest there with the same content. The exit code is 1 if a registry could not be asked."

// SaveHelp is the help of podrun images save.
const SaveHelp = "save writes images, for the platform of this machine, to an archive that podrun images load,\n" +
	"docker and other tools can read."

// Example is the example of podrun images.
const Example = "  podrun images\n  podrun images pull docker.io/library/nginx:1.29\n" +
	"  podrun images load web.tar\n  podrun images prune"
