package workloads

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The limits of Kubernetes' batch validation (pkg/apis/batch/validation/validation.go).
const (
	maxIndexedParallelism    = 100_000
	maxFailedPerIndex        = 100_000
	maxLargeIndexed          = 10_000
	maxLargeParallelism      = 10_000
	maxFailureRules          = 20
	maxExitCodes             = 255
	maxConditions            = 20
	maxSuccessRules          = 20
	maxSucceededIndexesBytes = 64 << 10
)

// Job validates a Job that has its defaults.
func Job(j *batchv1.Job) field.ErrorList {
	errs := meta(&j.ObjectMeta, apivalidation.NameIsDNSSubdomain)
	s := &j.Spec
	indexed := s.CompletionMode != nil && *s.CompletionMode == batchv1.IndexedCompletion
	if len(j.Name) > validation.LabelValueMaxLength {
		// Kubernetes adds the label job-name to the template, and then refuses that.
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), j.Name, fmt.Sprintf(
			"is the value of a label of its pods: must be no more than %d characters", validation.LabelValueMaxLength)))
	} else if indexed && s.Completions != nil && *s.Completions > 0 {
		last := fmt.Sprintf("%s-%d", j.Name, *s.Completions-1)
		for _, message := range validation.IsDNS1123Label(last) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), j.Name,
				fmt.Sprintf("will not able to create pod with invalid DNS label: %s: %s", last, message)))
		}
	}
	return append(errs, jobSpec(s, indexed, spec)...)
}

// jobSpec validates the spec at path spec of a Job.
func jobSpec(s *batchv1.JobSpec, indexed bool, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, one := range []struct {
		name  string
		value *int32
	}{
		{"parallelism", s.Parallelism}, {"completions", s.Completions}, {"backoffLimit", s.BackoffLimit},
		{"ttlSecondsAfterFinished", s.TTLSecondsAfterFinished}, {"backoffLimitPerIndex", s.BackoffLimitPerIndex},
		{"maxFailedIndexes", s.MaxFailedIndexes},
	} {
		errs = append(errs, negative(spec.Child(one.name), one.value)...)
	}
	if n := s.ActiveDeadlineSeconds; n != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(*n, spec.Child("activeDeadlineSeconds"))...)
	}
	errs = append(errs, completionMode(s, indexed, spec)...)
	errs = append(errs, perIndex(s, indexed, spec)...)
	if policy := s.PodFailurePolicy; policy != nil {
		errs = append(errs, failurePolicy(s, policy, spec)...)
	}
	if policy := s.SuccessPolicy; policy != nil {
		errs = append(errs, successPolicy(s, policy, indexed, spec)...)
	}
	errs = append(errs, replacement(s, spec)...)
	at := spec.Child("template", "spec")
	switch policy := s.Template.Spec.RestartPolicy; {
	case policy == "" || policy == v1.RestartPolicyAlways:
		errs = append(errs, field.Required(at.Child("restartPolicy"), "valid values: \"OnFailure\", \"Never\""))
	case policy != v1.RestartPolicyNever && policy != v1.RestartPolicyOnFailure:
		errs = append(errs, field.NotSupported(at.Child("restartPolicy"), policy,
			[]v1.RestartPolicy{v1.RestartPolicyOnFailure, v1.RestartPolicyNever}))
	case policy != v1.RestartPolicyNever && s.PodFailurePolicy != nil:
		errs = append(errs, field.Invalid(at.Child("restartPolicy"), policy,
			"only \"Never\" is supported when podFailurePolicy is specified"))
	}
	return errs
}

func completionMode(s *batchv1.JobSpec, indexed bool, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	mode := *s.CompletionMode
	if !indexed && mode != batchv1.NonIndexedCompletion {
		errs = append(errs, field.NotSupported(spec.Child("completionMode"), mode,
			[]batchv1.CompletionMode{batchv1.NonIndexedCompletion, batchv1.IndexedCompletion}))
	}
	if !indexed {
		return errs
	}
	if s.Completions == nil {
		errs = append(errs, field.Required(spec.Child("completions"),
			fmt.Sprintf("when completion mode is %s", batchv1.IndexedCompletion)))
	}
	if *s.Parallelism > maxIndexedParallelism {
		errs = append(errs, field.Invalid(spec.Child("parallelism"), *s.Parallelism, fmt.Sprintf(
			"must be less than or equal to %d when completion mode is %s", maxIndexedParallelism, mode)))
	}
	return errs
}

