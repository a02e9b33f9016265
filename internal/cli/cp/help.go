package cp

// Help and Example are the help of the command.
const (
	Help = `cp copies a file or a directory from SOURCE to TARGET. One of them is in a running container, as
POD:PATH or NAMESPACE/POD:PATH, the other one on this machine. The container needs nothing for that, no
tar either. A relative PATH begins at the container's working directory, as podrun exec does.

Into a container, SOURCE goes into TARGET if that is a directory; of a SOURCE that ends with /. the
content does. Out of a container, a file does so too, and what is in a directory goes into TARGET.
Symbolic links below SOURCE are copied into a container as they are, and skipped with a warning out of
it, as devices, FIFOs and files of the kernel always are. A file appears when all of it is copied.

cp writes with the rights of the container's process. If it may change owners, as root may, copies have
the owner and the mode of the file here, without setuid and setgid, else that process owns them. A
read-only file system stays one.`
	Example = `  podrun cp ./site web:/usr/share/nginx/html
  podrun cp web:/var/log/app.log .
  podrun cp batch/import:/data ./data -c loader`
)
