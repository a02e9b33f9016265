package workloads

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/workload/schedule"
)

// maxCronJobName leaves the names of Jobs, which end with a number of ten digits at most, 63 characters.
const maxCronJobName = 52

// CronJob validates a CronJob that has its defaults.
func CronJob(c *batchv1.CronJob) field.ErrorList {
	errs := meta(&c.ObjectMeta, apivalidation.NameIsDNSSubdomain)
	if len(c.Name) > maxCronJobName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name,
			fmt.Sprintf("must be no more than %d characters", maxCronJobName)))
	}
	s := &c.Spec
	errs = append(errs, scheduleText(s.Schedule, spec.Child("schedule"))...)
	if s.TimeZone != nil {
		errs = append(errs, timeZone(*s.TimeZone, spec.Child("timeZone"))...)
	}
	if n := s.StartingDeadlineSeconds; n != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(*n, spec.Child("startingDeadlineSeconds"))...)
	}
	policies := []batchv1.ConcurrencyPolicy{
		batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent,
	}
	if !slices.Contains(policies, s.ConcurrencyPolicy) {
		errs = append(errs, field.NotSupported(spec.Child("concurrencyPolicy"), s.ConcurrencyPolicy, policies))
	}
	errs = append(errs, negative(spec.Child("successfulJobsHistoryLimit"), s.SuccessfulJobsHistoryLimit)...)
	errs = append(errs, negative(spec.Child("failedJobsHistoryLimit"), s.FailedJobsHistoryLimit)...)
	job := &s.JobTemplate.Spec
	indexed := *job.CompletionMode == batchv1.IndexedCompletion
	return append(errs, jobSpec(job, indexed, spec.Child("jobTemplate", "spec"))...)
}

func scheduleText(text string, path *field.Path) field.ErrorList {
	if text == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if _, err := schedule.Parse(text); err != nil {
		message := err.Error()
		if text == "@reboot" {
			message += "; with the annotation podrun.io/schedule: boot it runs once in each boot, whatever the schedule is"
		}
		errs = append(errs, field.Invalid(path, text, message))
	}
	if strings.Contains(text, "TZ") {
		errs = append(errs, field.Invalid(path, text,
			"cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
	}
	return errs
}

// zonePart matches what is between the slashes of the name of a time zone.
var zonePart = regexp.MustCompile(`^[A-Za-z._0-9+-]{1,14}$`)

func timeZone(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Invalid(path, name, "timeZone must be nil or non-empty string")}
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "." || part == ".." || strings.HasPrefix(part, "-") || !zonePart.MatchString(part) {
			return field.ErrorList{field.Invalid(path, name, "unknown time zone "+name)}
		}
	}
	var errs field.ErrorList
	if strings.EqualFold(name, "Local") {
		errs = append(errs, field.Invalid(path, name,
			"timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"))
	}
	if _, err := time.LoadLocation(name); err != nil {
		errs = append(errs, field.Invalid(path, name, err.Error()))
	}
	return errs
}