// perIndex validates backoffLimitPerIndex and maxFailedIndexes.
func perIndex(s *batchv1.JobSpec, indexed bool, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.BackoffLimitPerIndex != nil && !indexed {
		errs = append(errs, field.Invalid(spec.Child("backoffLimitPerIndex"), *s.BackoffLimitPerIndex,
			"requires indexed completion mode"))
	}
	most := s.MaxFailedIndexes
	if most == nil {
		if indexed && s.Completions != nil && s.BackoffLimitPerIndex != nil && *s.Completions > maxFailedPerIndex {
			errs = append(errs, field.Required(spec.Child("maxFailedIndexes"),
				fmt.Sprintf("must be specified when completions is above %d", maxFailedPerIndex)))
		}
		return errs
	}
	at := spec.Child("maxFailedIndexes")
	if s.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Required(spec.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
	}
	if s.Completions != nil {
		if *most > *s.Completions {
			errs = append(errs, field.Invalid(at, *most, "must be less than or equal to completions"))
		}
		if *s.Completions > maxFailedPerIndex && *most > maxLargeIndexed {
			errs = append(errs, field.Invalid(at, *most, fmt.Sprintf(
				"must be less than or equal to %d when completions is above %d", maxLargeIndexed, maxFailedPerIndex)))
		}
		if *s.Completions > maxFailedPerIndex && *s.Parallelism > maxLargeParallelism {
			errs = append(errs, field.Invalid(spec.Child("parallelism"), *s.Parallelism, fmt.Sprintf(
				"must be less than or equal to %d when completions are above %d and used with backoff limit per index",
				maxLargeParallelism, maxFailedPerIndex)))
		}
	}
	return errs
}

func failurePolicy(s *batchv1.JobSpec, policy *batchv1.PodFailurePolicy, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	path := spec.Child("podFailurePolicy", "rules")
	if len(policy.Rules) > maxFailureRules {
		errs = append(errs, field.TooMany(path, len(policy.Rules), maxFailureRules))
	}
	names := sets.New[string]()
	for _, list := range [][]v1.Container{s.Template.Spec.Containers, s.Template.Spec.InitContainers} {
		for i := range list {
			names.Insert(list[i].Name)
		}
	}
	for i := range policy.Rules {
		rule, at := &policy.Rules[i], path.Index(i)
		switch action := rule.Action; {
		case action == "":
			errs = append(errs, field.Required(at.Child("action"), fmt.Sprintf("valid values: %q", failureActions)))
		case action == batchv1.PodFailurePolicyActionFailIndex && s.BackoffLimitPerIndex == nil:
			errs = append(errs, field.Invalid(at.Child("action"), action,
				"requires the backoffLimitPerIndex to be set"))
		case !slices.Contains(failureActions, action):
			errs = append(errs, field.NotSupported(at.Child("action"), action, failureActions))
		}
		switch codes, conditions := rule.OnExitCodes, rule.OnPodConditions; {
		case codes != nil && len(conditions) > 0:
			errs = append(errs, field.Invalid(at, field.OmitValueType{},
				"specifying both OnExitCodes and OnPodConditions is not supported"))
		case codes == nil && len(conditions) == 0:
			errs = append(errs, field.Invalid(at, field.OmitValueType{},
				"specifying one of OnExitCodes and OnPodConditions is required"))
		}
		if rule.OnExitCodes != nil {
			errs = append(errs, exitCodes(rule.OnExitCodes, names, at.Child("onExitCodes"))...)
		}
		errs = append(errs, podConditions(rule.OnPodConditions, at.Child("onPodConditions"))...)
	}
	return errs
}

var failureActions = []batchv1.PodFailurePolicyAction{
	batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
	batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore,
}

func exitCodes(
	r *batchv1.PodFailurePolicyOnExitCodesRequirement, containers sets.Set[string], path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	operators := []batchv1.PodFailurePolicyOnExitCodesOperator{
		batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn,
	}
	if r.Operator == "" {
		errs = append(errs, field.Required(path.Child("operator"), fmt.Sprintf("valid values: %q", operators)))
	} else if !slices.Contains(operators, r.Operator) {
		errs = append(errs, field.NotSupported(path.Child("operator"), r.Operator, operators))
	}
	if r.ContainerName != nil && !containers.Has(*r.ContainerName) {
		errs = append(errs, field.Invalid(path.Child("containerName"), *r.ContainerName,
			"must be one of the container or initContainer names in the pod template"))
	}
	values := path.Child("values")
	if len(r.Values) == 0 {
		errs = append(errs, field.Invalid(values, r.Values, "at least one value is required"))
	} else if len(r.Values) > maxExitCodes {
		errs = append(errs, field.TooMany(values, len(r.Values), maxExitCodes))
	}
	seen := sets.New[int32]()
	for i, code := range r.Values {
		if r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && code == 0 {
			errs = append(errs, field.Invalid(values.Index(i), code, "must not be 0 for the In operator"))
		}
		if seen.Has(code) {
			errs = append(errs, field.Duplicate(values.Index(i), code))
		}
		seen.Insert(code)
	}
	if !slices.IsSorted(r.Values) {
		errs = append(errs, field.Invalid(values, r.Values, "must be ordered"))
	}
	return errs
}

