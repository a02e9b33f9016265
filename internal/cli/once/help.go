package once

import "podrun.io/podrun/internal/agent/result"

// The defaults of the flags.
const (
	DefaultCleanupTimeout = result.DefaultCleanupTimeout
	DefaultStable         = result.DefaultStable
	DefaultPullTimeout    = result.DefaultPullTimeout
)

// Help is the help of the command.
const Help = "once runs the pods, waits until each is done and exits. A pod with restartPolicy Never or\n" +
	"OnFailure is done when it has succeeded or failed. A pod with restartPolicy Always, a service, is\n" +
	"done when it has been ready for --service-stable without a restart; once leaves it running unless\n" +
	"--rm is set. A service that waits in crash back-off when all jobs have ended has failed.\n\n" +
	"A pod has one owner process at a time. If serve or another once owns one of the pods, once names\n" +
	"that process and exits before it starts anything. once takes over running pods that no process\n" +
	"owns, and runs completed pods again. Pods that once leaves running stay until serve takes them\n" +
	"over, because it has a manifest for them, or until down removes them.\n\n" +
	"Exit code: 0 every pod succeeded or is ready; 1 a pod failed; 2 bad usage, a manifest that cannot\n" +
	"be used or a pod that another process owns (nothing was started); 3 containerd out of reach; 124\n" +
	"--timeout passed; 130 interrupted, 143 by SIGTERM, 141 because the reader of the output has closed\n" +
	"it.\n\n" +
	"At --timeout, once stops and removes the pods that are not done; at an interrupt, all pods. The\n" +
	"logs of those that were not done stay. Each pod has its grace period; what it writes until its end\n" +
	"is printed with its log, and is in the report. A second interrupt kills the pods, and once exits\n" +
	"immediately. An interrupt after the results are known ends the clean-up within a second, also with\n" +
	"exit code 130 or 143.\n\n" +
	"once exits when the results are known. If the clean-up takes longer than --cleanup-timeout, not\n" +
	"counting the grace periods of pods that stop, once prints a warning that names what is left. once\n" +
	"always replaces the report, however it ends. If no pod was run, the report has the errors.\n\n" +
	"--timeline FILE writes what the run has spent its time on until its results were known (pulls,\n" +
	"unpacking, sandboxes, networks, volumes, starts, runs, probes, back-offs and waiting), as a drawing\n" +
	"(.svg) or as JSON (.json). The critical path, what the end waited for, is marked.\n\n" +
	"A pod with the annotation podrun.io/after starts when the pods that the annotation names have\n" +
	"succeeded or, with restartPolicy Always, are ready. If one of them fails, the pod is not started."

// Example is the example of podrun once.
const Example = "  # run a job from standard input and print its whole log\n" +
	"  podrun once - --logs all <job.yaml\n\n" +
	"  # in CI: run for at most ten minutes, write a JUnit report and leave nothing behind\n" +
	"  podrun once ci/ --timeout 10m --report result.xml --rm"
