package cp

// Long and Example are the help of the command.
const (
	Long = `cp copies a file or a directory from SOURCE to TARGET. One of them is in a running container, as
POD:PATH or NAMESPACE/POD:PATH, the other one on this machine. The container needs nothing for that, no
tar either. A relative PATH begins at the working directory of the container's process.

Into a container, SOURCE goes into TARGET if that is a directory. Out of a container, a file does so
too, and what is in a directory goes into TARGET. Symbolic links are copied into a container, never out
of it: cp skips them with a warning, as it does devices and FIFOs. A file appears when all of it is copied.

Copies in the container have the owner and mode of the file here if the container's process is root
there, else that process owns them. A read-only file system stays one.`
	Example = `  podrun cp ./site web:/usr/share/nginx/html
  podrun cp web:/var/log/app.log .
  podrun cp batch/import:/data ./data -c loader`
)
