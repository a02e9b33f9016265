package names_test

import (
	"slices"
	"strings"
	"testing"

	"podrun.io/podrun/internal/cli/names"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/cli/wait"
)

// TestConditions: podrun wait accepts what is offered for its arguments, and every condition is offered without any.
func TestConditions(t *testing.T) {
	t.Parallel()
	all := names.Conditions(nil)
	for _, arg := range []string{"web", "deployment/web", "rs/web", "sts/web", "ds/web", "job/web", "cronjob/web"} {
		offered := names.Conditions([]string{arg})
		if len(offered) == 0 {
			t.Errorf("%s: nothing is offered", arg)
		}
		for _, value := range offered {
			w := wait.Wait{For: value}
			if _, err := w.Parse("default", []string{arg}, false); err != nil {
				t.Errorf("%s --for %s: %v", arg, value, err)
			}
			if !slices.Contains(all, value) {
				t.Errorf("%s is not offered without arguments", value)
			}
		}
		for _, kind := range query.Kinds() {
			resource := strings.ToLower(string(kind))
			if strings.HasPrefix(arg, resource+"/") && !slices.Equal(names.Conditions([]string{resource, "web"}), offered) {
				t.Errorf("%s web: not as %s", resource, arg)
			}
		}
	}
}