func podConditions(all []batchv1.PodFailurePolicyOnPodConditionsPattern, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(all) > maxConditions {
		errs = append(errs, field.TooMany(path, len(all), maxConditions))
	}
	statuses := []v1.ConditionStatus{v1.ConditionFalse, v1.ConditionTrue, v1.ConditionUnknown}
	for i, c := range all {
		at := path.Index(i)
		errs = append(errs, invalid(at.Child("type"), c.Type, validation.IsQualifiedName(string(c.Type)))...)
		if !slices.Contains(statuses, c.Status) {
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, statuses))
		}
	}
	return errs
}

func successPolicy(
	s *batchv1.JobSpec, policy *batchv1.SuccessPolicy, indexed bool, spec *field.Path,
) field.ErrorList {
	path := spec.Child("successPolicy")
	if !indexed {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "requires indexed completion mode")}
	}
	rules := path.Child("rules")
	if len(policy.Rules) == 0 {
		return field.ErrorList{field.Required(rules,
			"at least one rules must be specified when the successPolicy is specified")}
	}
	var errs field.ErrorList
	if len(policy.Rules) > maxSuccessRules {
		errs = append(errs, field.TooMany(rules, len(policy.Rules), maxSuccessRules))
	}
	for i, rule := range policy.Rules {
		at := rules.Index(i)
		if rule.SucceededCount == nil && rule.SucceededIndexes == nil {
			errs = append(errs, field.Required(at, "at least one of succeededCount or succeededIndexes must be specified"))
		}
		of := 0
		if text := rule.SucceededIndexes; text != nil && s.Completions != nil {
			n, err := indexes(*text, int(*s.Completions))
			if len(*text) > maxSucceededIndexesBytes {
				errs = append(errs, field.TooLong(at.Child("succeededIndexes"), "", maxSucceededIndexesBytes))
			} else if err != nil {
				errs = append(errs, field.Invalid(at.Child("succeededIndexes"), *text,
					fmt.Sprintf("error parsing succeededIndexes: %s", err)))
			}
			of = n
		}
		count := rule.SucceededCount
		errs = append(errs, negative(at.Child("succeededCount"), count)...)
		switch {
		case count == nil:
		case s.Completions != nil && *count > *s.Completions:
			errs = append(errs, field.Invalid(at.Child("succeededCount"), *count,
				fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", *s.Completions)))
		case rule.SucceededIndexes != nil && int(*count) > of:
			errs = append(errs, field.Invalid(at.Child("succeededCount"), *count, fmt.Sprintf(
				"must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", of)))
		}
	}
	return errs
}

// indexes returns the number of indexes in a text such as 1,3-5, which are ascending and below completions.
func indexes(text string, completions int) (n int, err error) {
	if text == "" {
		return 0, nil
	}
	before := -1
	number := func(text string) (int, error) {
		i, err := strconv.Atoi(text)
		switch {
		case err != nil:
			return 0, fmt.Errorf("cannot convert string to integer for index: %q", text)
		case i < 0 || i >= completions:
			return 0, fmt.Errorf("too large index: %q", text)
		}
		return i, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		from, err := number(first)
		to := from
		if err == nil && ranged {
			to, err = number(last)
		}
		switch {
		case err != nil:
			return 0, err
		case from <= before:
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", before, from)
		case ranged && to <= from:
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", from, to)
		}
		n, before = n+to-from+1, to
	}
	return n, nil
}

func replacement(s *batchv1.JobSpec, spec *field.Path) field.ErrorList {
	at := spec.Child("podReplacementPolicy")
	all := []batchv1.PodReplacementPolicy{batchv1.Failed, batchv1.TerminatingOrFailed}
	policy := *s.PodReplacementPolicy
	if s.PodFailurePolicy != nil && policy != batchv1.Failed {
		return field.ErrorList{field.NotSupported(at, policy, all[:1])}
	}
	if !slices.Contains(all, policy) {
		return field.ErrorList{field.NotSupported(at, policy, all)}
	}
	return nil
}
