package request

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/cronjobs"
)

// CreateHelp is the help of podrun create.
const CreateHelp = "create job makes a Job from a CronJob now, whatever its schedule is and even if it is suspended. serve runs\n" +
	"the Job, which counts neither for the CronJob's concurrencyPolicy nor as a time of its schedule. It is\n" +
	"removed with the Jobs of the CronJob that have finished, by its history limits, and with the CronJob."

// Jobs is where Jobs are requested.
type Jobs interface {
	Post(q cronjobs.Request) error
	Remove(q cronjobs.Request)
}

// Creator asks for Jobs.
type Creator struct {
	Streams  cli.Streams
	Reader   *query.Reader
	Requests Jobs
	// Accept is how long serve may take to create the Job.
	Accept time.Duration
}

// JobOptions say what is created. From is cronjob/NAME.
type JobOptions struct{ Namespace, From string }

// starting is how long a serve may take until it shows that it runs.
const starting = 10 * time.Second

var errNotCreated = errors.New("not created in time")

// Job asks for a Job by the arguments `job NAME`, and returns when it exists.
func (c Creator) Job(ctx context.Context, o JobOptions, args []string) error {
	name, from, err := parse(o, args)
	if err != nil {
		return err
	}
	cron, err := c.Reader.CronJob(o.Namespace, from)
	if err == nil && cron == nil {
		err = query.WorkloadNotFound(workload.ID{
			Kind: workload.CronJob, Key: pod.Key{Namespace: o.Namespace, Name: from},
		})
	}
	if err == nil {
		err = c.check(cron, name)
	}
	if err != nil {
		return err
	}
	q := cronjobs.Request{UID: string(cron.UID), Job: name}
	if err := c.Requests.Post(q); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Accept, errNotCreated)
	defer cancel()
	err = c.Reader.OnChange(ctx, c.Reader.Dirs.Run, func() (bool, error) {
		now, err := c.Reader.CronJob(o.Namespace, from)
		if err == nil && (now == nil || now.UID != cron.UID) {
			return false, fmt.Errorf("cronjob %q was removed or replaced", from)
		}
		job, err := c.Reader.Job(o.Namespace, name)
		return job != nil, err
	})
	if err != nil {
		c.Requests.Remove(q)
	}
	if errors.Is(err, errNotCreated) {
		return fmt.Errorf("podrun serve has not created the job within %s; the request is withdrawn", c.Accept)
	}
	if err == nil {
		_, err = fmt.Fprintf(c.Streams.Out, "job.batch/%s created\n", name)
	}
	return err
}

// errOnlyJobs returns the error of what kubectl create makes but podrun create does not.
func errOnlyJobs() error {
	return &cli.Error{
		Code: cli.ExitUsage, Err: errors.New("podrun creates only Jobs of CronJobs: create job NAME --from=cronjob/NAME"),
		Hint: cli.InsteadOf("create"),
	}
}

// CreateFlagError returns err, the error of a flag of podrun create, or that of Creator.Job if the arguments before the
// flag, or the flag, are of something else that kubectl creates.
func CreateFlagError(args []string, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	other := []string{"f", "filename", "k", "kustomize", "image"}
	if len(args) > 0 && args[0] != "job" || slices.Contains(other, unknown.GetSpecifiedName()) {
		return errOnlyJobs()
	}
	return err
}

// parse returns the names of the Job and of the CronJob.
func parse(o JobOptions, args []string) (name, from string, err error) {
	usage := func(text string, values ...any) error {
		return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf(text, values...)}
	}
	if len(args) == 0 || args[0] != "job" {
		return "", "", errOnlyJobs()
	}
	if len(args) != 2 {
		return "", "", usage("give the job one name: create job NAME --from=cronjob/NAME")
	}
	resource, from, _ := strings.Cut(o.From, "/")
	if query.WorkloadKind(resource) != workload.CronJob || from == "" {
		return "", "", usage("--from %q: must be cronjob/NAME", o.From)
	}
	name = args[1]
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		return "", "", usage("job %q: %s", name, errs[0])
	}
	if len(name) > validation.DNS1123LabelMaxLength { // the value of a label of its pods
		return "", "", usage("job %q: must be no more than %d characters", name, validation.DNS1123LabelMaxLength)
	}
	return name, from, nil
}

// check returns an error if the Job cannot be created.
func (c Creator) check(cron *batchv1.CronJob, name string) error {
	if _, alive := c.Reader.Owners.LastSeen(); !alive && !c.Reader.Owners.JustBegun(starting) {
		return &cli.Error{
			Code: cli.ExitFailed, Err: errors.New("no podrun serve runs, which would run the job"),
			Hint: "podrun serve runs the CronJobs of its manifests",
		}
	}
	job := cron.Spec.JobTemplate.Spec
	if ptr.Deref(job.CompletionMode, "") == batchv1.IndexedCompletion {
		last := fmt.Sprintf("%s-%d", name, ptr.Deref(job.Completions, 1)-1)
		if errs := validation.IsDNS1123Label(last); len(errs) > 0 {
			return &cli.Error{
				Code: cli.ExitUsage, Err: fmt.Errorf("job %q: %s would be the host name of its last pod: %s", name, last, errs[0]),
			}
		}
	}
	exists, err := c.Reader.Job(cron.Namespace, name)
	if err == nil && exists != nil {
		err = fmt.Errorf("jobs.batch %q already exists", name)
	}
	return err
}
