package pod

const (
	// AnnotationRollback says whether a revision of the manifest that does not become healthy in time gives way to the
	// last one that was: "true" or "false".
	AnnotationRollback = "podrun.io/rollback"
	// AnnotationProgressDeadline is for how many seconds a revision may take to become healthy.
	AnnotationProgressDeadline = "podrun.io/progress-deadline-seconds"
)
