package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Further values of difference.By, for the levels of the Pod Security Standards. No entry of meant
// may explain these differences, because podrun must refuse whatever Kubernetes' policy does not
// allow.
const (
	ofPolicy  = "Kubernetes' policy"
	ofEscapes = "the containers' specs"
)

// restrictAll adds the violations of the levels by podrun's pods of the manifest.
func (k kubernetes) restrictAll(v *verdict, pods []json.RawMessage) error {
	for _, text := range pods {
		var p v1.Pod
		if err := json.Unmarshal(text, &p); err != nil {
			return fmt.Errorf("reading podrun's pod of %s: %w", v.Name, err)
		}
		k.restrict(v, &p)
	}
	return nil
}

// compareLevels returns the differences at each level: podrun refuses what Kubernetes' policy
// allows, or accepts what the policy does not allow.
func compareLevels(podrun, kube verdict) []difference {
	var found []difference
	for _, level := range levels {
		at, asks, field := podrun.Levels[string(level)], kube.Levels[string(level)], levelField(level)
		if len(podrun.Errors) > 0 {
			if len(at) == 0 {
				found = append(found, difference{ofPolicy, field, "podrun takes what it refuses without a level"})
			}
			continue
		}
		for _, e := range asks {
			if !slices.ContainsFunc(at, func(f finding) bool { return strings.HasSuffix(f.Message, ": "+e.Message) }) {
				found = append(found, difference{ofPolicy, field, e.Message})
			}
		}
		for _, f := range at {
			if !slices.ContainsFunc(asks,
				func(e finding) bool { return strings.HasSuffix(f.Message, ": "+e.Message) }) {
				found = append(found, difference{ofPodrun, field, f.Field + ": " + f.Message})
			}
		}
	}
	for _, what := range podrun.Escapes {
		found = append(found, difference{ofEscapes, "", what})
	}
	return found
}

// tally counts the verdicts at a level.
type tally struct {
	// Of the manifests with pods: those that both accept, that both refuse, that podrun refuses at
	// any level, that only podrun refuses because of the level, and that only Kubernetes' policy
	// refuses.
	bothTake, bothRefuse, anyLevel, podrunAlone, policyAlone int
}

func (t *tally) add(podrun verdict, level string, asks []finding) {
	refuses := len(podrun.Levels[level]) > 0
	switch {
	case len(podrun.Errors) > 0:
		t.anyLevel++
	case refuses && len(asks) > 0:
		t.bothRefuse++
	case refuses:
		t.podrunAlone++
	case len(asks) > 0:
		t.policyAlone++
	default:
		t.bothTake++
	}
}

func (t *tally) String() string {
	all := t.bothTake + t.bothRefuse + t.anyLevel + t.podrunAlone + t.policyAlone
	return fmt.Sprintf("%6d  manifests with pods\n%6d  taken by both\n%6d  refused by both because of the level\n"+
		"%6d  refused by podrun whatever the level\n%6d  refused by podrun alone because of the level\n"+
		"%6d  refused by Kubernetes' policy alone\n",
		all, t.bothTake, t.bothRefuse, t.anyLevel, t.podrunAlone, t.policyAlone)
}
